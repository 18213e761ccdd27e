// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm place`: the placement daemon, for kernels that do not place pages
//! and for pages that were merged before they did.

use crate::shared::output;
use crate::shared::placing::{self, Homes, Kind, Report, Rule};
use crate::shared::stop::Stop;
use crate::shared::view::{self, View};
use anyhow::{Context, Result, bail};
use clap::Args;
use log::warn;
use nuksm_ksmfs::Engine;
use nuksm_numafs::Topology;
use nuksm_sysroot::Root;
use std::process::ExitCode;

/// Move merged pages to the nodes where their sharers should find them.
///
/// Runs until SIGINT or SIGTERM, a pass every --interval; --once does one
/// pass. Each pass looks at all shared pages, plans with as few moves as
/// possible, keeps to the free memory of each node (above its high
/// watermark), moves pages in batches at --rate, and reports what moved,
/// what the kernel refused, and each tenant's local share before and
/// after. Merging itself is left as it is, and so are KSM's settings.
///
/// A tenant is local to the node its threads are bound to or use most CPU
/// time on; when they wander, its pages follow after three passes.
///
/// One `nuksm place` (or `nuksm serve` with `[place]`) works at a time.
///
/// A page counts once for each tenant that maps it, however often; pages
/// that KSM has not merged are never touched.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  nuksm place --once --dry-run\n  nuksm place --policy priority --interval 30s --rate 128M\n  nuksm place --exclude 'db*' --exclude unit:nginx.service"
)]
pub struct PlaceArgs {
    /// How pages are to be placed.
    #[command(flatten)]
    pub rule: Rule,
    /// One pass, then end.
    #[arg(long, conflicts_with = "interval")]
    pub once: bool,
    /// Plan and report, but move nothing; one pass.
    #[arg(long, conflicts_with = "interval")]
    pub dry_run: bool,
    /// Print one JSON object per pass, a line each.
    #[arg(long)]
    pub json: bool,
}

/// Places pages, once or until asked to stop.
pub fn run(root: &Root, args: &PlaceArgs) -> Result<ExitCode> {
    let machine = Topology::read(root).context("cannot read the machine's nodes")?;
    if machine.nodes.iter().filter(|node| node.total_bytes > 0).count() < 2 {
        bail!("this machine has memory on one node only: every page is local already");
    }
    let kind = if args.dry_run {
        Kind::DryRun
    } else if args.once {
        Kind::Single
    } else {
        Kind::Repeated
    };
    let rule = args.rule.check(root, kind != Kind::DryRun)?;
    if let Some(note) = placing::engine_note(Engine::read(root)?.as_ref(), args.rule.policy) {
        warn!("{note}");
    }
    let _lock = (kind != Kind::DryRun).then(|| Rule::lock(root)).transpose()?;
    let stop = Stop::on_signals()?;
    let mut homes = Homes::default();
    let mut is_first = true;
    loop {
        let looked = |view: &View, _| {
            if std::mem::take(&mut is_first) {
                for word in rule.means_nobody(&view.tenants) {
                    warn!("{word} is no tenant now: `nuksm status` lists their names");
                }
            }
        };
        let report = match placing::pass(root, &rule, kind, &mut homes, &stop, looked) {
            Err(error) if view::was_stopped(&error) => return Ok(ExitCode::SUCCESS),
            report => report?,
        };
        output::print_report(args.json, &report, Report::text)?;
        if kind != Kind::Repeated || stop.wait(args.rule.interval.duration()) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tree::tree;

    #[test]
    fn one_node_is_an_error_for_the_command_not_for_the_daemon() {
        let (_dir, root) = tree(&[
            ("sys/kernel/mm/ksm/run", "1\n"),
            ("proc/meminfo", "MemTotal: 1024 kB\nMemFree: 512 kB\n"),
            ("proc/self/status", "CapEff:\t000001ffffffffff\n"),
        ]);
        let args = PlaceArgs { rule: Rule::default(), once: true, dry_run: false, json: false };
        args.rule.check(&root, true).unwrap();
        let message = run(&root, &args).unwrap_err().to_string();
        assert!(message.contains("one node only"), "{message}");
    }
}
