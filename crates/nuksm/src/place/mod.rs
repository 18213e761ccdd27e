// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm place`: the placement daemon, for kernels that do not place pages
//! and for pages that were merged before they did.

mod cost;
mod executor;
mod homes;
mod pass;
mod report;
mod rescan;

pub use cost::{Meter, process_cpu_seconds};
pub use homes::Homes;
pub use pass::run as pass;
pub use report::Report;

use crate::cli::{PlaceArgs, PolicyName};
use crate::output;
use crate::privilege;
use crate::stop::Stop;
use crate::view;
use anyhow::{Context, Result, bail};
use ksmfs::Engine;
use numafs::{TaskStat, Topology};
use std::process::ExitCode;
use sysroot::Root;

/// Places pages, once or until asked to stop.
pub fn run(root: &Root, args: &PlaceArgs) -> Result<ExitCode> {
    let machine = Topology::read(root).context("cannot read the machine's nodes")?;
    if machine.nodes.iter().filter(|node| node.total_bytes > 0).count() < 2 {
        bail!("this machine has memory on one node only: every page is local already");
    }
    check(root, args)?;
    if let Some(note) = engine_note(Engine::read(root)?.as_ref(), args.policy) {
        eprintln!("nuksm: {note}");
    }
    let stop = Stop::on_signals()?;
    let mut homes = Homes::default();
    loop {
        let report = pass::run(root, args, &mut homes, &stop, |_, _| ())?;
        output::print_report(args.json, &report, report::Report::text)?;
        if args.once || args.dry_run || stop.wait(args.interval) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Says what is wrong before anything is touched. A single node is not: `serve`
/// moves nothing there, so that one configuration does for all hosts.
pub fn check(root: &Root, args: &PlaceArgs) -> Result<()> {
    view::require_ksm(root)?;
    for &pid in args.pid.iter().chain(&args.exclude) {
        if TaskStat::read(root, pid)?.is_none() {
            bail!("there is no process {pid}; `nuksm status` lists tenants and their pids");
        }
    }
    privilege::require(root, "placing pages", !args.dry_run)
}

/// What one should know when the kernel places pages, too.
fn engine_note(engine: Option<&Engine>, policy: PolicyName) -> Option<String> {
    let kernels = engine?.placement.as_ref()?.current.as_str();
    let ours = policy.as_str();
    if kernels == "first" {
        return None;
    }
    Some(if kernels == ours {
        format!(
            "this kernel places new merges by itself ({kernels}): only what was merged before is corrected"
        )
    } else {
        format!(
            "this kernel places new merges by itself, but as {kernels}, not as {ours}: the two work against \
             each other; `nuksm engine set placement={ours}` ends that, or `nuksm place --policy {kernels}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use std::fs;

    #[test]
    fn one_node_is_an_error_for_the_command_not_for_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("sys/kernel/mm/ksm/run", "1\n");
        file("proc/meminfo", "MemTotal: 1024 kB\nMemFree: 512 kB\n");
        file("proc/self/status", "CapEff:\t000001ffffffffff\n");
        let root = Root::at(dir.path());
        let Command::Place(args) = Cli::parse_from(["nuksm", "place", "--once"]).command else {
            panic!("another command");
        };
        check(&root, &args).unwrap();
        let message = run(&root, &args).unwrap_err().to_string();
        assert!(message.contains("one node only"), "{message}");
    }

    #[test]
    fn a_kernel_that_places_pages_is_worth_a_word_and_a_contradiction_more() {
        let note = |placement: Option<&str>, policy| {
            let placement = placement.map(|text| text.parse().unwrap());
            engine_note(Some(&Engine { placement, ..Engine::default() }), policy)
        };
        assert_eq!(engine_note(None, PolicyName::Fair), None);
        assert_eq!(note(None, PolicyName::Fair), None);
        assert_eq!(note(Some("[first] fair priority"), PolicyName::Priority), None);
        let same = note(Some("first [fair] priority"), PolicyName::Fair).unwrap();
        assert!(same.contains("(fair): only what was merged before"), "{same}");
        let other = note(Some("first [fair] priority"), PolicyName::Priority).unwrap();
        assert!(other.contains("as fair, not as priority: the two work against each other"), "{other}");
        assert!(other.contains("`nuksm engine set placement=priority`"), "{other}");
    }
}
