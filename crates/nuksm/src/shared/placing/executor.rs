// SPDX-License-Identifier: GPL-2.0-only
//! Carrying a plan out: in batches, at a bounded rate, and never moving a page
//! that stopped being a merged one since the plan was made.

use crate::shared::pace::Pace;
use crate::shared::stop::Stop;
use crate::shared::tenants::{self, Tenant};
use nuksm_pagemap::{Mapping, Outcome, Pagemap, Refusal, move_to_node};
use nuksm_sysroot::{Root, patiently};
use std::collections::BTreeMap;

/// One page to be moved.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// The mapping through which the kernel is told.
    pub mapping: Mapping,
    /// Index of the page in the view.
    pub page: u32,
    /// Where it should go.
    pub to: u32,
}

/// Carries plans out.
#[derive(Debug)]
pub struct Executor<'a> {
    root: &'a Root,
    tenants: &'a [Tenant],
    pages_per_second: u64,
}

impl<'a> Executor<'a> {
    /// `tenants` are those that the tasks' mappings name.
    pub fn new(root: &'a Root, tenants: &'a [Tenant], pages_per_second: u64) -> Self {
        Self { root, tenants, pages_per_second }
    }

    /// Moves the pages and tells `done` of each what became of it; false when
    /// `stop` ended it early.
    pub fn carry_out(&self, tasks: &[Task], stop: &Stop, mut done: impl FnMut(Task, Outcome)) -> bool {
        let mut pace = Pace::new(self.pages_per_second);
        for batch in tasks.chunks(pace.batch()) {
            if stop.wait(pace.delay()) {
                return false;
            }
            for (task, outcome) in self.move_batch(batch) {
                done(task, outcome);
            }
            pace.handled(batch.len(), tasks.len());
        }
        true
    }

    fn move_batch(&self, batch: &[Task]) -> Vec<(Task, Outcome)> {
        let mut groups = BTreeMap::<(u32, u32), Vec<Task>>::new();
        for task in batch {
            groups.entry((task.mapping.tenant(), task.to)).or_default().push(*task);
        }
        let tasks: Vec<Vec<Task>> = groups.values().cloned().collect();
        let through = groups.into_iter().map(|((tenant, node), tasks)| {
            let tenant = self.tenants[tenant as usize].clone();
            (tenant.task, (tenant, node, tasks))
        });
        let root = self.root.clone();
        let mut results = Vec::with_capacity(batch.len());
        // What was begun is counted: nobody stops it.
        let _ = patiently(
            through,
            move |(tenant, node, tasks), _| move_through(&root, &tenant, node, tasks),
            &|| false,
            |group, moved| match moved {
                Some(moved) => results.extend(moved),
                None => results.extend(tasks[group].iter().map(|task| (*task, Err(Refusal::NoAnswer)))),
            },
        );
        results
    }
}

/// Moves pages to `node` through the memory of one tenant.
fn move_through(root: &Root, tenant: &Tenant, node: u32, tasks: Vec<Task>) -> Vec<(Task, Outcome)> {
    let pagemap = Pagemap::open(root, &tenant.task.to_string()).ok().flatten();
    let Some(pagemap) = pagemap.filter(|_| tenants::is_alive(root, tenant)) else {
        return tasks.into_iter().map(|task| (task, Err(Refusal::Exited))).collect();
    };
    let entry = |task: &Task| pagemap.entry(task.mapping.addr()).ok().flatten();
    let still_merged = |task: &Task| {
        entry(task).is_some_and(|entry| entry.is_shared_anonymous() && entry.pfn() == task.mapping.pfn)
    };
    let (tasks, gone): (Vec<Task>, Vec<Task>) = tasks.into_iter().partition(still_merged);
    let mut results: Vec<_> = gone.into_iter().map(|task| (task, Err(Refusal::Unmerged))).collect();

    let addrs: Vec<u64> = tasks.iter().map(|task| task.mapping.addr()).collect();
    let outcomes = move_to_node(tenant.task, &addrs, node);
    let mut strays = Vec::new();
    for (task, outcome) in tasks.into_iter().zip(outcomes) {
        // The tenant may have written to the page between the look and the
        // move; then its private copy moved instead.
        if outcome.is_ok() && !entry(&task).is_some_and(nuksm_pagemap::Entry::is_shared_anonymous) {
            strays.push(task.mapping.addr());
            results.push((task, Err(Refusal::Unmerged)));
        } else {
            results.push((task, outcome));
        }
    }
    if let Some(home) = tenant.node.filter(|_| !strays.is_empty()) {
        // Private pages belong where their tenant runs. One that cannot be
        // moved back now is still intact.
        let _ = move_to_node(tenant.task, &strays, home);
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tree::silent;
    use crate::shared::view::tests::view;

    #[test]
    fn who_does_not_answer_is_counted_and_holds_up_nobody() {
        let (_dir, root, pagemap) = silent("proc/9011/pagemap");
        let mut tenants = view().tenants;
        for tenant in &mut tenants {
            (tenant.pid, tenant.task) = (tenant.pid + 9000, tenant.task + 9000);
        }
        let task = |page, tenant| Task { mapping: Mapping::new(1, tenant, 4096), page, to: 0 };
        let tasks = [task(1, 0), task(2, 1), task(3, 1), task(4, 2)];
        let (_stopper, stop) = Stop::by_hand();
        let mut outcomes = BTreeMap::new();
        let done = |task: Task, outcome| assert_eq!(outcomes.insert(task.page, outcome), None);
        assert!(Executor::new(&root, &tenants, 1 << 20).carry_out(&tasks, &stop, done));
        let refusals: Vec<Refusal> = outcomes.into_values().map(Result::unwrap_err).collect();
        let (ended, silent) = (Refusal::Exited, Refusal::NoAnswer);
        assert_eq!(refusals, [ended, silent, silent, ended]);
        // Lets the thread that waits go.
        let _ = std::fs::OpenOptions::new().write(true).open(pagemap);
    }
}
