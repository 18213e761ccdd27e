// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm status`: KSM at a glance.

mod engine;

use crate::shared::options::seconds;
use crate::shared::output::{self, Table, bytes, known, line, percent};
use crate::shared::sample::Sample;
use crate::shared::stop::Stop;
use anyhow::Result;
use clap::Args;
use nuksm_sysroot::Root;
use std::process::ExitCode;
use std::time::Duration;

/// Show KSM's settings, savings and scan speed, and where merged pages are.
///
/// Savings are bytes freed less KSM's own records; zero pages stand apart.
/// Nodes and tenants (processes with mergeable memory; virtual machines,
/// containers and services by their names) need root.
#[derive(Debug, Args)]
#[command(after_help = "Example: nuksm status --watch 5s")]
pub struct StatusArgs {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Repeat every TIME (2s when none is given) until interrupted.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s", value_parser = seconds)]
    pub watch: Option<Duration>,
}

/// Prints the status, once or again and again.
pub fn run(root: &Root, args: &StatusArgs) -> Result<ExitCode> {
    let Some(interval) = args.watch else {
        output::print_report(args.json, &Sample::read(root, &|| false)?, |sample| text(sample, None))?;
        return Ok(ExitCode::SUCCESS);
    };
    let stop = Stop::on_signals()?;
    let mut before = None;
    loop {
        let sample = Sample::read(root, &|| false)?;
        if !args.json {
            output::clear_screen()?;
        }
        output::print_report(args.json, &sample, |sample| text(sample, before.as_ref()))?;
        before = Some(sample);
        if stop.wait(interval) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// The report for people; with `before`, rates since then.
fn text(status: &Sample, before: Option<&Sample>) -> String {
    let ksm = &status.ksm;
    let state = match ksm.run {
        Some(0) => "stopped",
        Some(1) => "merging",
        Some(2) => "stopped, everything un-merged",
        _ => "unknown",
    };
    let mut text = format!("KSM is {state} (Linux {})\n\nSavings\n", status.kernel);
    let size = |value: u64| bytes(i64::try_from(value).unwrap_or(i64::MAX));
    let shared =
        format!("{} pages are used at {} further places", known(ksm.pages_shared), known(ksm.pages_sharing));
    text += &line("saved", size(status.savings.saved_bytes), &shared);
    text += &line(
        "zero pages",
        size(status.savings.zero_page_saved_bytes),
        "mapped to the kernel's page of zeroes",
    );
    let metadata = status
        .savings
        .metadata_bytes
        .map_or_else(|| "-".into(), |value| bytes(0_i64.saturating_sub_unsigned(value)));
    text += &line("KSM's records", metadata, "");
    text += &line("net saved", status.savings.net_saved_bytes.map_or_else(|| "-".into(), bytes), "");

    text += "\nScan\n";
    text += &line("full scans", known(ksm.full_scans), "");
    let seconds = status.full_scan_seconds().map_or_else(|| "-".into(), |time| format!("{time:.1} s"));
    let rate =
        format!("at least, at {} pages per {} ms", known(ksm.pages_to_scan), known(ksm.sleep_millisecs));
    text += &line("one takes", seconds, &rate);
    if let Some(rate) = before.and_then(|before| status.pages_per_second(before)) {
        text += &line("pages/s", format!("{rate:.0}"), "since the last view");
    }
    if let Some(share) = before.and_then(|before| status.ksmd_cpu_share(before)) {
        text += &line("ksmd", format!("{:.1} %", share * 100.0), "of a CPU since the last view");
    }
    text += &line("not merged", known(ksm.pages_unshared), "pages that are unique");
    text += &line("changing", known(ksm.pages_volatile), "pages that change too fast");

    if let Some(engine) = &status.engine {
        text += &format!("\n{}", engine::report(engine, status, before));
    }
    if let Some(nodes) = &status.nodes {
        text += "\nNodes\n";
        let mut table = Table::new(1, ["node", "merged pages", "free"]);
        for row in nodes {
            table.row([row.node.to_string(), row.merged_pages.to_string(), size(row.free_bytes)]);
        }
        text += &table.render();
    }
    if let Some(tenants) = &status.tenants {
        text += "\nTenants\n";
        let mut table =
            Table::new(1, ["tenant", "pid", "node", "nice", "mappings", "local", "remote", "local %"]);
        for row in tenants {
            table.row([
                row.name.clone(),
                row.pid.to_string(),
                known(row.node),
                row.nice.to_string(),
                row.merged_mappings.to_string(),
                row.local_mappings.to_string(),
                row.remote_mappings.to_string(),
                percent(row.local_mappings, row.merged_mappings),
            ]);
        }
        text += &if tenants.is_empty() {
            "  none: no process has mergeable memory\n".into()
        } else {
            table.render()
        };
    }
    for note in &status.notes {
        text += &format!("\nNote: {note}\n");
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::sample::tests::sample;

    #[test]
    fn the_text_as_users_see_it() {
        let mut status = sample();
        status.place(&crate::shared::view::tests::view());
        let expected = "\
KSM is merging (Linux 6.12.0)

Savings
  saved               16.0 KiB  3 pages are used at 4 further places
  zero pages           8.0 KiB  mapped to the kernel's page of zeroes
  KSM's records       -0.6 KiB
  net saved           23.4 KiB

Scan
  full scans                12
  one takes              0.2 s  at least, at 100 pages per 20 ms
  not merged              1000  pages that are unique
  changing                   7  pages that change too fast

Nodes
  node  merged pages     free
  0                2  1.0 MiB
  1                1  1.0 MiB

Tenants
  tenant  pid  node  nice  mappings  local  remote  local %
  t10      10     0     0         4      2       2     50.0
  t11      11     1     0         2      0       2      0.0
  t12      12     1     0         1      1       0    100.0

Note: this kernel flags every anonymous page as KSM: pages that a fork shares in mergeable memory are counted as merged
";
        assert_eq!(text(&status, None), expected);
    }

    #[test]
    fn what_an_old_kernel_or_a_plain_user_cannot_see_is_not_zero() {
        let mut status = sample();
        status.savings.metadata_bytes = None;
        status.savings.net_saved_bytes = None;
        let shown = text(&status, None);
        assert!(shown.contains("net saved                  -\n"), "{shown}");
        assert!(!shown.contains("Nodes"), "{shown}");
        let json = serde_json::to_value(&status).unwrap();
        assert!(json["nodes"].is_null() && json["ksm"]["smart_scan"].is_null(), "{json}");
    }

    #[test]
    fn the_engine_has_a_section_where_there_is_one() {
        let stock = sample();
        assert!(!text(&stock, None).contains("Engine"), "{}", text(&stock, None));
        assert!(serde_json::to_value(&stock).unwrap()["engine"].is_null());

        let mut view = crate::shared::view::tests::view();
        view.tenants[0].ksm.merged_local = Some(4);
        let mut status = Sample { engine: Some(crate::shared::sample::tests::engine()), ..stock };
        status.place(&view);
        let shown = text(&status, None);
        assert!(shown.contains("\nEngine\n  index               checksum  16384 trees"), "{shown}");
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!((&json["engine"]["placement"], &json["engine"]["migrated"]), (&"fair".into(), &50.into()));
        let local = |tenant: usize| &json["tenants"][tenant]["ksm_merged_local"];
        assert_eq!((local(0), local(1)), (&4.into(), &serde_json::Value::Null));
    }
}
