// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm unmerge`: taking merged pages apart, only where they fit, at a
//! bounded rate. Why it is safe: docs/decisions/0007.

mod args;
mod executor;
mod job;
mod report;

use crate::shared::cost::Meter;
use crate::shared::lock::Lock;
use crate::shared::output;
use crate::shared::privilege;
use crate::shared::stop::Stop;
use crate::shared::view::{self, View};
use crate::shared::yama;
pub use args::UnmergeArgs;

use anyhow::{Context, Result, bail};
use executor::Executor;
use job::Job;
use nuksm_numafs::TaskStat;
use nuksm_sysroot::Root;
use report::{End, Report};
use std::process::ExitCode;

/// Un-merges, if it fits.
pub fn run(root: &Root, args: &UnmergeArgs) -> Result<ExitCode> {
    let ksm = view::require_ksm(root)?;
    privilege::require(root, "un-merging", false)?;
    if (args.pid.is_some() || !args.force) && yama::forbids_all(root)? {
        let in_one_go = if args.pid.is_some() {
            ""
        } else {
            "; or let the kernel un-merge all in one go, at no bounded rate, by --force"
        };
        bail!(
            "un-merging page by page reads the pages, and yama's ptrace_scope 3 keeps processes from reading each \
             other; {}{in_one_go}",
            yama::REMEDY
        );
    }
    if let Some(pid) = args.pid {
        if TaskStat::read(root, pid)?.is_none() {
            bail!("there is no process {pid}; `nuksm status` lists tenants and their pids");
        }
    }
    // Two at once would count each other's pages as gone, and stop ksmd for each other.
    let _held = if args.dry_run { None } else { Some(Lock::take(root, "unmerge.lock", "`nuksm unmerge`")?) };
    let stop = Stop::on_signals()?;
    let halt = args.pid.is_none() && !args.dry_run && ksm.run == Some(1);
    if halt {
        // From here on nothing is merged anew: the cost cannot grow.
        nuksm_ksmfs::Control::Run.write(root, 0)?;
    }
    let done = unmerge(root, args, &stop);
    if done.is_err() && halt {
        nuksm_ksmfs::Control::Run.write(root, 1).context("ksmd stays stopped")?;
    }
    // What was done stays done, even if nobody reads of it any more.
    let Some(report) = done? else {
        return Ok(ExitCode::SUCCESS);
    };
    output::print_report(args.json, &report, Report::result_text)?;
    Ok(if report.is_finished() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what it costs, and does it when it fits; `None` after a dry run. After
/// an error, ksmd may be started again.
fn unmerge(root: &Root, args: &UnmergeArgs, stop: &Stop) -> Result<Option<Report>> {
    let meter = Meter::start();
    let view = View::collect(root, &|| stop.is_requested())?;
    view.warn();
    let job = Job::new(root, &view, args.pid, &|| stop.is_requested())?;
    let mut report = Report::new(root, &job, args)?;
    let lacks = report.lacks();
    let refused = !lacks.is_empty() && !args.force;
    let at_once = args.dry_run || refused;
    if !args.json {
        output::print(&report.cost_text())?;
    } else if at_once {
        output::print_json(&report)?;
    }
    if refused {
        bail!(
            "un-merging does not fit: {}; free memory there, un-merge one process after the other (--pid), or go \
             on all the same with --force",
            lacks.join("; ")
        );
    }
    if at_once {
        return Ok(None);
    }
    let mut end = Executor::new(root, &job, args).carry_out(stop, &mut report)?;
    // What refused must not be un-merged with the rest: who asked for a bounded
    // rate, and for copies on the right nodes, would get neither.
    if end == End::Finished && report.refused() > 0 {
        end = End::Refused;
    }
    let all = matches!(end, End::Refused | End::NotOffered) && args.force;
    if args.pid.is_none() && (all || end == End::Finished) {
        let rest = View::collect(root, &|| stop.is_requested())?;
        end = finish(root, args, &rest, &mut report)?;
    }
    report.end(root, &end, &meter)?;
    Ok(Some(report))
}

/// Lets the kernel do the rest in one go: pages with one mapping left, pages of
/// zeroes, mappings out of sight, and KSM's records; with --force, what could not be
/// taken apart. Whether that fits is asked again: memory and what is out of sight may
/// have changed in the time that a bounded rate takes.
fn finish(root: &Root, args: &UnmergeArgs, rest: &View, report: &mut Report) -> Result<End> {
    let rest = Job::new(root, rest, None, &|| false)?;
    let cost = Report::new(root, &rest, args)?;
    let lacks = cost.lacks();
    if !lacks.is_empty() && !args.force {
        return Ok(End::NoRoom(format!("what is left for the kernel does not fit: {}", lacks.join("; "))));
    }
    report.left_to_kernel = cost.mappings + cost.zero_pages + cost.out_of_sight;
    if report.left_to_kernel > 0 && !args.json {
        output::print(&format!(
            "the kernel un-merges the other {} in one go, at no bounded rate: {} of them are pages of zeroes\n",
            report.left_to_kernel, cost.zero_pages
        ))?;
    }
    // Where these pages come to be depends on who asks for them: on no node in particular.
    let _ = nuksm_pagemap::prefer_nodes(&rest.memory_nodes());
    nuksm_ksmfs::Control::Run
        .write(root, 2)
        .context("the kernel could not un-merge the rest; what is un-merged stays so until ksmd comes by")?;
    Ok(End::Finished)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tree::tree;
    use nuksm_pagemap::Scan;
    use std::fs;

    #[test]
    fn one_at_a_time_and_a_dry_run_disturbs_nobody() {
        let (dir, root) =
            tree(&[("sys/kernel/mm/ksm/run", "1\n"), ("proc/self/status", "CapEff:\t000001ffffffffff\n")]);
        let _first = Lock::take(&root, "unmerge.lock", "`nuksm unmerge`").unwrap();
        let refusal = |dry_run| {
            let rate = "1".parse().unwrap();
            let args = UnmergeArgs { dry_run, pid: None, rate, force: false, json: false };
            run(&root, &args).unwrap_err().to_string()
        };
        assert!(refusal(false).starts_with("another `nuksm unmerge` is at work"), "{}", refusal(false));
        assert!(!refusal(true).contains("at work"), "{}", refusal(true));
        assert_eq!(fs::read_to_string(dir.path().join("sys/kernel/mm/ksm/run")).unwrap(), "1\n");
    }

    #[test]
    fn what_is_left_to_the_kernel_has_to_fit_when_it_is_left() {
        let (dir, root) =
            tree(&[("sys/kernel/mm/ksm/run", "0\n"), ("sys/kernel/mm/ksm/ksm_zero_pages", "1000000000\n")]);
        let nothing_left = View {
            tenants: vec![],
            scan: Scan::default(),
            pages: vec![],
            sets: vec![],
            ..view::tests::view()
        };
        let finish = |force| {
            let args =
                UnmergeArgs { dry_run: false, pid: None, rate: "1".parse().unwrap(), force, json: false };
            finish(&root, &args, &nothing_left, &mut Report::default()).unwrap()
        };
        let End::NoRoom(why) = finish(false) else { panic!("no machine has 4 TB for pages of zeroes") };
        assert!(why.contains("all nodes together lack"), "{why}");
        let run = || fs::read_to_string(dir.path().join("sys/kernel/mm/ksm/run")).unwrap();
        assert_eq!(run(), "0\n");
        assert_eq!(finish(true), End::Finished);
        assert_eq!(run().trim(), "2");
    }

    #[test]
    fn where_nobody_may_read_nothing_is_begun() {
        let (dir, root) = tree(&[
            ("sys/kernel/mm/ksm/run", "1\n"),
            ("proc/self/status", "CapEff:\t000001ffffffffff\n"),
            ("proc/sys/kernel/yama/ptrace_scope", "3\n"),
        ]);
        let refusal = |force, pid| {
            let args = UnmergeArgs { dry_run: false, pid, rate: "1".parse().unwrap(), force, json: false };
            run(&root, &args).unwrap_err().to_string()
        };
        assert!(refusal(false, None).contains("ptrace_scope 3"), "{}", refusal(false, None));
        assert!(refusal(false, None).contains("by --force"));
        assert!(!refusal(true, Some(7)).contains("--force"), "the kernel cannot do that for one process");
        assert_eq!(fs::read_to_string(dir.path().join("sys/kernel/mm/ksm/run")).unwrap(), "1\n");
    }
}
