// SPDX-License-Identifier: GPL-2.0-only
//! Un-merging in batches, at a bounded rate, as long as there is room.

use super::UnmergeArgs;
use super::job::Job;
use super::report::Report;
use crate::pace::Pace;
use crate::stop::Stop;
use crate::tenants;
use anyhow::{Context, Result};
use numafs::Topology;
use pagemap::{Mapping, Pagemap, Refusal};
use std::collections::BTreeMap;
use sysroot::Root;

/// Pages between two looks at the nodes' free memory, which others use, too.
const PAGES_PER_LOOK: usize = 4096;

/// How the work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Every mapping had its turn.
    Finished,
    /// A signal came.
    Interrupted,
    /// This node has no room above its high watermark any more.
    NoRoom(u32),
    /// This kernel lets a shared page be read without un-merging it.
    NotOffered,
}

/// Does a job.
#[derive(Debug)]
pub struct Executor<'a> {
    root: &'a Root,
    job: &'a Job<'a>,
    pages_per_second: u64,
    watch_room: bool,
}

impl<'a> Executor<'a> {
    pub fn new(root: &'a Root, job: &'a Job<'a>, args: &UnmergeArgs) -> Self {
        Self { root, job, pages_per_second: args.rate.0, watch_room: !args.force }
    }

    /// Un-merges page after page and counts what became of each mapping.
    pub fn carry_out(&self, stop: &Stop, report: &mut Report) -> Result<End> {
        let mappings = self.job.mappings();
        let homes: Vec<u32> = report.nodes.iter().filter(|row| row.copies > 0).map(|row| row.node).collect();
        let mut pace = Pace::new(self.pages_per_second);
        let mut since_look = 0;
        for batch in mappings.chunks(pace.batch()) {
            if stop.wait(pace.delay()) {
                return Ok(End::Interrupted);
            }
            since_look += batch.len();
            if self.watch_room && since_look >= PAGES_PER_LOOK {
                since_look = 0;
                if let Some(node) = self.full_node(&homes)? {
                    return Ok(End::NoRoom(node));
                }
            }
            self.take_apart(batch, report)?;
            pace.handled(batch.len(), mappings.len());
            if report.unmerged == 0 && report.kept() > 0 {
                return Ok(End::NotOffered);
            }
        }
        Ok(End::Finished)
    }

    /// A node below its high watermark, of those that copies go to.
    fn full_node(&self, homes: &[u32]) -> Result<Option<u32>> {
        let machine = Topology::read(self.root).context("cannot read the machine's nodes")?;
        let full = |node: &&numafs::Node| {
            homes.contains(&node.id) && node.free_bytes / pagemap::page_size() < node.high_watermark_pages
        };
        Ok(machine.nodes.iter().find(full).map(|node| node.id))
    }

    fn take_apart(&self, batch: &[Mapping], report: &mut Report) -> Result<()> {
        let mut groups = BTreeMap::<(u32, u32), Vec<Mapping>>::new();
        for mapping in batch {
            groups.entry((self.job.home(mapping), mapping.tenant())).or_default().push(*mapping);
        }
        for ((home, tenant), mappings) in groups {
            pagemap::prefer_nodes(&[home]).context("cannot choose the node of the copies")?;
            self.take_apart_in(tenant, &mappings, report);
        }
        pagemap::prefer_nodes(&[]).context("cannot give the choice of node back")
    }

    /// Un-merges pages of one tenant; the copies go where this thread's policy
    /// says.
    fn take_apart_in(&self, tenant: u32, mappings: &[Mapping], report: &mut Report) {
        let tenant = &self.job.view.tenants[tenant as usize];
        let pagemap = Pagemap::open(self.root, &tenant.pid.to_string()).ok().flatten();
        let Some(pagemap) = pagemap.filter(|_| tenants::is_alive(self.root, tenant)) else {
            report.count_all(mappings.len(), Refusal::Exited);
            return;
        };
        // What is there is not the merged page any more: nothing to be done.
        let is_there = |mapping: &Mapping| {
            pagemap.entry(mapping.addr()).ok().flatten().is_some_and(|entry| entry.pfn() == mapping.pfn)
        };
        let (there, gone): (Vec<Mapping>, Vec<Mapping>) =
            mappings.iter().partition(|mapping| is_there(mapping));
        report.count_all(gone.len(), Refusal::Unmerged);

        let addrs: Vec<u64> = there.iter().map(|mapping| mapping.addr()).collect();
        for (mapping, outcome) in there.iter().zip(pagemap::unshare(tenant.pid, &addrs)) {
            report.count(match outcome {
                _ if !is_there(mapping) => Ok(()),
                Ok(()) => Err(Refusal::Busy),
                Err(refusal) => Err(refusal),
            });
        }
    }
}
