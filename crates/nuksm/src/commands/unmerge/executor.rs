// SPDX-License-Identifier: GPL-2.0-only
//! Un-merging in batches, at a bounded rate, as long as there is room.

use super::args::UnmergeArgs;
use super::job::Job;
use super::report::{End, Report};
use crate::shared::pace::Pace;
use crate::shared::stop::Stop;
use crate::shared::tenants;
use anyhow::{Context, Result};
use nuksm_numafs::Topology;
use nuksm_pagemap::{Mapping, Pagemap, Refusal};
use nuksm_sysroot::Root;
use std::collections::BTreeMap;

/// Copies that a node gets between two looks at its room, which others use, too.
const COPIES_PER_LOOK: u64 = 4096;

/// How many copies each node can take until it has to be looked at again.
///
/// Merged pages that are freed meanwhile count only from the next look on.
#[derive(Debug, Default)]
struct Room {
    pages: BTreeMap<u32, u64>,
}

impl Room {
    fn look(root: &Root) -> Result<Self> {
        let machine = Topology::read(root).context("cannot read the machine's nodes")?;
        let pages = |node: &nuksm_numafs::Node| (node.id, node.room_pages.min(COPIES_PER_LOOK));
        Ok(Self { pages: machine.nodes.iter().map(pages).collect() })
    }

    /// Gives each copy in turn a page on its node; says how many got one before
    /// the first that did not.
    fn take(&mut self, homes: impl Iterator<Item = u32>) -> usize {
        let mut take_one = |home| {
            let left = self.pages.get_mut(&home).filter(|left| **left > 0);
            left.map(|left| *left -= 1).is_some()
        };
        homes.take_while(|&home| take_one(home)).count()
    }
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
        let mut rest = mappings.as_slice();
        let mut pace = Pace::new(self.pages_per_second);
        let mut room = Room::default();
        while let [next, ..] = rest {
            if stop.wait(pace.delay()) {
                return Ok(End::Interrupted);
            }
            let mut count = pace.batch().min(rest.len());
            if self.watch_room {
                let homes = || rest[..count].iter().map(|mapping| self.job.home(mapping));
                count = match room.take(homes()) {
                    0 => {
                        room = Room::look(self.root)?;
                        room.take(homes())
                    }
                    fitting => fitting,
                };
            }
            if count == 0 {
                let node = self.job.home(next);
                return Ok(End::NoRoom(format!("node {node} has no room above its high watermark any more")));
            }
            let (batch, later) = rest.split_at(count);
            self.take_apart(batch, report)?;
            pace.handled(batch.len(), mappings.len());
            if report.unmerged == 0 && report.kept() > 0 {
                return Ok(End::NotOffered);
            }
            rest = later;
        }
        Ok(End::Finished)
    }

    fn take_apart(&self, batch: &[Mapping], report: &mut Report) -> Result<()> {
        let mut groups = BTreeMap::<(u32, u32), Vec<Mapping>>::new();
        for mapping in batch {
            groups.entry((self.job.home(mapping), mapping.tenant())).or_default().push(*mapping);
        }
        for ((home, tenant), mappings) in groups {
            nuksm_pagemap::prefer_nodes(&[home]).context("cannot choose the node of the copies")?;
            self.take_apart_in(tenant, &mappings, report);
        }
        nuksm_pagemap::prefer_nodes(&[]).context("cannot give the choice of node back")
    }

    /// Un-merges pages of one tenant; the copies go where this thread's policy
    /// says.
    fn take_apart_in(&self, tenant: u32, mappings: &[Mapping], report: &mut Report) {
        let tenant = &self.job.view.tenants[tenant as usize];
        let pagemap = Pagemap::open(self.root, &tenant.task.to_string()).ok().flatten();
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
        for (mapping, outcome) in there.iter().zip(nuksm_pagemap::unshare(tenant.task, &addrs)) {
            report.count(match outcome {
                _ if !is_there(mapping) => Ok(()),
                Ok(()) => Err(Refusal::Busy),
                // The page is there, but its process itself may not read it.
                Err(Refusal::Unmerged) => Err(Refusal::Denied),
                Err(refusal) => Err(refusal),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_fit_until_the_first_whose_node_is_full() {
        let mut room = Room { pages: BTreeMap::from([(0, 3), (1, 1)]) };
        assert_eq!(room.take([0, 1, 0, 1, 0].into_iter()), 3);
        assert_eq!(room.take([0, 0].into_iter()), 1);
        assert_eq!(room.take([0].into_iter()), 0);
        assert_eq!(Room::default().take([7].into_iter()), 0, "nothing is known of it yet");
    }
}
