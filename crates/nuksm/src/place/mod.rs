// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm place`: the placement daemon for stock kernels.

mod cost;
mod executor;
mod homes;
mod pass;
mod report;
mod rescan;

use crate::cli::PlaceArgs;
use crate::output;
use crate::privilege;
use crate::stop::Stop;
use crate::view;
use anyhow::{Context, Result, bail};
use homes::Homes;
use numafs::{TaskStat, Topology};
use std::process::ExitCode;
use sysroot::Root;

/// Places pages, once or until asked to stop.
pub fn run(root: &Root, args: &PlaceArgs) -> Result<ExitCode> {
    check(root, args)?;
    let stop = Stop::on_signals()?;
    let mut homes = Homes::default();
    loop {
        let report = pass::run(root, args, &mut homes, &stop)?;
        output::print_report(args.json, &report, report::Report::text)?;
        if args.once || args.dry_run || stop.wait(args.interval) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Says what is wrong before anything is touched.
fn check(root: &Root, args: &PlaceArgs) -> Result<()> {
    view::require_ksm(root)?;
    let machine = Topology::read(root).context("cannot read the machine's nodes")?;
    if machine.nodes.iter().filter(|node| node.total_bytes > 0).count() < 2 {
        bail!("this machine has memory on one node only: every page is local already");
    }
    for &pid in args.pid.iter().chain(&args.exclude) {
        if TaskStat::read(root, pid)?.is_none() {
            bail!("there is no process {pid}; `nuksm status` lists tenants and their pids");
        }
    }
    privilege::require(root, "placing pages", !args.dry_run)
}
