// SPDX-License-Identifier: GPL-2.0-only
//! One pass: look, plan, move, report.

use super::executor::{Executor, Task};
use super::homes::Homes;
use super::kernel;
use super::report::{Report, TenantRow};
use super::rescan;
use super::rule::Rule;
use crate::shared::cost::{self, Meter};
use crate::shared::stop::Stop;
use crate::shared::view::View;
use crate::shared::who::Who;
use anyhow::Result;
use nuksm_ksmfs::Engine;
use nuksm_model::{Move, NodeShare, Page, Plan, Policy, Sharer};
use nuksm_pagemap::{Mapping, Outcome, Refusal};
use nuksm_sysroot::{Root, unless_stopped};
use std::collections::HashSet;
use std::rc::Rc;

/// What becomes of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It plans, and moves nothing.
    DryRun,
    /// There is no other: it waits until ksmd lets go of pages that are busy.
    Single,
    /// The next one comes soon enough for those.
    Repeated,
}

/// Does one pass; ends early, with what was done so far, when `stop` says so.
/// A look or a plan that was stopped is an error ([`crate::shared::view::was_stopped`]).
/// `looked` gets the view, before anything moves, and the CPU time it took.
pub fn run(
    root: &Root,
    rule: &Rule,
    kind: Kind,
    homes: &mut Homes,
    stop: &Stop,
    looked: impl FnOnce(&View, f64),
) -> Result<Report> {
    let meter = Meter::start();
    let mut view = View::collect(root, &|| stop.is_requested())?;
    view.warn();
    homes.settle(&mut view.tenants);
    looked(&view, meter.cpu_seconds());
    let left_to_kernel = kernel::leaves_nothing(Engine::read(root)?.as_ref(), rule.policy);
    let (asked, nothing) = (rule.clone(), left_to_kernel.is_some());
    let plan = move || {
        let planned = if nothing { (Plan::default(), None) } else { plan(&view, &asked) };
        (view, planned)
    };
    let (view, (plan, held_back)) =
        unless_stopped(plan, &|| stop.is_requested()).map_err(nuksm_pagemap::Error::from)?;

    let mut report = Report {
        policy: rule.policy.as_str(),
        dry_run: kind == Kind::DryRun,
        pages_looked_at: view.scan.looked_at,
        merged_pages: view.pages.len() as u64,
        planned: plan.moves.len() as u64,
        no_room: plan.no_room,
        held_back,
        left_to_kernel,
        ..Report::default()
    };
    let mut after = view.pages.clone();
    if kind == Kind::DryRun {
        for step in &plan.moves {
            after[step.page as usize].node = step.to;
        }
    } else {
        let executor = Executor::new(root, &view.tenants, rule.rate.0);
        let mut count = |task: Task, outcome: Outcome| match outcome {
            Ok(()) => {
                report.moved += 1;
                after[task.page as usize].node = task.to;
            }
            Err(refusal) => report.count_refusal(refusal),
        };
        let mut busy = Vec::new();
        let mut finished = executor.carry_out(&tasks(&view, &plan.moves), stop, |task, outcome| {
            if kind == Kind::Single && outcome == Err(Refusal::Busy) {
                busy.push(task);
            } else {
                count(task, outcome);
            }
        });
        finished = finished && (busy.is_empty() || !rescan::wait(root, stop)?);
        if finished {
            finished = executor.carry_out(&busy, stop, &mut count);
        } else {
            for task in busy {
                count(task, Err(Refusal::Busy));
            }
        }
        report.interrupted = !finished;
    }
    report.tenants = tenant_rows(&view, &after);
    report.cpu_seconds = meter.cpu_seconds();
    report.wall_seconds = meter.wall_seconds();
    report.peak_memory_bytes = cost::peak_memory_bytes(root)?;
    Ok(report)
}

/// What is to move; and why nothing may, if so.
fn plan(view: &View, rule: &Rule) -> (Plan, Option<String>) {
    let held_back = rule.held_back(view);
    if held_back.is_some() {
        return (Plan::default(), held_back);
    }
    let shares = shares(view, rule.policy.into(), &rule.only, &rule.exclude);
    let distance = |from, to| view.machine.distance(from, to);
    let free = view.machine.nodes.iter().map(|node| (node.id, node.room_pages)).collect();
    (nuksm_model::plan(&view.pages, &shares, free, distance), None)
}

/// The target shares of each sharing set. Sets that are to be left alone have
/// none: those with an excluded tenant, and with `only`, those without any of
/// them.
fn shares(view: &View, policy: Policy, only: &[Who], exclude: &[Who]) -> Vec<Rc<[NodeShare]>> {
    // Each tenant is asked once: it is in as many sets as it likes.
    let which = |whom: &[Who]| -> Vec<bool> {
        view.tenants.iter().map(|tenant| whom.iter().any(|who| who.is(tenant))).collect()
    };
    let (only_these, excluded) = (which(only), which(exclude));
    // Each page may be a set of its own, but the nodes of sharers are few.
    let mut known = HashSet::<Rc<[NodeShare]>>::new();
    let mut one_of_each = |shares: Vec<NodeShare>| {
        if let Some(known) = known.get(shares.as_slice()) {
            return Rc::clone(known);
        }
        let shares = Rc::<[NodeShare]>::from(shares);
        known.insert(Rc::clone(&shares));
        shares
    };
    let share = |set: &Vec<u32>| {
        let tenants = || set.iter().map(|&tenant| &view.tenants[tenant as usize]);
        let any_is = |those: &[bool]| set.iter().any(|&tenant| those[tenant as usize]);
        if !only.is_empty() && !any_is(&only_these) || any_is(&excluded) {
            return Vec::new();
        }
        let sharers: Vec<Sharer> =
            tenants().filter_map(|tenant| Some(Sharer { node: tenant.node?, nice: tenant.nice })).collect();
        nuksm_model::node_shares(policy, &sharers)
    };
    view.sets.iter().map(|set| one_of_each(share(set))).collect()
}

/// Each move with the mapping through which the kernel is told of it: one of a
/// sharer on the target node, since its cpuset surely allows that node.
fn tasks(view: &View, moves: &[Move]) -> Vec<Task> {
    let mut moves = moves.iter().peekable();
    let mut tasks = Vec::with_capacity(moves.len());
    for (page, mappings) in (0_u32..).zip(view.scan.pages()) {
        let Some(step) = moves.next_if(|step| step.page == page) else {
            continue;
        };
        let on_target = |mapping: &&Mapping| view.tenants[mapping.tenant() as usize].node == Some(step.to);
        let mapping = mappings.iter().find(on_target).unwrap_or(&mappings[0]);
        tasks.push(Task { mapping: *mapping, page, to: step.to });
    }
    tasks
}

fn tenant_rows(view: &View, after: &[Page]) -> Vec<TenantRow> {
    let before = view.tenant_pages(&view.pages);
    let after = if after == view.pages { before.clone() } else { view.tenant_pages(after) };
    let rows = view.tenants.iter().zip(before).zip(after);
    rows.filter(|((_, before), _)| before.merged > 0)
        .map(|((tenant, before), after)| TenantRow {
            pid: tenant.pid,
            name: tenant.name.clone(),
            node: tenant.node,
            nice: tenant.nice,
            merged_mappings: before.merged,
            local_before: before.local,
            local_after: after.local,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::view::tests::view;

    fn sizes(only: &[&str], exclude: &[&str]) -> Vec<usize> {
        let whom = |words: &[&str]| words.iter().map(|word| word.parse().unwrap()).collect::<Vec<Who>>();
        shares(&view(), Policy::Fair, &whom(only), &whom(exclude)).iter().map(|shares| shares.len()).collect()
    }

    #[test]
    fn only_and_exclude_choose_sharing_sets() {
        // The sets are of the tenants {10, 11} and {10, 12}.
        assert_eq!(sizes(&[], &[]), [2, 2]);
        assert_eq!(sizes(&["11"], &[]), [2, 0]);
        assert_eq!(sizes(&[], &["12"]), [2, 0]);
        assert_eq!(sizes(&["10"], &["10"]), [0, 0]);
        assert_eq!(sizes(&["99"], &[]), [0, 0]);
        assert_eq!((sizes(&["t1?"], &[]), sizes(&[], &["t*2"])), (vec![2, 2], vec![2, 0]));
    }

    #[test]
    fn the_kernel_is_told_through_a_sharer_on_the_target_node() {
        let view = view();
        let tasks = tasks(&view, &[Move { page: 0, to: 1 }, Move { page: 2, to: 0 }]);
        let chosen: Vec<_> = tasks.iter().map(|task| (task.mapping.tenant(), task.page, task.to)).collect();
        assert_eq!(chosen, [(1, 0, 1), (0, 2, 0)]);
    }
}
