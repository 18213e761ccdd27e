// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm status`: KSM at a glance.

use crate::cli::StatusArgs;
use crate::engine;
use crate::output::{self, Table, bytes, known, line, percent};
use crate::privilege;
use crate::stop::Stop;
use crate::view::{self, View};
use anyhow::Result;
use ksmfs::{Engine, Ksm};
use model::Savings;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Instant;
use sysroot::Root;

#[derive(Debug, Serialize)]
struct Status {
    kernel: String,
    ksm: Ksm,
    /// `None` on a stock kernel.
    engine: Option<Engine>,
    savings: Savings,
    scan: ScanReport,
    /// `None` when this user may not see where pages are.
    nodes: Option<Vec<NodeRow>>,
    tenants: Option<Vec<TenantRow>>,
    /// What cannot be shown, and why.
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ScanReport {
    full_scans: Option<u64>,
    /// At least, at today's `pages_to_scan` and `sleep_millisecs`.
    full_scan_seconds: Option<f64>,
    /// Pages ksmd looked at per second since the last line (`--watch`).
    pages_per_second: Option<f64>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    node: u32,
    /// Merged pages with several users that are here.
    merged_pages: u64,
    free_bytes: u64,
}

#[derive(Debug, Serialize)]
struct TenantRow {
    pid: u32,
    name: String,
    node: Option<u32>,
    nice: i32,
    merged_pages: u64,
    local_pages: u64,
    remote_pages: u64,
    /// The engine's own count: merged pages on the node where the tenant's copy
    /// was before merging, and elsewhere.
    ksm_merged_local: Option<u64>,
    ksm_merged_remote: Option<u64>,
}

/// Prints the status, once or again and again.
pub fn run(root: &Root, args: &StatusArgs) -> Result<ExitCode> {
    let Some(interval) = args.watch else {
        output::print_report(args.json, &Status::read(root, None)?, Status::text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let stop = Stop::on_signals()?;
    let mut before = None;
    loop {
        let now = Instant::now();
        let status = Status::read(root, before)?;
        before = status.ksm.pages_scanned.map(|pages| (now, pages));
        if !args.json {
            // Clear the screen and go to its top left corner.
            output::print("\x1b[2J\x1b[H")?;
        }
        output::print_report(args.json, &status, Status::text)?;
        if stop.wait(interval) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

impl Status {
    /// `before`: when the last status was read, and `pages_scanned` then.
    fn read(root: &Root, before: Option<(Instant, u64)>) -> Result<Self> {
        let ksm = view::require_ksm(root)?;
        let sharing = ksm.pages_sharing.unwrap_or(0);
        let savings =
            Savings::new(sharing, ksm.ksm_zero_pages.unwrap_or(0), ksm.general_profit, pagemap::page_size());
        let mut status = Self {
            kernel: root.text("proc/sys/kernel/osrelease")?.unwrap_or_default().trim().to_owned(),
            scan: ScanReport::new(&ksm, before),
            savings,
            ksm,
            engine: Engine::read(root)?,
            nodes: None,
            tenants: None,
            notes: Vec::new(),
        };
        let missing = privilege::missing(root, false)?;
        if missing.is_empty() {
            status.place(&View::collect(root)?);
        } else {
            let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
            status
                .notes
                .push(format!("nodes and tenants are not shown: {} needed, run as root", names.join(", ")));
        }
        Ok(status)
    }

    /// Adds where the pages are.
    fn place(&mut self, view: &View) {
        let counts = view.pages_per_node();
        let nodes = view.machine.nodes.iter().filter(|node| node.total_bytes > 0).map(|node| NodeRow {
            node: node.id,
            merged_pages: counts.get(&node.id).copied().unwrap_or(0),
            free_bytes: node.free_bytes,
        });
        self.nodes = Some(nodes.collect());
        let tenants =
            view.tenants.iter().zip(view.tenant_pages(&view.pages)).map(|(tenant, pages)| TenantRow {
                pid: tenant.pid,
                name: tenant.name.clone(),
                node: tenant.node,
                nice: tenant.nice,
                merged_pages: pages.merged,
                local_pages: pages.local,
                remote_pages: pages.merged - pages.local,
                ksm_merged_local: tenant.ksm.merged_local,
                ksm_merged_remote: tenant.ksm.merged_remote,
            });
        self.tenants = Some(tenants.collect());
        if !view.ksm_flag_reliable {
            self.notes.push(
                "this kernel flags every anonymous page as KSM: pages that a fork shares in mergeable memory \
                 are counted as merged"
                    .into(),
            );
        }
    }

    fn text(&self) -> String {
        let ksm = &self.ksm;
        let state = match ksm.run {
            Some(0) => "stopped",
            Some(1) => "merging",
            Some(2) => "stopped, everything un-merged",
            _ => "unknown",
        };
        let mut text = format!("KSM is {state} (Linux {})\n\nSavings\n", self.kernel);
        let size = |value: u64| bytes(i64::try_from(value).unwrap_or(i64::MAX));
        let shared = format!(
            "{} pages are used at {} further places",
            known(ksm.pages_shared),
            known(ksm.pages_sharing)
        );
        text += &line("merged", size(self.savings.merged_bytes), &shared);
        text +=
            &line("zero pages", size(self.savings.zero_page_bytes), "mapped to the kernel's page of zeroes");
        let metadata = self
            .savings
            .metadata_bytes
            .map_or_else(|| "-".into(), |value| bytes(0_i64.saturating_sub_unsigned(value)));
        text += &line("KSM's records", metadata, "");
        text += &line("net", self.savings.net_bytes.map_or_else(|| "-".into(), bytes), "");

        text += "\nScan\n";
        text += &line("full scans", known(self.scan.full_scans), "");
        let seconds = self.scan.full_scan_seconds.map_or_else(|| "-".into(), |time| format!("{time:.1} s"));
        let rate =
            format!("at least, at {} pages per {} ms", known(ksm.pages_to_scan), known(ksm.sleep_millisecs));
        text += &line("one takes", seconds, &rate);
        if let Some(rate) = self.scan.pages_per_second {
            text += &line("pages/s", format!("{rate:.0}"), "since the last view");
        }
        text += &line("not merged", known(ksm.pages_unshared), "pages that are unique");
        text += &line("changing", known(ksm.pages_volatile), "pages that change too fast");

        if let Some(engine) = &self.engine {
            text += &format!("\n{}", engine::report(engine));
        }
        if let Some(nodes) = &self.nodes {
            text += "\nNodes\n";
            let mut table = Table::new(1, ["node", "merged pages", "free"]);
            for row in nodes {
                table.row([row.node.to_string(), row.merged_pages.to_string(), size(row.free_bytes)]);
            }
            text += &table.render();
        }
        if let Some(tenants) = &self.tenants {
            text += "\nTenants\n";
            let mut table = Table::new(
                1,
                ["tenant", "pid", "node", "nice", "merged pages", "local", "remote", "local %"],
            );
            for row in tenants {
                table.row([
                    row.name.clone(),
                    row.pid.to_string(),
                    known(row.node),
                    row.nice.to_string(),
                    row.merged_pages.to_string(),
                    row.local_pages.to_string(),
                    row.remote_pages.to_string(),
                    percent(row.local_pages, row.merged_pages),
                ]);
            }
            text += &if tenants.is_empty() {
                "  none: no process has mergeable memory\n".into()
            } else {
                table.render()
            };
        }
        for note in &self.notes {
            text += &format!("\nNote: {note}\n");
        }
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

impl ScanReport {
    fn new(ksm: &Ksm, before: Option<(Instant, u64)>) -> Self {
        let tracked = [ksm.pages_shared, ksm.pages_sharing, ksm.pages_unshared, ksm.pages_volatile];
        let tracked = tracked.into_iter().flatten().sum();
        let seconds = ksm.pages_to_scan.zip(ksm.sleep_millisecs);
        let pages_per_second = before.zip(ksm.pages_scanned).map(|((then, pages), now)| {
            now.saturating_sub(pages) as f64 / then.elapsed().as_secs_f64().max(f64::EPSILON)
        });
        Self {
            full_scans: ksm.full_scans,
            full_scan_seconds: seconds
                .and_then(|(pages, sleep)| model::full_scan_seconds(tracked, pages, sleep)),
            pages_per_second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let ksm = Ksm {
            run: Some(1),
            pages_to_scan: Some(100),
            sleep_millisecs: Some(20),
            pages_shared: Some(3),
            pages_sharing: Some(4),
            pages_unshared: Some(1_000),
            pages_volatile: Some(7),
            full_scans: Some(12),
            ksm_zero_pages: Some(2),
            general_profit: Some(4096 * 6 - 640),
            ..Ksm::default()
        };
        let savings = Savings::new(4, 2, ksm.general_profit, 4096);
        Status {
            kernel: "6.12.0".into(),
            scan: ScanReport::new(&ksm, None),
            savings,
            ksm,
            engine: None,
            nodes: None,
            tenants: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_text_as_users_see_it() {
        let mut status = status();
        status.place(&crate::view::tests::view());
        let expected = "\
KSM is merging (Linux 6.12.0)

Savings
  merged              16.0 KiB  3 pages are used at 4 further places
  zero pages           8.0 KiB  mapped to the kernel's page of zeroes
  KSM's records       -0.6 KiB
  net                 23.4 KiB

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
  tenant  pid  node  nice  merged pages  local  remote  local %
  t10      10     0     0             4      2       2     50.0
  t11      11     1     0             2      0       2      0.0
  t12      12     1     0             1      1       0    100.0

Note: this kernel flags every anonymous page as KSM: pages that a fork shares in mergeable memory are counted as merged
";
        assert_eq!(status.text(), expected);
    }

    #[test]
    fn what_an_old_kernel_or_a_plain_user_cannot_see_is_not_zero() {
        let mut status = status();
        status.savings.metadata_bytes = None;
        status.savings.net_bytes = None;
        let text = status.text();
        assert!(text.contains("net                        -\n"), "{text}");
        assert!(!text.contains("Nodes"), "{text}");
        let json = serde_json::to_value(&status).unwrap();
        assert!(json["nodes"].is_null() && json["ksm"]["smart_scan"].is_null(), "{json}");
    }

    #[test]
    fn the_engine_has_a_section_where_there_is_one() {
        let stock = status();
        assert!(!stock.text().contains("Engine"), "{}", stock.text());
        assert!(serde_json::to_value(&stock).unwrap()["engine"].is_null());

        let mut view = crate::view::tests::view();
        view.tenants[0].ksm.merged_local = Some(4);
        let mut status = Status { engine: Some(crate::engine::tests::engine()), ..stock };
        status.place(&view);
        let text = status.text();
        assert!(text.contains("\nEngine\n  index               checksum  16384 trees"), "{text}");
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!((&json["engine"]["placement"], &json["engine"]["migrated"]), (&"fair".into(), &50.into()));
        let local = |tenant: usize| &json["tenants"][tenant]["ksm_merged_local"];
        assert_eq!((local(0), local(1)), (&4.into(), &serde_json::Value::Null));
    }
}
