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
use crate::shared::tenants;
use crate::shared::view::{self, View};
use crate::shared::yama;
pub use args::UnmergeArgs;

use anyhow::{Context, Result, bail};
use executor::Executor;
use job::Job;
use nuksm_numafs::TaskStat;
use nuksm_sysroot::Root;
use report::{End, Report};
use std::io::{self, Write};
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
    let look = || View::collect(root, &|| stop.is_requested());
    let halt = args.pid.is_none() && !args.dry_run && ksm.run == Some(1);
    Work { root, args, stop: &stop, look: &look, halt }.run(&mut io::stdout())
}

/// What is asked for, and how to look at the machine.
struct Work<'a> {
    root: &'a Root,
    args: &'a UnmergeArgs,
    stop: &'a Stop,
    look: &'a dyn Fn() -> Result<View>,
    /// Is ksmd running, and to be stopped for this?
    halt: bool,
}

impl Work<'_> {
    fn run(&self, out: &mut dyn Write) -> Result<ExitCode> {
        let meter = Meter::start();
        if self.halt {
            // From here on nothing is merged anew: the cost cannot grow.
            nuksm_ksmfs::Control::Run.write(self.root, 0)?;
        }
        let seen;
        let planned = match (self.look)() {
            Ok(view) => {
                seen = view;
                self.plan(&seen, out)
            }
            Err(error) => Err(error),
        };
        let (mut report, end) = if !self.args.dry_run && planned.as_ref().is_err_and(view::was_stopped) {
            (Report { pid: self.args.pid, ..Report::default() }, End::Interrupted)
        } else {
            let Some((job, mut report)) = self.as_before(planned)? else {
                return Ok(ExitCode::SUCCESS);
            };
            let done = self.carry_out(&job, &mut report, out);
            let end = if self.args.pid.is_some() {
                done?
            } else {
                done.context("ended early, and ksmd stays stopped; `nuksm unmerge` goes on where this ended")?
            };
            (report, end)
        };
        report.end(self.root, &end, &meter)?;
        self.say(out, &report, Report::result_text)?;
        Ok(if report.is_finished() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Until the first page is touched, an error leaves ksmd as it was. Later it does
    /// not: ksmd would merge again what was un-merged.
    fn as_before<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let started = if self.halt { nuksm_ksmfs::Control::Run.write(self.root, 1) } else { Ok(()) };
            match started {
                Ok(()) => error,
                Err(why) => error.context(format!("ksmd stays stopped, {}", tenants::with_cause(&why))),
            }
        })
    }

    /// Says what it costs; an error when that does not fit, `None` when it was only to
    /// be said.
    fn plan<'v>(&self, view: &'v View, out: &mut dyn Write) -> Result<Option<(Job<'v>, Report)>> {
        let args = self.args;
        view.warn();
        let job = Job::new(self.root, view, args.pid, &|| self.stop.is_requested())?;
        let report = Report::new(self.root, &job, args)?;
        let lacks = report.lacks();
        let refused = !lacks.is_empty() && !args.force;
        let at_once = args.dry_run || refused;
        if !args.json || at_once {
            self.say(out, &report, Report::cost_text)?;
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
        executor::check_nodes(&report)?;
        Ok(Some((job, report)))
    }

    /// Does it, and says how it ended.
    fn carry_out(&self, job: &Job, report: &mut Report, out: &mut dyn Write) -> Result<End> {
        let mut end = Executor::new(self.root, job, self.args).carry_out(self.stop, report)?;
        // What refused must not be un-merged with the rest: who asked for a bounded
        // rate, and for copies on the right nodes, would get neither.
        if end == End::Finished && report.refused() > 0 {
            end = End::Refused;
        }
        let all = matches!(end, End::Refused | End::NotOffered) && self.args.force;
        if self.args.pid.is_none() && (all || end == End::Finished) {
            let finished = (self.look)().and_then(|rest| self.finish(&rest, report, out));
            end = match finished {
                Err(error) if view::was_stopped(&error) => End::Interrupted,
                finished => finished?,
            };
        }
        Ok(end)
    }

    /// Lets the kernel do the rest in one go: pages with one mapping left, pages of
    /// zeroes, mappings out of sight, and KSM's records; with --force, what could not be
    /// taken apart. Whether that fits is asked again: memory and what is out of sight may
    /// have changed in the time that a bounded rate takes.
    fn finish(&self, rest: &View, report: &mut Report, out: &mut dyn Write) -> Result<End> {
        let rest = Job::new(self.root, rest, None, &|| self.stop.is_requested())?;
        let cost = Report::new(self.root, &rest, self.args)?;
        let lacks = cost.lacks();
        if !lacks.is_empty() && !self.args.force {
            return Ok(End::NoRoom(format!(
                "what is left for the kernel does not fit: {}",
                lacks.join("; ")
            )));
        }
        report.left_to_kernel = cost.mappings + cost.zero_pages + cost.out_of_sight;
        if report.left_to_kernel > 0 && !self.args.json {
            let text = format!(
                "the kernel un-merges the other {} in one go, at no bounded rate: {} of them are pages of zeroes\n",
                report.left_to_kernel, cost.zero_pages
            );
            output::unless_closed(output::write(&text, out))?;
        }
        // Where these pages come to be depends on who asks for them: on no node in particular.
        let _ = nuksm_pagemap::prefer_nodes(&rest.memory_nodes());
        nuksm_ksmfs::Control::Run.write(self.root, 2).context(
            "the kernel could not un-merge the rest; what is un-merged stays so until ksmd comes by",
        )?;
        Ok(End::Finished)
    }

    /// Writes the report, or the part of its text that is wanted now. What is done is
    /// done, and what is not is not, even if nobody reads of it any more.
    fn say(&self, out: &mut dyn Write, report: &Report, text: impl FnOnce(&Report) -> String) -> Result<()> {
        output::unless_closed(output::write_report(self.args.json, report, text, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::output::tests::Gone;
    use crate::shared::tree::tree;
    use nuksm_pagemap::Scan;
    use std::cell::RefCell;
    use std::fs;
    use tempfile::TempDir;

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

    fn args(force: bool) -> UnmergeArgs {
        UnmergeArgs { dry_run: false, pid: None, rate: "1M".parse().unwrap(), force, json: false }
    }

    fn nothing_merged() -> View {
        View { tenants: vec![], scan: Scan::default(), pages: vec![], sets: vec![], ..view::tests::view() }
    }

    /// A machine whose ksmd runs, with so many pages of zeroes.
    fn running(zero_pages: &str) -> (TempDir, Root) {
        tree(&[("sys/kernel/mm/ksm/run", "1\n"), ("sys/kernel/mm/ksm/ksm_zero_pages", zero_pages)])
    }

    /// How it ends, and KSM's `run` then; the answers of each look in turn.
    fn worked(
        root: &Root,
        args: &UnmergeArgs,
        out: &mut dyn Write,
        looks: Vec<Result<View>>,
    ) -> (Result<ExitCode>, String) {
        let looks = RefCell::new(looks.into_iter());
        let (_stopper, stop) = Stop::by_hand();
        let look = || looks.borrow_mut().next().unwrap();
        let done = Work { root, args, stop: &stop, look: &look, halt: true }.run(out);
        (done, root.text("sys/kernel/mm/ksm/run").unwrap().unwrap().trim().to_owned())
    }

    #[test]
    fn what_is_left_to_the_kernel_has_to_fit_when_it_is_left() {
        let (_dir, root) = running("1000000000\n");
        let (_stopper, stop) = Stop::by_hand();
        let finish = |force| {
            let (args, look) = (args(force), || panic!("for this test"));
            let work = Work { root: &root, args: &args, stop: &stop, look: &look, halt: true };
            work.finish(&nothing_merged(), &mut Report::default(), &mut Vec::new()).unwrap()
        };
        let End::NoRoom(why) = finish(false) else { panic!("no machine has 4 TB for pages of zeroes") };
        assert!(why.contains("all nodes together lack"), "{why}");
        let run = || root.text("sys/kernel/mm/ksm/run").unwrap().unwrap();
        assert_eq!(run(), "1\n", "untouched");
        assert_eq!(finish(true), End::Finished);
        assert_eq!(run().trim(), "2");
    }

    #[test]
    fn a_reader_that_goes_ends_no_work_and_makes_none_succeed() {
        let (_dir, root) = running("7\n");
        let (done, run) =
            worked(&root, &args(false), &mut Gone, vec![Ok(nothing_merged()), Ok(nothing_merged())]);
        assert_eq!((done.unwrap(), run.as_str()), (ExitCode::SUCCESS, "2"), "all is done");
        let (_dir, root) = running("1000000000\n");
        let (done, run) = worked(&root, &args(false), &mut Gone, vec![Ok(nothing_merged())]);
        assert!(done.unwrap_err().to_string().contains("does not fit"));
        assert_eq!(run, "1", "nothing was begun");
    }

    #[test]
    fn a_look_that_is_stopped_is_an_interruption() {
        let stopped = || Err(anyhow::Error::from(nuksm_pagemap::Error::Stopped));
        for looks in [vec![stopped()], vec![Ok(nothing_merged()), stopped()]] {
            let (_dir, root) = running("7\n");
            let mut out = Vec::new();
            let (done, run) = worked(&root, &args(false), &mut out, looks);
            assert_eq!((done.unwrap(), run.as_str()), (ExitCode::FAILURE, "0"));
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("interrupted; ") && text.contains("run is 0"), "{text}");
        }
    }

    #[test]
    fn what_was_begun_is_never_merged_again_by_an_error() {
        let broken = || Err(anyhow::anyhow!("for this test"));
        let (_dir, root) = running("7\n");
        let (done, run) = worked(&root, &args(false), &mut Vec::new(), vec![broken()]);
        assert_eq!((done.unwrap_err().to_string().as_str(), run.as_str()), ("for this test", "1"));
        let (done, run) = worked(&root, &args(false), &mut Vec::new(), vec![Ok(nothing_merged()), broken()]);
        let message = format!("{:#}", done.unwrap_err());
        assert!(message.contains("ksmd stays stopped") && message.ends_with("for this test"), "{message}");
        assert_eq!(run, "0");
    }

    #[test]
    fn a_node_that_is_closed_to_us_is_told_before_anything_is_done() {
        let (_dir, root) = running("7\n");
        let mut view = view::tests::view();
        view.machine.nodes[1].id = 1000;
        // No machine has this node. The first tenants, which have ended, come before it.
        for (tenant, node) in view.tenants.iter_mut().zip([0, 0, 1000]) {
            tenant.node = Some(node);
        }
        let mut out = Vec::new();
        let (done, run) = worked(&root, &args(true), &mut out, vec![Ok(view)]);
        let error = done.unwrap_err().to_string();
        assert!(error.contains("node 1000") && error.contains("AllowedMemoryNodes"), "{error}");
        assert_eq!(run, "1", "ksmd goes on");
    }

    #[test]
    fn an_end_is_heard_while_policies_are_read() {
        // The first look's, then the second's.
        for looks in [vec![view::tests::view()], vec![nothing_merged(), view::tests::view()]] {
            let (_dir, root) = running("7\n");
            let (stopper, stop) = Stop::by_hand();
            let (stopper, looks) = (RefCell::new(Some(stopper)), RefCell::new(looks.into_iter()));
            let look = || {
                let mut looks = looks.borrow_mut();
                let view = looks.next().unwrap();
                if looks.len() == 0 {
                    stopper.take();
                }
                Ok(view)
            };
            let args = args(true);
            let work = Work { root: &root, args: &args, stop: &stop, look: &look, halt: true };
            assert_eq!(work.run(&mut Vec::new()).unwrap(), ExitCode::FAILURE);
            assert_eq!(root.text("sys/kernel/mm/ksm/run").unwrap().unwrap().trim(), "0");
        }
    }

    #[test]
    fn where_ksmd_cannot_be_started_again_both_reasons_are_told() {
        let (dir, root) = running("7\n");
        let run = dir.path().join("sys/kernel/mm/ksm/run");
        let look = || {
            fs::remove_file(&run).unwrap();
            Err(anyhow::anyhow!("for this test"))
        };
        let (args, (_stopper, stop)) = (args(false), Stop::by_hand());
        let work = Work { root: &root, args: &args, stop: &stop, look: &look, halt: true };
        let message = format!("{:#}", work.run(&mut Vec::new()).unwrap_err());
        assert!(message.starts_with("ksmd stays stopped, cannot write "), "{message}");
        assert!(message.ends_with(": for this test"), "{message}");
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
