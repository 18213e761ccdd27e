// SPDX-License-Identifier: GPL-2.0-only
//! What un-merging costs and what became of it, for people and for programs.

use super::args::UnmergeArgs;
use super::job::Job;
use crate::shared::cost::Meter;
use crate::shared::output::{Table, bytes};
use anyhow::Result;
use nuksm_ksmfs::Ksm;
use nuksm_pagemap::{Outcome, Refusal};
use nuksm_sysroot::Root;
use serde::Serialize;
use std::collections::BTreeMap;

/// The cost, and then what was done.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Nothing was to be un-merged.
    pub dry_run: bool,
    /// The only process, with `--pid`.
    pub pid: Option<u32>,
    /// Mappings of merged pages that are to get pages of their own.
    pub mappings: u64,
    /// By how many pages the memory in use grows, pages of zeroes included.
    pub growth: u64,
    /// Pages of zeroes that get memory again (not with `--pid`).
    pub zero_pages: u64,
    /// Mappings that KSM counts and no tenant in sight has (not with `--pid`): the
    /// kernel un-merges them in one go, wherever it finds memory.
    pub out_of_sight: u64,
    /// Pages by which all nodes together have too few for pages of zeroes and
    /// mappings out of sight.
    pub missing: u64,
    /// The cost by node.
    pub nodes: Vec<NodeRow>,
    /// Memory cgroups that have a limit and pay for copies.
    pub cgroups: Vec<CgroupRow>,
    /// Mappings that got a page of their own.
    pub unmerged: u64,
    /// Mappings that kept the merged page, by reason.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Mappings left to the kernel's own un-merging in one go.
    pub left_to_kernel: u64,
    /// `finished`, `refused`, `interrupted`, `no_room`, `not_offered`; `None` when nothing was begun.
    pub end: Option<&'static str>,
    /// KSM's `run` now.
    pub run: Option<u64>,
    /// CPU time of this process.
    pub cpu_seconds: f64,
    /// Duration, waiting for `--rate` included.
    pub wall_seconds: f64,
    #[serde(skip)]
    pub(super) remark: String,
}

/// The cost to a node, in pages.
#[derive(Debug, Clone, Serialize)]
pub struct NodeRow {
    /// Number of the node.
    pub node: u32,
    /// Copies that are made here.
    pub copies: u64,
    /// Merged pages here that are freed.
    pub freed: u64,
    /// The most that is taken at any moment.
    pub peak: u64,
    /// Pages that programs can still take there: `nuksm_numafs::Node::room_pages`.
    pub free: u64,
    /// Pages that are too few.
    pub missing: u64,
}

/// The cost to a memory cgroup, in pages.
#[derive(Debug, Clone, Serialize)]
pub struct CgroupRow {
    /// Its path.
    pub cgroup: String,
    /// Copies that it pays for.
    pub copies: u64,
    /// Pages below its limit.
    pub room: u64,
}

fn size(pages: u64) -> String {
    bytes(i64::try_from(pages * nuksm_pagemap::page_size()).unwrap_or(i64::MAX))
}

/// How the work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Every mapping had its turn.
    Finished,
    /// Every mapping had its turn, and some are still merged.
    Refused,
    /// A signal came.
    Interrupted,
    /// Something else took the room meanwhile: what, in a sentence's second half.
    NoRoom(String),
    /// This kernel lets a shared page be read without un-merging it.
    NotOffered,
}

impl Report {
    /// The cost of a job.
    pub fn new(root: &Root, job: &Job, args: &UnmergeArgs) -> Result<Self> {
        let cost = job.cost();
        let ksm = Ksm::read(root)?.unwrap_or_default();
        let mut free = BTreeMap::new();
        let mut nodes = Vec::new();
        for node in job.view.machine.nodes.iter().filter(|node| node.total_bytes > 0) {
            free.insert(node.id, node.room_pages);
            let cost = cost.nodes.get(&node.id).copied().unwrap_or_default();
            let missing = cost.missing(node.room_pages);
            let (copies, freed, peak) = (cost.copies, cost.freed, cost.peak);
            nodes.push(NodeRow { node: node.id, copies, freed, peak, free: node.room_pages, missing });
        }
        let (zero_pages, out_of_sight) = match args.pid {
            None => (ksm.ksm_zero_pages.unwrap_or(0), job.view.out_of_sight(&ksm)),
            Some(_) => (0, 0),
        };
        let cgroups = job.cgroups(root)?.into_iter();
        Ok(Self {
            dry_run: args.dry_run,
            pid: args.pid,
            mappings: cost.copies(),
            growth: cost.growth() + zero_pages,
            zero_pages,
            out_of_sight,
            missing: zero_pages.saturating_add(out_of_sight).saturating_sub(cost.spare(&free)),
            nodes,
            cgroups: cgroups.map(|(cgroup, copies, room)| CgroupRow { cgroup, copies, room }).collect(),
            run: ksm.run,
            ..Self::default()
        })
    }

    /// Who has too little memory, and how much too little.
    pub fn lacks(&self) -> Vec<String> {
        let nodes = self.nodes.iter().filter(|row| row.missing > 0).map(|row| {
            format!(
                "node {} lacks {} ({} needed, {} free above its high watermark)",
                row.node,
                size(row.missing),
                size(row.peak),
                size(row.free)
            )
        });
        let cgroups = self.cgroups.iter().filter(|row| row.copies > row.room).map(|row| {
            format!(
                "memory cgroup /{} lacks {} ({} needed, {} left below its memory.max)",
                row.cgroup,
                size(row.copies - row.room),
                size(row.copies),
                size(row.room)
            )
        });
        let at_once = (self.missing > 0).then(|| {
            let out_of_sight = match self.out_of_sight {
                0 => String::new(),
                mappings => format!(" and {} that KSM counts for no tenant in sight", size(mappings)),
            };
            format!(
                "all nodes together lack {} for {} of zeroes{out_of_sight}",
                size(self.missing),
                size(self.zero_pages)
            )
        });
        nodes.chain(cgroups).chain(at_once).collect()
    }

    /// Counts what became of a mapping.
    pub fn count(&mut self, outcome: Outcome) {
        match outcome {
            Ok(()) => self.unmerged += 1,
            Err(refusal) => self.count_all(1, refusal),
        }
    }

    /// Counts mappings that all met the same refusal.
    pub fn count_all(&mut self, mappings: usize, refusal: Refusal) {
        if mappings > 0 {
            *self.refusals.entry(refusal.as_str()).or_default() += mappings as u64;
        }
    }

    /// Mappings that were read and yet not un-merged.
    pub fn kept(&self) -> u64 {
        self.refusals.get(Refusal::Busy.as_str()).copied().unwrap_or(0)
    }

    /// Mappings that are still merged, though their turn came.
    pub fn refused(&self) -> u64 {
        let refusals =
            [Refusal::Busy, Refusal::Denied, Refusal::NoMemory, Refusal::NoAnswer].map(Refusal::as_str);
        refusals.iter().filter_map(|reason| self.refusals.get(reason)).sum()
    }

    /// What it will cost.
    pub fn cost_text(&self) -> String {
        let whose = self.pid.map_or_else(String::new, |pid| format!(" of process {pid}"));
        let mut text =
            format!("un-merging {} mappings{whose} takes {} more memory\n", self.mappings, size(self.growth));
        let mut table =
            Table::new(1, ["node", "copies", "freed", "at most", "free above watermark", "lacking"]);
        for row in &self.nodes {
            let lacking = if row.missing > 0 { size(row.missing) } else { "-".into() };
            let cells = [row.copies, row.freed, row.peak, row.free].map(size);
            table.row([row.node.to_string()].into_iter().chain(cells).chain([lacking]));
        }
        text += &table.render();
        if self.zero_pages > 0 {
            text += &format!("  and {} of zeroes, on any node\n", size(self.zero_pages));
        }
        if self.out_of_sight > 0 {
            text += &format!(
                "  and up to {} that KSM counts for no tenant in sight, on any node and at no bounded rate: of \
                 processes that ended since ksmd came by, or that are in another PID namespace\n",
                size(self.out_of_sight)
            );
        }
        text
    }

    /// Notes how the work ended, and what state KSM is in.
    pub fn end(&mut self, root: &Root, end: &End, meter: &Meter) -> Result<()> {
        self.run = Ksm::read(root)?.and_then(|ksm| ksm.run);
        self.cpu_seconds = meter.cpu_seconds();
        self.wall_seconds = meter.wall_seconds();
        let (word, what) = match end {
            End::Finished => ("finished", "done".into()),
            End::Refused => ("refused", self.refused_text()),
            End::Interrupted => {
                ("interrupted", "interrupted; `nuksm unmerge` goes on where this ended".into())
            }
            End::NoRoom(why) => ("no_room", format!("ended early: {why}")),
            End::NotOffered => {
                let force = if self.pid.is_none() { "; --force lets it un-merge all in one go" } else { "" };
                let what = "this kernel cannot un-merge page by page from outside: Linux 5.19 can, with \
                            CONFIG_CROSS_MEMORY_ATTACH";
                ("not_offered", format!("{what}{force}"))
            }
        };
        self.end = Some(word);
        let state = match (self.pid, self.run) {
            (Some(_), Some(1)) => {
                "ksmd is running and merges these pages again when it comes by: \
                 `echo 0 > /sys/kernel/mm/ksm/run` stops it"
            }
            (Some(_), _) => "ksmd is not running, as before",
            (None, Some(2)) => "KSM is stopped (run is 2): `echo 1 > /sys/kernel/mm/ksm/run` starts it again",
            (None, _) => {
                "KSM is stopped (run is 0), the rest is still merged: `echo 1 > /sys/kernel/mm/ksm/run` \
                 merges again"
            }
        };
        self.remark = format!("{what}\n{state}\n");
        Ok(())
    }

    /// What to do about what refused.
    fn refused_text(&self) -> String {
        let remedies = [
            (
                Refusal::Busy,
                "busy pages are pinned: stop what uses them directly, such as a device, and run this again",
            ),
            (
                Refusal::Denied,
                "denied is memory that its process may not read itself, or that a security module guards",
            ),
            (Refusal::NoMemory, "no_memory is a limit that was met meanwhile: raise it and run this again"),
            (
                Refusal::NoAnswer,
                "no_answer is memory that its process keeps locked, or a file system that does not answer: end \
                 that process and run this again",
            ),
        ];
        let met = remedies.iter().filter(|(refusal, _)| self.refusals.contains_key(refusal.as_str()));
        let met: Vec<&str> = met.map(|(_, remedy)| *remedy).collect();
        let force = if self.pid.is_none() { "; --force lets the kernel un-merge them in one go" } else { "" };
        format!("{} mappings are still merged: {}{force}", self.refused(), met.join("; "))
    }

    /// Is everything un-merged that was to be?
    pub fn is_finished(&self) -> bool {
        self.end == Some("finished")
    }

    /// What became of it.
    pub fn result_text(&self) -> String {
        let mut text = format!("{} of {} mappings un-merged", self.unmerged, self.mappings);
        for (reason, mappings) in &self.refusals {
            text += &format!(", {reason} {mappings}");
        }
        text += &format!("; {:.2} s of CPU in {:.2} s\n{}", self.cpu_seconds, self.wall_seconds, self.remark);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let row =
            |node, copies, freed, peak, missing| NodeRow { node, copies, freed, peak, free: 512, missing };
        Report {
            mappings: 2_048,
            growth: 1_024,
            nodes: vec![row(0, 1_024, 1_024, 1, 0), row(1, 1_024, 0, 1_024, 512)],
            cgroups: vec![CgroupRow { cgroup: "db.slice".into(), copies: 1_024, room: 768 }],
            ..Report::default()
        }
    }

    #[test]
    fn the_cost_as_users_see_it() {
        if nuksm_pagemap::page_size() != 4096 {
            return;
        }
        let expected = "\
un-merging 2048 mappings takes 4.0 MiB more memory
  node   copies    freed  at most  free above watermark  lacking
  0     4.0 MiB  4.0 MiB  4.0 KiB               2.0 MiB        -
  1     4.0 MiB  0.0 KiB  4.0 MiB               2.0 MiB  2.0 MiB
";
        assert_eq!(report().cost_text(), expected);
    }

    #[test]
    fn a_refusal_names_who_lacks_how_much() {
        if nuksm_pagemap::page_size() != 4096 {
            return;
        }
        let lacks = report().lacks();
        assert_eq!(lacks[0], "node 1 lacks 2.0 MiB (4.0 MiB needed, 2.0 MiB free above its high watermark)");
        assert!(lacks[1].starts_with("memory cgroup /db.slice lacks 1.0 MiB ("), "{lacks:?}");
        let zeroes = Report { zero_pages: 512, missing: 256, ..Report::default() };
        assert_eq!(zeroes.lacks(), ["all nodes together lack 1.0 MiB for 2.0 MiB of zeroes"]);
        let hidden = Report { out_of_sight: 256, ..zeroes };
        assert_eq!(
            hidden.lacks(),
            [
                "all nodes together lack 1.0 MiB for 2.0 MiB of zeroes and 1.0 MiB that KSM counts for no tenant \
                 in sight"
            ]
        );
        assert!(hidden.cost_text().contains("and up to 1.0 MiB that KSM counts for no tenant in sight"));
    }

    #[test]
    fn what_is_out_of_sight_has_to_fit_unless_one_process_is_meant() {
        let dir = tempfile::tempdir().unwrap();
        let ksm = dir.path().join("sys/kernel/mm/ksm");
        std::fs::create_dir_all(&ksm).unwrap();
        let view = crate::shared::view::tests::view();
        let root = Root::at(dir.path());
        // Both nodes have room for 250 pages each; 4 pages more are in use afterwards.
        let lacking = |sharing: &str, pid| {
            std::fs::write(ksm.join("pages_sharing"), sharing).unwrap();
            let args =
                UnmergeArgs { dry_run: false, pid, rate: "1".parse().unwrap(), force: false, json: false };
            let report = Report::new(&root, &Job::new(&root, &view, pid, &|| false).unwrap(), &args).unwrap();
            (report.out_of_sight, report.missing, report.lacks().len())
        };
        assert_eq!(lacking("503", None), (496, 0, 0));
        assert_eq!(lacking("510", None), (503, 7, 1));
        assert_eq!(lacking("510", Some(10)), (0, 0, 0));
    }

    #[test]
    fn what_is_still_merged_is_counted_and_explained_and_what_is_gone_is_not() {
        let mut report = report();
        report.count_all(5, Refusal::Exited);
        report.count_all(4, Refusal::Unmerged);
        assert_eq!(report.refused(), 0);
        report.count_all(3, Refusal::Denied);
        report.count_all(2, Refusal::Busy);
        assert_eq!(report.refused(), 5);
        let text = report.refused_text();
        assert!(text.starts_with("5 mappings are still merged: busy pages are pinned"), "{text}");
        assert!(text.contains("denied is memory") && !text.contains("no_memory"), "{text}");
    }

    #[test]
    fn each_end_says_what_state_ksm_is_in() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        std::fs::create_dir_all(dir.path().join("sys/kernel/mm/ksm")).unwrap();
        let text = |run: &str, end: &End, pid| {
            std::fs::write(dir.path().join("sys/kernel/mm/ksm/run"), run).unwrap();
            let mut report = Report { pid, ..report() };
            report.count(Ok(()));
            report.count(Err(Refusal::Exited));
            report.end(&root, end, &Meter::start()).unwrap();
            report.result_text()
        };
        let done = text("2", &End::Finished, None);
        assert!(done.starts_with("1 of 2048 mappings un-merged, exited 1; "), "{done}");
        assert!(done.contains("run is 2") && done.contains("echo 1 >"), "{done}");
        let refused = text("0", &End::Refused, None);
        assert!(refused.contains("the rest is still merged") && refused.contains("--force"), "{refused}");
        let cut = text("0", &End::Interrupted, None);
        assert!(cut.contains("interrupted") && cut.contains("the rest is still merged"), "{cut}");
        assert!(text("0", &End::NoRoom("node 3 is full".into()), None).contains("early: node 3 is full"));
        assert!(text("1", &End::Finished, Some(7)).contains("merges these pages again"));
    }
}
