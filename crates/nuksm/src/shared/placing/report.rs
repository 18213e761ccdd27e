// SPDX-License-Identifier: GPL-2.0-only
//! What a pass did, for people and for programs.

use crate::shared::output::{Table, bytes, known, percent};
use nuksm_pagemap::Refusal;
use serde::Serialize;
use std::collections::BTreeMap;

/// One pass of `nuksm place`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// `fair` or `priority`.
    pub policy: &'static str,
    /// Nothing was to be moved.
    pub dry_run: bool,
    /// The pass was asked to end before all was done.
    pub interrupted: bool,
    /// Pages of mergeable memory that were looked at.
    pub pages_looked_at: u64,
    /// Merged pages with several mappings that were found.
    pub merged_pages: u64,
    /// Pages that were to move.
    pub planned: u64,
    /// Pages that moved.
    pub moved: u64,
    /// Pages that did not move: busy, denied, no memory, no answer.
    pub refused: u64,
    /// Pages that were un-merged, or whose process ended, before their turn.
    pub vanished: u64,
    /// Pages by the reason why they did not move.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Pages that stay where they are because their node is full.
    pub no_room: u64,
    /// Why nothing was to move, where it was not known what may.
    pub held_back: Option<String>,
    /// Why nothing was to move, where the kernel sees to it.
    pub left_to_kernel: Option<String>,
    /// CPU time of the pass.
    pub cpu_seconds: f64,
    /// Duration of the pass, waiting for `--rate` included.
    pub wall_seconds: f64,
    /// The most memory this process ever had resident.
    pub peak_memory_bytes: u64,
    /// Each tenant before and after.
    pub tenants: Vec<TenantRow>,
}

/// A tenant in the report.
#[derive(Debug, Clone, Serialize)]
pub struct TenantRow {
    /// Process number.
    pub pid: u32,
    /// Virtual machine, container, service or program.
    pub name: String,
    /// The node it runs on.
    pub node: Option<u32>,
    /// Nice value.
    pub nice: i32,
    /// Places in its memory that map a merged page.
    pub merged_mappings: u64,
    /// Those of them with a page on its node, before the pass.
    pub local_before: u64,
    /// The same after the pass; in a dry run, as it would be.
    pub local_after: u64,
}

impl Report {
    /// Counts a page that did not move.
    pub fn count_refusal(&mut self, refusal: Refusal) {
        *self.refusals.entry(refusal.as_str()).or_default() += 1;
        match refusal {
            Refusal::Busy | Refusal::Denied | Refusal::NoMemory | Refusal::NoAnswer => self.refused += 1,
            Refusal::Unmerged | Refusal::Exited => self.vanished += 1,
        }
    }

    /// Is all where it should be? What was to be moved, had no room, or was held back
    /// may take another pass.
    pub fn is_settled(&self) -> bool {
        self.planned + self.no_room == 0 && self.held_back.is_none()
    }

    /// A few lines and a table.
    pub fn text(&self) -> String {
        let verb = if self.dry_run { "to move" } else { "moved" };
        let count = if self.dry_run { self.planned } else { self.moved };
        let mut text = format!(
            "{}: {} merged pages, {count} {verb}, {} refused, {} vanished, {} without room\n",
            self.policy, self.merged_pages, self.refused, self.vanished, self.no_room
        );
        if !self.refusals.is_empty() {
            let reasons: Vec<String> =
                self.refusals.iter().map(|(reason, pages)| format!("{reason} {pages}")).collect();
            text += &format!("  not moved: {}\n", reasons.join(", "));
        }
        if let Some(why) = self.held_back.as_ref().or(self.left_to_kernel.as_ref()) {
            text += &format!("  nothing moves: {why}\n");
        }
        if self.interrupted {
            text += &format!(
                "  interrupted: {} of {} done\n",
                self.moved + self.refused + self.vanished,
                self.planned
            );
        }
        let peak = bytes(i64::try_from(self.peak_memory_bytes).unwrap_or(i64::MAX));
        text += &format!(
            "  cost: {:.2} s of CPU in {:.2} s, {} pages looked at, {peak} of memory\n",
            self.cpu_seconds, self.wall_seconds, self.pages_looked_at
        );
        if self.tenants.is_empty() {
            return text;
        }
        let after = if self.dry_run { "local % then" } else { "local % now" };
        let mut table = Table::new(1, ["tenant", "pid", "node", "nice", "mappings", "local % before", after]);
        for row in &self.tenants {
            table.row([
                row.name.clone(),
                row.pid.to_string(),
                known(row.node),
                row.nice.to_string(),
                row.merged_mappings.to_string(),
                percent(row.local_before, row.merged_mappings),
                percent(row.local_after, row.merged_mappings),
            ]);
        }
        text + &table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_planned_or_lacked_anything_is_not_the_last() {
        assert!(Report { merged_pages: 9, ..Report::default() }.is_settled());
        assert!(!Report { planned: 1, moved: 1, ..Report::default() }.is_settled());
        assert!(!Report { no_room: 1, ..Report::default() }.is_settled());
        let left = Report { left_to_kernel: Some("so".into()), ..Report::default() };
        assert!(
            left.is_settled() && left.text().contains("\n  nothing moves: so\n"),
            "until a counter changes"
        );
        let held_back = Report { held_back: Some("for this test".into()), ..Report::default() };
        assert!(!held_back.is_settled() && held_back.text().contains("\n  nothing moves: for this test\n"));
    }

    #[test]
    fn the_text_as_users_see_it() {
        let tenant = |name: &str, pid, node, local_before| TenantRow {
            pid,
            name: name.into(),
            node: Some(node),
            nice: 0,
            merged_mappings: 100,
            local_before,
            local_after: 50,
        };
        let report = Report {
            policy: "fair",
            pages_looked_at: 240,
            merged_pages: 100,
            planned: 53,
            moved: 50,
            refused: 1,
            vanished: 2,
            refusals: BTreeMap::from([("busy", 1), ("unmerged", 2)]),
            cpu_seconds: 0.125,
            wall_seconds: 1.5,
            peak_memory_bytes: 3 << 20,
            tenants: vec![tenant("db", 7, 0, 100), tenant("db2", 8, 1, 0)],
            ..Report::default()
        };
        let expected = "\
fair: 100 merged pages, 50 moved, 1 refused, 2 vanished, 0 without room
  not moved: busy 1, unmerged 2
  cost: 0.12 s of CPU in 1.50 s, 240 pages looked at, 3.0 MiB of memory
  tenant  pid  node  nice  mappings  local % before  local % now
  db        7     0     0       100           100.0         50.0
  db2       8     1     0       100             0.0         50.0
";
        assert_eq!(report.text(), expected);
        let dry = Report { dry_run: true, interrupted: true, ..report };
        assert!(dry.text().contains("53 to move"), "{}", dry.text());
        assert!(dry.text().contains("interrupted: 53 of 53 done"), "{}", dry.text());
    }
}
