// SPDX-License-Identifier: GPL-2.0-only
//! A moment's view of all merged pages: where they are and who shares them.

use crate::shared::tenants::{self, Found, Tenant, with_cause};
use anyhow::{Context, Result};
use log::warn;
use nuksm_ksmfs::Ksm;
use nuksm_model::Page;
use nuksm_numafs::Topology;
use nuksm_pagemap::{KpageFlags, Mapping, Scan};
use nuksm_sysroot::{Root, Wanted, patiently, unless_stopped};
use std::collections::{BTreeMap, HashMap};

/// All merged pages with several mappings.
#[derive(Debug)]
pub struct View {
    /// Nodes and their memory.
    pub machine: Topology,
    /// Processes with mergeable memory.
    pub tenants: Vec<Tenant>,
    /// Every place that maps a merged page, and how many were looked at.
    pub scan: Scan,
    /// The merged pages, in the order of [`Scan::pages`].
    pub pages: Vec<Page>,
    /// The sharing sets: indexes of tenants, ascending.
    pub sets: Vec<Vec<u32>>,
    /// Whether /proc/kpageflags told merged pages from those a fork shares.
    pub ksm_flag_reliable: bool,
    /// Processes that could not be looked at, or not to their end, and why.
    pub unread: Vec<(u32, String)>,
    /// What else is not known, and why.
    pub notes: Vec<String>,
}

/// The node of a page that was gone before the kernel could be asked for it, or whose
/// tenant does not answer: none has this number.
pub const UNKNOWN_NODE: u32 = u32::MAX;

/// KSM's settings and counters, or the error that this kernel has no KSM.
pub fn require_ksm(root: &Root) -> Result<Ksm> {
    Ksm::read(root)?.context("this kernel has no KSM: it needs CONFIG_KSM=y")
}

/// Did a look end because it was asked to?
pub fn was_stopped(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(nuksm_pagemap::Error::Stopped))
}

/// A tenant's merged pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantPages {
    /// Places in its memory that map a merged page.
    pub merged: u64,
    /// Those of them whose page is on the tenant's node.
    pub local: u64,
}

impl View {
    /// Looks at the machine. Takes root. `stop` is asked ten times a second at least: once
    /// it says true, the answer is an error that [`was_stopped`] knows.
    pub fn collect(root: &Root, stop: &dyn Fn() -> bool) -> Result<Self> {
        let machine = Topology::read(root).context("cannot read the machine's nodes")?;
        let Found { tenants, mut unread, untold } =
            tenants::find(root, &machine, stop).context("cannot list processes")?;
        let mut flags = KpageFlags::open(root).context("cannot tell merged pages from others")?;
        let tasks: Vec<u32> = tenants.iter().map(|tenant| tenant.task).collect();
        let scan =
            Scan::run(root, &mut flags, &tasks, stop).context("cannot look through mergeable memory")?;
        let pid_and_why = |(tenant, error): &(u32, nuksm_sysroot::Error)| {
            (tenants[*tenant as usize].pid, with_cause(error))
        };
        unread.extend(scan.unread.iter().map(pid_and_why));
        let mut view = Self {
            machine,
            tenants,
            scan,
            pages: Vec::new(),
            sets: Vec::new(),
            ksm_flag_reliable: flags.ksm_flag_reliable(),
            unread,
            notes: untold.into_iter().collect(),
        };
        let group = move || {
            let strays = view.group();
            (view, strays)
        };
        let (mut view, strays) = unless_stopped(group, stop).map_err(nuksm_pagemap::Error::from)?;
        view.ask_nodes(root, &strays, stop)?;
        Ok(view)
    }

    /// Who could not be looked at, in one line.
    pub fn note(&self) -> Option<String> {
        tenants::passed_over(&self.unread)
    }

    /// Says so, and what else is not known, where no report does.
    pub fn warn(&self) {
        for note in self.note().iter().chain(&self.notes) {
            warn!("{note}");
        }
    }

    /// Finds each page's sharing set, and its node by its frame; and the pages, by index,
    /// whose frame several nodes may own.
    fn group(&mut self) -> Vec<(usize, Mapping)> {
        let mut strays = Vec::new();
        let mut known = HashMap::<Vec<u32>, u32>::new();
        let mut sharers = Vec::new();
        for mappings in self.scan.pages() {
            sharers.clear();
            sharers.extend(mappings.iter().map(|mapping| mapping.tenant()));
            sharers.dedup();
            // Neighbours mostly have the same sharers: no need to look those up.
            let set = match self.pages.last() {
                Some(page) if self.sets[page.set as usize] == sharers => page.set,
                _ => *known.entry(sharers.clone()).or_insert_with(|| {
                    self.sets.push(sharers.clone());
                    u32::try_from(self.sets.len() - 1).unwrap_or(u32::MAX)
                }),
            };
            let mapping = mappings[0];
            let node = self.machine.node_of_pfn(mapping.pfn).unwrap_or_else(|| {
                strays.push((self.pages.len(), mapping));
                UNKNOWN_NODE
            });
            self.pages.push(Page { node, set, place: mapping.place() });
        }
        strays
    }

    /// Asks the kernel for the nodes of these pages. One that is gone by then, or whose
    /// tenant does not answer, is on [`UNKNOWN_NODE`].
    fn ask_nodes(&mut self, root: &Root, strays: &[(usize, Mapping)], stop: &dyn Fn() -> bool) -> Result<()> {
        let mut of_tenants = BTreeMap::<u32, (Vec<usize>, Vec<u64>)>::new();
        for (page, mapping) in strays {
            let (pages, addrs) = of_tenants.entry(mapping.tenant()).or_default();
            pages.push(*page);
            addrs.push(mapping.addr());
        }
        let (mut asked, mut jobs) = (Vec::new(), Vec::new());
        for (tenant, (pages, addrs)) in of_tenants {
            let tenant = &self.tenants[tenant as usize];
            asked.push((tenant.pid, pages));
            jobs.push((tenant.task, (tenant.task, addrs)));
        }
        let there = root.clone();
        let mut unread = Vec::new();
        patiently(
            jobs,
            move |(task, addrs), wanted| nodes_of(&there, task, &addrs, wanted),
            stop,
            |number, nodes| {
                let (pid, pages) = &asked[number];
                for (page, node) in pages.iter().zip(nodes.iter().flatten()) {
                    self.pages[*page].node = node.unwrap_or(UNKNOWN_NODE);
                }
                if nodes.is_none() {
                    unread.push((*pid, with_cause(&root.unanswered(*pid))));
                }
            },
        )
        .map_err(nuksm_pagemap::Error::from)?;
        self.unread.extend(unread);
        Ok(())
    }

    /// Merged pages on each node that has memory.
    pub fn pages_per_node(&self) -> BTreeMap<u32, u64> {
        let with_memory = self.machine.nodes.iter().filter(|node| node.total_bytes > 0);
        let mut counts: BTreeMap<u32, u64> = with_memory.map(|node| (node.id, 0)).collect();
        for page in self.pages.iter().filter(|page| page.node != UNKNOWN_NODE) {
            *counts.entry(page.node).or_default() += 1;
        }
        counts
    }

    /// Merged pages of which nobody knows the node.
    pub fn pages_of_unknown_node(&self) -> u64 {
        self.pages.iter().filter(|page| page.node == UNKNOWN_NODE).count() as u64
    }

    /// Places that map the merged pages on each node: those of tenants that run
    /// there, and those of others.
    pub fn mappings_per_node(&self) -> BTreeMap<u32, (u64, u64)> {
        let mut counts = BTreeMap::<u32, (u64, u64)>::new();
        for (mappings, page) in self.scan.pages().zip(&self.pages) {
            let (local, remote) = counts.entry(page.node).or_default();
            for mapping in mappings {
                let is_local = self.tenants[mapping.tenant() as usize].node == Some(page.node);
                *(if is_local { &mut *local } else { &mut *remote }) += 1;
            }
        }
        counts
    }

    /// Each tenant's merged pages, with the pages where `pages` says.
    pub fn tenant_pages(&self, pages: &[Page]) -> Vec<TenantPages> {
        let mut counts = vec![TenantPages::default(); self.tenants.len()];
        for (mappings, page) in self.scan.pages().zip(pages) {
            for mapping in mappings {
                let tenant = mapping.tenant() as usize;
                counts[tenant].merged += 1;
                counts[tenant].local += u64::from(self.tenants[tenant].node == Some(page.node));
            }
        }
        counts
    }

    /// Each tenant's part of what merging saves: of a page that n places map,
    /// n - 1 are saved, and each place counts for the same part of that.
    pub fn saved_bytes(&self, page_size: u64) -> Vec<u64> {
        let mut saved = vec![0.0; self.tenants.len()];
        for mappings in self.scan.pages() {
            let part = 1.0 - 1.0 / mappings.len() as f64;
            for mapping in mappings {
                saved[mapping.tenant() as usize] += part * page_size as f64;
            }
        }
        // Above 0, and below the host's memory.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        saved.into_iter().map(|bytes: f64| bytes.round() as u64).collect()
    }

    /// Mappings that KSM counts and no tenant in sight has: of processes that ended
    /// since ksmd came by, or that are hidden from us. `ksm` is best read after
    /// the view: what is merged between the two would count, too.
    pub fn out_of_sight(&self, ksm: &Ksm) -> u64 {
        let counted = ksm.pages_shared.unwrap_or(0).saturating_add(ksm.pages_sharing.unwrap_or(0));
        // By KSM's own count of each, which is as late as that of all of them.
        let is_read = |number: u32| self.scan.unread.iter().all(|(unread, _)| *unread != number);
        let read = (0..).zip(&self.tenants).filter(|(number, _)| is_read(*number));
        let own = read.map(|(_, tenant)| tenant.ksm.merging_pages);
        let in_sight = own.sum::<Option<u64>>().unwrap_or(self.scan.mappings.len() as u64);
        counted.saturating_sub(in_sight)
    }

    /// How many pages each sharing set has, over all nodes.
    pub fn pages_per_set(&self) -> Vec<u64> {
        let mut counts = vec![0; self.sets.len()];
        for page in &self.pages {
            counts[page.set as usize] += 1;
        }
        counts
    }
}

/// Pages that one call asks about.
const ASKED: usize = 4096;

/// The nodes of the pages of `task` at `addrs`.
fn nodes_of(root: &Root, task: u32, addrs: &[u64], wanted: &Wanted) -> Vec<Option<u32>> {
    let pagemap = nuksm_pagemap::Pagemap::open(root, &task.to_string()).ok().flatten();
    let ask = |addrs: &[u64]| {
        if wanted.is_over() {
            return Vec::new();
        }
        // Who waits for the memory's lock here can be ended by a signal; in
        // move_pages() nobody can.
        let _ = pagemap.as_ref().map(|pagemap| pagemap.entry(addrs[0]));
        nuksm_pagemap::nodes_of(task, addrs)
    };
    addrs.chunks(ASKED).flat_map(ask).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::shared::tree::silent;

    /// Three tenants, on nodes 0, 1 and 1; frames 1 to 3 with the given
    /// sharers, the first two on node 0, the third on node 1.
    pub fn view() -> View {
        let tenant = |pid: u32, node| Tenant {
            pid,
            twins: Vec::new(),
            task: pid,
            name: format!("t{pid}"),
            cgroup: String::new(),
            node,
            nice: 0,
            start_ticks: 0,
            ksm: nuksm_ksmfs::ProcessKsm::default(),
        };
        let node = |id| nuksm_numafs::Node {
            id,
            cpus: nuksm_numafs::CpuList::default(),
            total_bytes: 1 << 30,
            free_bytes: 1 << 20,
            room_pages: 250,
            distances: vec![if id == 0 { 10 } else { 21 }, if id == 0 { 21 } else { 10 }],
        };
        let zones = vec![
            nuksm_numafs::ZoneSpan { node: 0, start_pfn: 0, end_pfn: 3 },
            nuksm_numafs::ZoneSpan { node: 1, start_pfn: 3, end_pfn: 9 },
        ];
        let mappings = [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 0), (3, 2)];
        let mappings =
            (1..).zip(mappings).map(|(place, (pfn, tenant))| Mapping::new(pfn, tenant, place * 4096));
        let mut view = View {
            machine: Topology { nodes: vec![node(0), node(1)], zones },
            tenants: vec![tenant(10, Some(0)), tenant(11, Some(1)), tenant(12, Some(1))],
            scan: Scan { mappings: mappings.collect(), looked_at: 9, unread: Vec::new() },
            pages: Vec::new(),
            sets: Vec::new(),
            ksm_flag_reliable: false,
            unread: Vec::new(),
            notes: Vec::new(),
        };
        view.group();
        view
    }

    #[test]
    fn an_end_that_was_asked_for_is_told_from_a_failure() {
        use anyhow::Context;
        let error = |error: nuksm_pagemap::Error| Err::<(), _>(error).context("cannot look").unwrap_err();
        assert!(was_stopped(&error(nuksm_pagemap::Error::Stopped)));
        assert!(!was_stopped(&error(nuksm_pagemap::Error::HiddenFrames)));
    }

    #[test]
    fn what_ksm_counts_and_no_tenant_has_is_out_of_sight() {
        let mut view = view();
        let ksm = |shared, sharing| Ksm {
            pages_shared: Some(shared),
            pages_sharing: Some(sharing),
            ..Ksm::default()
        };
        assert_eq!(view.out_of_sight(&ksm(3, 4)), 0, "seven mappings were seen");
        assert_eq!(view.out_of_sight(&ksm(3, 10)), 6);
        for tenant in &mut view.tenants {
            tenant.ksm.merging_pages = Some(4);
        }
        assert_eq!(view.out_of_sight(&ksm(3, 10)), 1, "some of theirs are un-merged, or were swapped out");
        assert_eq!(view.out_of_sight(&ksm(1, 1)), 0);
        view.scan.unread.push((2, Root::default().malformed("proc/12/smaps", "areas", "")));
        assert_eq!(view.out_of_sight(&ksm(3, 10)), 5, "nobody could look at the third");
    }

    /// So many tenants and sharing sets of one page; which tenants share is as
    /// good as left to chance, but always the same.
    pub fn crowd(tenants: u32, sharers: u32, sets: u32) -> View {
        let mut view = view();
        let tenant = view.tenants[0].clone();
        view.tenants = (0..tenants).map(|number| Tenant { pid: 100 + number, ..tenant.clone() }).collect();
        let members = |set: u32| {
            let mut members = std::collections::BTreeSet::new();
            let mut next = u64::from(set).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            while members.len() < sharers as usize {
                next = (next ^ (next >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(1);
                members.insert(u32::try_from((next >> 33) % u64::from(tenants)).unwrap());
            }
            members.into_iter().collect()
        };
        view.sets = (0..sets).map(members).collect();
        view.pages = (0..sets).map(|set| Page { node: set % 2, set, place: set.into() }).collect();
        view
    }

    #[test]
    fn pages_are_grouped_by_their_sharers() {
        let view = view();
        assert_eq!(view.sets, [vec![0, 1], vec![0, 2]]);
        assert_eq!(view.pages_per_set(), [2, 1]);
        assert_eq!(view.pages_per_node(), BTreeMap::from([(0, 2), (1, 1)]));
    }

    #[test]
    fn pages_of_frames_that_nodes_share_are_asked_for_and_who_is_silent_is_named() {
        let (_dir, root, pagemap) = silent("proc/6010/pagemap");
        let mut view = View { pages: Vec::new(), sets: Vec::new(), ..view() };
        view.machine.zones.remove(0);
        for tenant in &mut view.tenants {
            (tenant.pid, tenant.task) = (tenant.pid + 6000, tenant.task + 6000);
        }
        let strays = view.group();
        assert_eq!(
            strays.iter().map(|(page, mapping)| (*page, mapping.pfn)).collect::<Vec<_>>(),
            [(0, 1), (1, 2)]
        );
        view.ask_nodes(&root, &strays, &|| false).unwrap();
        assert_eq!(
            view.pages.iter().map(|page| page.node).collect::<Vec<_>>(),
            [UNKNOWN_NODE, UNKNOWN_NODE, 1]
        );
        let note = view.note().unwrap();
        assert!(note.starts_with("process 6010 is passed over: "), "{note}");
        // Lets the thread that waits go.
        let _ = std::fs::OpenOptions::new().write(true).open(pagemap);
    }

    #[test]
    fn nodes_count_near_and_far_mappings() {
        assert_eq!(view().mappings_per_node(), BTreeMap::from([(0, (2, 2)), (1, (1, 2))]));
    }

    #[test]
    fn tenants_count_every_place_that_maps_a_page() {
        let view = view();
        let counts: Vec<_> = view.tenant_pages(&view.pages).iter().map(|t| (t.merged, t.local)).collect();
        assert_eq!(counts, [(4, 2), (2, 0), (1, 1)]);
    }

    #[test]
    fn tenants_savings_add_up_to_the_pages_that_are_gone() {
        // Two pages with two places each, one with three: 1 + 1 + 2 are gone.
        let saved = view().saved_bytes(600);
        assert_eq!(saved, [300 + 300 + 400 + 400, 300 + 300, 400]);
        assert_eq!(saved.iter().sum::<u64>(), 4 * 600);
    }
}
