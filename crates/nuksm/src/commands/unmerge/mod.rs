// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm unmerge`: taking merged pages apart, only where they fit, at a
//! bounded rate. Why it is safe: docs/decisions/0007.

mod args;
mod executor;
mod job;
mod report;

use crate::shared::cost::Meter;
use crate::shared::output;
use crate::shared::privilege;
use crate::shared::stop::Stop;
use crate::shared::view::{self, View};
pub use args::UnmergeArgs;

use anyhow::{Context, Result, bail};
use executor::Executor;
use job::Job;
use numafs::TaskStat;
use report::{End, Report};
use std::process::ExitCode;
use sysroot::Root;

/// Un-merges, if it fits.
pub fn run(root: &Root, args: &UnmergeArgs) -> Result<ExitCode> {
    let ksm = view::require_ksm(root)?;
    privilege::require(root, "un-merging", false)?;
    if let Some(pid) = args.pid {
        if TaskStat::read(root, pid)?.is_none() {
            bail!("there is no process {pid}; `nuksm status` lists tenants and their pids");
        }
    }
    let stop = Stop::on_signals()?;
    let halt = args.pid.is_none() && !args.dry_run && ksm.run == Some(1);
    if halt {
        // From here on nothing is merged anew: the cost cannot grow.
        ksmfs::Control::Run.write(root, 0)?;
    }
    let done = unmerge(root, args, &stop);
    if done.is_err() && halt {
        ksmfs::Control::Run.write(root, 1).context("ksmd stays stopped")?;
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
    let view = View::collect(root)?;
    let job = Job::new(root, &view, args.pid)?;
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
    if args.pid.is_none() && matches!(end, End::Finished | End::NotOffered) {
        finish(root, &job, &mut report, args.json)?;
        end = End::Finished;
    }
    report.end(root, &end, &meter)?;
    Ok(Some(report))
}

/// Lets the kernel do the rest in one go: what could not be taken apart, pages
/// with one mapping left, pages of zeroes, and KSM's records.
fn finish(root: &Root, job: &Job, report: &mut Report, json: bool) -> Result<()> {
    report.left_to_kernel = View::collect(root)?.scan.mappings.len() as u64 + report.zero_pages;
    if report.left_to_kernel > 0 && !json {
        output::print(&format!(
            "the kernel un-merges the other {} in one go, at no bounded rate: {} pages of zeroes, and what refused\n",
            report.left_to_kernel, report.zero_pages
        ))?;
    }
    // Where these pages come to be depends on who asks for them: on no node in particular.
    let _ = pagemap::prefer_nodes(&job.memory_nodes());
    ksmfs::Control::Run
        .write(root, 2)
        .context("the kernel could not un-merge the rest; what is un-merged stays so until ksmd comes by")
}
