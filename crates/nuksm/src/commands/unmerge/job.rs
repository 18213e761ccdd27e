// SPDX-License-Identifier: GPL-2.0-only
//! What is to be un-merged, where the copies go, and what that costs.

use crate::shared::memcg;
use crate::shared::tenants::with_cause;
use crate::shared::view::View;
use anyhow::{Result, bail};
use log::warn;
use nuksm_model::UnmergeCost;
use nuksm_numafs::Policies;
use nuksm_pagemap::Mapping;
use nuksm_sysroot::{Root, patiently};
use std::collections::{BTreeMap, BTreeSet};

/// The mappings to be un-merged.
#[derive(Debug)]
pub struct Job<'a> {
    pub view: &'a View,
    /// Only those of this tenant.
    only: Option<u32>,
    policies: Vec<Policies>,
}

impl<'a> Job<'a> {
    /// All mappings in `view`, or those of process `pid`; an error when that has more
    /// than was seen. A tenant whose policies cannot be read has none. `stop` is asked as
    /// [`View::collect`] does.
    pub fn new(root: &Root, view: &'a View, pid: Option<u32>, stop: &dyn Fn() -> bool) -> Result<Self> {
        let of_pid = |pid| (0..).zip(&view.tenants).find(|(_, tenant)| tenant.start_of(pid).is_some());
        let meant = pid.and_then(of_pid);
        let is_meant = |process| {
            pid == Some(process) || meant.is_some_and(|(_, tenant)| tenant.start_of(process).is_some())
        };
        if let Some((pid, why)) = view.unread.iter().find(|(unread, _)| is_meant(*unread)) {
            bail!("process {pid} could not be read to its end, so it is left as it is: {why}");
        }
        // A process that KSM does not know has no mapping at all.
        let only = pid.map(|_| meant.map_or(u32::MAX, |(number, _)| number));
        let mut job = Self { view, only, policies: vec![Policies::default(); view.tenants.len()] };
        if let Some((_, tenant)) = meant {
            let counted = tenant.ksm.merging_pages.unwrap_or(0);
            if counted > 0 && job.mappings().is_empty() {
                bail!(
                    "KSM counts {counted} merged mappings of process {}, and none of them could be seen: nobody \
                     in sight shares them; un-merge everything, without --pid, for those",
                    tenant.pid
                );
            }
        }
        let concerned = (0..).zip(&view.tenants).filter(|(number, _)| job.concerns(*number));
        let (numbers, tasks): (Vec<u32>, Vec<u32>) =
            concerned.map(|(number, tenant)| (number, tenant.task)).unzip();
        let there = root.clone();
        let mut unread = Vec::new();
        patiently(
            tasks.iter().map(|&task| (task, task)),
            move |task, _| Policies::read(&there, task),
            stop,
            |at, policies| match policies.unwrap_or_else(|| Err(root.unanswered(tasks[at]))) {
                Ok(policies) => job.policies[numbers[at] as usize] = policies,
                Err(error) => unread.push((view.tenants[numbers[at] as usize].pid, with_cause(&error))),
            },
        )
        .map_err(nuksm_pagemap::Error::from)?;
        if let Some((pid, why)) = unread.first() {
            warn!(
                "where memory of {} processes should be is not known, and is taken to be where they run: {pid}: {why}",
                unread.len()
            );
        }
        Ok(job)
    }

    fn concerns(&self, tenant: u32) -> bool {
        self.only.is_none_or(|only| only == tenant)
    }

    /// What is to be un-merged, page after page.
    pub fn mappings(&self) -> Vec<Mapping> {
        self.view.scan.mappings.iter().copied().filter(|mapping| self.concerns(mapping.tenant())).collect()
    }

    /// The node for the copy: the one of the memory's policy, else the one where
    /// the tenant runs; the page's own when neither is known. If that node has no
    /// memory, the nearest that has.
    pub fn home(&self, mapping: &Mapping) -> u32 {
        let tenant = mapping.tenant() as usize;
        let policy = self.policies[tenant].node(mapping.addr());
        let home = policy.or(self.view.tenants[tenant].node);
        let home = home.or_else(|| self.view.machine.node_of_pfn(mapping.pfn)).unwrap_or(0);
        self.view.machine.memory_node(home).unwrap_or(home)
    }

    /// Nodes that have memory.
    pub fn memory_nodes(&self) -> Vec<u32> {
        self.view.machine.nodes.iter().filter(|node| node.total_bytes > 0).map(|node| node.id).collect()
    }

    /// What it takes from each node.
    pub fn cost(&self) -> UnmergeCost {
        let mut cost = UnmergeCost::default();
        for (mappings, page) in self.view.scan.pages().zip(&self.view.pages) {
            let concerned = || mappings.iter().filter(|mapping| self.concerns(mapping.tenant()));
            let freed = concerned().count() == mappings.len();
            cost.add_page(page.node, concerned().map(|mapping| self.home(mapping)), freed);
        }
        cost
    }

    /// Copies that each memory cgroup with a limit pays for, and the pages it
    /// still may take. A merged page that is freed counts in favour of none: it
    /// may be any sharer's who paid for it.
    pub fn cgroups(&self, root: &Root) -> Result<Vec<(String, u64, u64)>> {
        let mut copies = vec![0_u64; self.view.tenants.len()];
        for mapping in self.view.scan.mappings.iter().filter(|mapping| self.concerns(mapping.tenant())) {
            copies[mapping.tenant() as usize] += 1;
        }
        let mut paying = BTreeMap::<String, BTreeSet<usize>>::new();
        for (number, tenant) in self.view.tenants.iter().enumerate().filter(|(number, _)| copies[*number] > 0)
        {
            for cgroup in memcg::chain(root, tenant.task)? {
                paying.entry(cgroup).or_default().insert(number);
            }
        }
        let mut limited = Vec::new();
        for (cgroup, tenants) in paying {
            if let Some(room) = memcg::room_bytes(root, &cgroup)? {
                let copies = tenants.iter().map(|&tenant| copies[tenant]).sum();
                limited.push((cgroup, copies, room / nuksm_pagemap::page_size()));
            }
        }
        Ok(limited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::view::tests::view;
    use std::fs;

    fn nowhere() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn job<'a>(root: &Root, view: &'a View, pid: Option<u32>) -> Job<'a> {
        Job::new(root, view, pid, &|| false).unwrap()
    }

    /// (node, copies, freed) of each node.
    fn cost(root: &Root, pid: Option<u32>) -> Vec<(u32, u64, u64)> {
        let view = view();
        let cost = job(root, &view, pid).cost();
        cost.nodes.iter().map(|(&node, cost)| (node, cost.copies, cost.freed)).collect()
    }

    #[test]
    fn copies_go_to_the_tenants_homes() {
        // Pages 1 and 2 (node 0): tenants 10 and 11; page 3 (node 1): 10 twice, and 12.
        let (_dir, root) = nowhere();
        assert_eq!(cost(&root, None), [(0, 4, 2), (1, 3, 1)]);
    }

    #[test]
    fn one_process_alone_frees_nothing_that_others_use() {
        let (_dir, root) = nowhere();
        assert_eq!(cost(&root, Some(11)), [(1, 2, 0)]);
        assert_eq!(cost(&root, Some(99)), []);
    }

    #[test]
    fn a_process_of_which_nothing_was_seen_is_an_error_and_none_that_has_nothing() {
        let (_dir, root) = nowhere();
        let mut view = view();
        let refusal = |view: &View, pid| Job::new(&root, view, Some(pid), &|| false).unwrap_err().to_string();
        view.unread = vec![(12, "for this test".into()), (13, "so is this".into())];
        for (pid, why) in [(12, "for this test"), (13, "so is this")] {
            let said = refusal(&view, pid);
            assert_eq!(
                said,
                format!("process {pid} could not be read to its end, so it is left as it is: {why}")
            );
        }
        view.tenants.push(crate::shared::tenants::Tenant { pid: 14, ..view.tenants[0].clone() });
        assert!(job(&root, &view, Some(14)).mappings().is_empty());
        view.tenants[3].ksm.merging_pages = Some(7);
        let said = refusal(&view, 14);
        assert!(
            said.starts_with("KSM counts 7 merged mappings of process 14, and none of them could be seen"),
            "{said}"
        );
        assert!(!job(&root, &view, Some(10)).mappings().is_empty(), "the others can be un-merged");
        assert!(!job(&root, &view, None).mappings().is_empty());
    }

    #[test]
    fn a_policy_of_one_node_outweighs_where_the_tenant_runs() {
        let (dir, root) = nowhere();
        fs::create_dir_all(dir.path().join("proc/11")).unwrap();
        fs::write(dir.path().join("proc/11/numa_maps"), "1000 bind:0 anon=2\n").unwrap();
        assert_eq!(cost(&root, Some(11)), [(0, 2, 0)]);
    }

    #[test]
    fn a_tenant_whose_policies_cannot_be_read_hinders_nothing() {
        let (dir, root) = nowhere();
        let mut view = view();
        for tenant in &mut view.tenants {
            // Who is held up is known by pid, in all tests of this process.
            tenant.task += 7000;
        }
        let proc = |pid: u32| dir.path().join(format!("proc/{}", pid + 7000));
        for pid in [10, 11, 12] {
            fs::create_dir_all(proc(pid)).unwrap();
        }
        fs::create_dir(proc(10).join("numa_maps")).unwrap();
        let silent = proc(11).join("numa_maps");
        rustix::fs::mkfifoat(rustix::fs::CWD, &silent, rustix::fs::Mode::RUSR).unwrap();
        fs::write(proc(12).join("numa_maps"), "1000 bind:0 anon=2\n").unwrap();
        let cost = job(&root, &view, None).cost();
        let copies: Vec<_> = cost.nodes.values().map(|cost| cost.copies).collect();
        assert_eq!(copies, [5, 2], "12 is heard, 10 and 11 run on 0 and 1");
        // Lets the thread that waits go.
        let _ = fs::OpenOptions::new().write(true).open(silent);
    }

    #[test]
    fn every_cgroup_with_a_limit_pays_for_the_tenants_below_it() {
        let (dir, root) = nowhere();
        for (pid, cgroup) in [(10, "a/x"), (11, "a/y"), (12, "b")] {
            fs::create_dir_all(dir.path().join(format!("proc/{pid}"))).unwrap();
            fs::write(dir.path().join(format!("proc/{pid}/cgroup")), format!("0::/{cgroup}\n")).unwrap();
        }
        for (cgroup, pages) in [("a", "40960"), ("a/y", "4096"), ("b", "max")] {
            let cgroup = dir.path().join("sys/fs/cgroup").join(cgroup);
            fs::create_dir_all(&cgroup).unwrap();
            fs::write(cgroup.join("memory.max"), pages).unwrap();
            fs::write(cgroup.join("memory.current"), "0").unwrap();
        }
        let view = view();
        let limited = job(&root, &view, None).cgroups(&root).unwrap();
        let page = nuksm_pagemap::page_size();
        assert_eq!(limited, [("a".into(), 6, 40_960 / page), ("a/y".into(), 2, 4_096 / page)]);
    }
}
