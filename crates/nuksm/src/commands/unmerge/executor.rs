// SPDX-License-Identifier: GPL-2.0-only
//! Un-merging in batches, at a bounded rate, as long as there is room.

use super::args::UnmergeArgs;
use super::job::Job;
use super::report::{End, Report};
use crate::shared::pace::Pace;
use crate::shared::stop::Stop;
use crate::shared::tenants::{self, Tenant};
use anyhow::{Context, Result};
use nuksm_numafs::Topology;
use nuksm_pagemap::{Mapping, Outcome, Pagemap, Refusal};
use nuksm_sysroot::{Root, patiently};
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
        let sizes: Vec<usize> = groups.values().map(Vec::len).collect();
        let of_tenants = groups.into_iter().map(|((home, tenant), mappings)| {
            let tenant = self.job.view.tenants[tenant as usize].clone();
            (tenant.task, (home, tenant, mappings))
        });
        let root = self.root.clone();
        let mut failed = None;
        // What was begun is counted: nobody stops it.
        let _ = patiently(
            of_tenants,
            move |(home, tenant, mappings), _| take_apart_in(&root, home, &tenant, &mappings),
            &|| false,
            |group, outcomes| match outcomes {
                Some(Ok(outcomes)) => outcomes.into_iter().for_each(|outcome| report.count(outcome)),
                Some(Err(error)) => failed = Some(error),
                None => report.count_all(sizes[group], Refusal::NoAnswer),
            },
        );
        failed.map_or(Ok(()), |error| Err(error).context("cannot choose the node of the copies"))
    }
}

/// May this process itself use the nodes of the copies? The kernel takes them from where
/// whoever asks may have memory.
pub fn check_nodes(report: &Report) -> Result<()> {
    for node in report.nodes.iter().filter(|row| row.copies > 0).map(|row| row.node) {
        nuksm_pagemap::prefer_nodes(&[node]).with_context(|| {
            format!(
                "copies belong on node {node}, and nuksm itself may not use it: see cpuset.mems of its cgroup, or \
                 AllowedMemoryNodes= of its unit; nothing was un-merged"
            )
        })?;
    }
    nuksm_pagemap::prefer_nodes(&[]).context("cannot give the choice of node back")
}

/// Un-merges pages of one tenant; the copies go to node `home`. An error when they may not.
fn take_apart_in(
    root: &Root,
    home: u32,
    tenant: &Tenant,
    mappings: &[Mapping],
) -> std::io::Result<Vec<Outcome>> {
    // This holds for the present thread only.
    nuksm_pagemap::prefer_nodes(&[home])?;
    let pagemap = Pagemap::open(root, &tenant.task.to_string()).ok().flatten();
    let Some(pagemap) = pagemap.filter(|_| tenants::is_alive(root, tenant)) else {
        return Ok(vec![Err(Refusal::Exited); mappings.len()]);
    };
    // What is there is not the merged page any more: nothing to be done.
    let is_there = |mapping: &Mapping| {
        pagemap.entry(mapping.addr()).ok().flatten().is_some_and(|entry| entry.pfn() == mapping.pfn)
    };
    let (there, gone): (Vec<Mapping>, Vec<Mapping>) = mappings.iter().partition(|mapping| is_there(mapping));
    let mut outcomes = vec![Err(Refusal::Unmerged); gone.len()];

    let addrs: Vec<u64> = there.iter().map(|mapping| mapping.addr()).collect();
    let read = there.iter().zip(nuksm_pagemap::unshare(tenant.task, &addrs));
    outcomes.extend(read.map(|(mapping, outcome)| match outcome {
        _ if !is_there(mapping) => Ok(()),
        Ok(()) => Err(Refusal::Busy),
        // The page is there, but its process itself may not read it.
        Err(Refusal::Unmerged) => Err(Refusal::Denied),
        Err(refusal) => Err(refusal),
    }));
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tree::silent;
    use crate::shared::view::tests::view;

    #[test]
    fn who_does_not_answer_is_counted_and_holds_up_nobody() {
        let (_dir, root, pagemap) = silent("proc/8010/pagemap");
        let mut view = view();
        for tenant in &mut view.tenants {
            (tenant.pid, tenant.task, tenant.node) = (tenant.pid + 8000, tenant.task + 8000, Some(0));
        }
        let job = Job::new(&root, &view, None, &|| false).unwrap();
        let args =
            UnmergeArgs { dry_run: false, pid: None, rate: "64M".parse().unwrap(), force: true, json: false };
        let (_stopper, stop) = Stop::by_hand();
        let mut report = Report::default();
        let end = Executor::new(&root, &job, &args).carry_out(&stop, &mut report).unwrap();
        assert_eq!(end, End::Finished);
        assert_eq!(report.refusals, BTreeMap::from([("no_answer", 4), ("exited", 3)]));
        assert_eq!(report.refused(), 4, "they are still merged");
        // Lets the thread that waits go.
        let _ = std::fs::OpenOptions::new().write(true).open(pagemap);
    }

    #[test]
    fn copies_fit_until_the_first_whose_node_is_full() {
        let mut room = Room { pages: BTreeMap::from([(0, 3), (1, 1)]) };
        assert_eq!(room.take([0, 1, 0, 1, 0].into_iter()), 3);
        assert_eq!(room.take([0, 0].into_iter()), 1);
        assert_eq!(room.take([0].into_iter()), 0);
        assert_eq!(Room::default().take([7].into_iter()), 0, "nothing is known of it yet");
    }
}
