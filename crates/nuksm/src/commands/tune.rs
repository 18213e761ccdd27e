// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm tune`: ksmd as fast as it is worth, within what the operator allows.

use crate::shared::output;
use crate::shared::stop::Stop;
use crate::shared::tuning::{Change, Daemon, Original, Rule};
use crate::shared::view;
use anyhow::Result;
use clap::Args;
use log::warn;
use nuksm_sysroot::Root;
use std::process::ExitCode;

/// Let ksmd scan fast when memory is short or merging pays, slowly when not.
///
/// Runs until SIGINT or SIGTERM; then KSM's settings are again what they were
/// at the start (after a kill, --restore or the next `nuksm tune` sees to it).
/// Each --interval it looks at the memory available, at how many of the scanned
/// pages merged, and at ksmd's CPU time, sets `pages_to_scan` (and, where
/// --max-cpu demands it, `sleep_millisecs`), and says what it changed and
/// why. KSM itself is neither started nor stopped.
///
/// When the kernel's own advisor was on, it is off meanwhile, unless
/// --advisor says to steer it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  nuksm tune --max-cpu 10\n  nuksm tune --dry-run --interval 1s --json\n  nuksm tune --restore"
)]
pub struct TuneArgs {
    /// What is asked for.
    #[command(flatten)]
    pub rule: Rule,
    /// Give back the settings that a killed daemon left changed, and end.
    #[arg(long, exclusive = true)]
    pub restore: bool,
    /// Say what would be set, but set nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object per change, a line each.
    #[arg(long)]
    pub json: bool,
}

/// Tunes until asked to stop; then the settings are as they were before.
pub fn run(root: &Root, args: &TuneArgs) -> Result<ExitCode> {
    if args.restore {
        return restore(root);
    }
    let ksm = view::require_ksm(root)?;
    if ksm.run != Some(1) {
        warn!("KSM is stopped: speed will matter once `echo 1 > /sys/kernel/mm/ksm/run` has started it");
    }
    args.rule.check()?;
    let stop = Stop::on_signals()?;
    let mut daemon = Daemon::start(root, args.rule.clone(), args.dry_run)?;
    let worked = daemon.run(&stop, |change| {
        change.map_or(Ok(()), |change| output::print_report(args.json, change, Change::text))
    });
    let restored = daemon.restore();
    worked.and(restored)?;
    Ok(ExitCode::SUCCESS)
}

/// Gives back what a killed daemon left.
fn restore(root: &Root) -> Result<ExitCode> {
    if let Some(mut left) = Original::left(root)? {
        left.restore(root)?;
        output::print("KSM's settings are again what they were before the daemon that was killed\n")?;
    } else {
        output::print("no settings are left to give back\n")?;
    }
    Ok(ExitCode::SUCCESS)
}
