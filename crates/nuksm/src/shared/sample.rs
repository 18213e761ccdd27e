// SPDX-License-Identifier: GPL-2.0-only
//! A sample: all that can be known of merging at one moment.
//!
//! `status --json` prints one; whatever shows more than one moment keeps
//! several, in the same form.

use crate::shared::load::Load;
use crate::shared::privilege;
use crate::shared::view::{self, View};
use anyhow::Result;
use nuksm_ksmfs::{Engine, Ksm};
use nuksm_model::Savings;
use nuksm_numafs::TaskStat;
use nuksm_sysroot::Root;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Settings, counters and places of merged pages at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since 1970, UTC.
    pub unix_time: f64,
    /// Release of the kernel.
    pub kernel: String,
    /// Settings and counters of KSM.
    pub ksm: Ksm,
    /// `None` on a stock kernel.
    pub engine: Option<Engine>,
    /// What merging saves.
    pub savings: Savings,
    /// Memory of the engine's replicas, without which as much more would be saved; `None`
    /// where there is no engine, or this user may not see it.
    pub replica_bytes: Option<u64>,
    /// CPU time that ksmd has used since boot; `None` when no ksmd is in sight.
    pub ksmd_cpu_seconds: Option<f64>,
    /// What the whole host uses.
    pub load: Load,
    /// `None` when this user may not see where pages are.
    pub nodes: Option<Vec<NodeRow>>,
    /// Processes with mergeable memory; `None` as above.
    pub tenants: Option<Vec<TenantRow>>,
    /// What cannot be shown, and why.
    pub notes: Vec<String>,
}

/// Merged pages on one node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeRow {
    /// Number of the node.
    pub node: u32,
    /// Merged pages with several users that are here.
    pub merged_pages: u64,
    /// Places that map them, of tenants that run here.
    pub local_mappings: u64,
    /// Places that map them, of tenants that run elsewhere.
    pub remote_mappings: u64,
    /// Free memory.
    pub free_bytes: u64,
}

/// Merged pages of one tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TenantRow {
    /// Process number.
    pub pid: u32,
    /// Virtual machine, container or service; else the program's name.
    pub name: String,
    /// The node with memory nearest to where it runs.
    pub node: Option<u32>,
    /// Nice value.
    pub nice: i32,
    /// Places in its memory that map a merged page.
    #[serde(alias = "merged_pages")]
    pub merged_mappings: u64,
    /// Those of them whose page is on the tenant's node.
    #[serde(alias = "local_pages")]
    pub local_mappings: u64,
    /// The others.
    #[serde(alias = "remote_pages")]
    pub remote_mappings: u64,
    /// Its part of what merging saves: of a page that n places map, n - 1 are
    /// saved, and each place counts for the same part of that.
    pub saved_bytes: u64,
    /// Pages ksmd looks at for it, merged or not: what it costs.
    pub tracked_pages: Option<u64>,
    /// The engine's own count: merged pages on the node where the tenant's copy
    /// was before merging.
    pub ksm_merged_local: Option<u64>,
    /// The same for pages elsewhere.
    pub ksm_merged_remote: Option<u64>,
}

impl Sample {
    /// Reads all that this user may see, unless `stop` says so, as
    /// [`View::collect`] does.
    pub fn read(root: &Root, stop: &dyn Fn() -> bool) -> Result<Self> {
        Ok(Self::read_with_view(root, stop)?.0)
    }

    /// The same, with the pages that the places were counted from.
    pub fn read_with_view(root: &Root, stop: &dyn Fn() -> bool) -> Result<(Self, Option<View>)> {
        let mut sample = Self::read_counters(root)?;
        let missing = privilege::missing(root, false)?;
        let mut view = None;
        if missing.is_empty() {
            sample.place(view.insert(View::collect(root, stop)?));
        } else {
            let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
            sample.notes.push(format!(
                "nodes and tenants are not shown: {} needed, {}",
                names.join(", "),
                privilege::remedy(root)?
            ));
        }
        Ok((sample, view))
    }

    /// Reads what costs nearly nothing and takes no privilege: all but where
    /// pages are.
    pub fn read_counters(root: &Root) -> Result<Self> {
        let ksm = view::require_ksm(root)?;
        let sharing = ksm.pages_sharing.unwrap_or(0);
        let zero_pages = ksm.ksm_zero_pages.unwrap_or(0);
        let engine = Engine::read(root)?;
        let page_size = nuksm_pagemap::page_size();
        Ok(Self {
            unix_time: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            kernel: root.text("proc/sys/kernel/osrelease")?.unwrap_or_default().trim().to_owned(),
            savings: Savings::new(sharing, zero_pages, ksm.general_profit, page_size),
            replica_bytes: engine
                .as_ref()
                .and_then(Engine::replicas)
                .map(|pages| pages.saturating_mul(page_size)),
            ksm,
            engine,
            ksmd_cpu_seconds: ksmd_cpu_seconds(root)?,
            load: Load::read(root)?,
            nodes: None,
            tenants: None,
            notes: Vec::new(),
        })
    }

    /// Adds where the pages are.
    pub fn place(&mut self, view: &View) {
        let places = Places::new(view);
        self.nodes = Some(places.nodes);
        self.tenants = Some(places.tenants);
        self.notes.extend(places.notes);
        let counted = self.ksm.pages_shared.unwrap_or(0).saturating_add(self.ksm.pages_sharing.unwrap_or(0));
        let hidden = view.out_of_sight(&self.ksm);
        // While ksmd is at work, its counters and our look differ a little.
        if hidden > counted / 50 {
            self.notes.push(format!(
                "{hidden} of the {counted} mappings that KSM counts are of no tenant in sight: of processes that \
                 ended since ksmd came by, or that are in another PID namespace"
            ));
        }
    }

    /// How long a full scan takes at today's settings, at least, in seconds.
    pub fn full_scan_seconds(&self) -> Option<f64> {
        let ksm = &self.ksm;
        let tracked = [ksm.pages_shared, ksm.pages_sharing, ksm.pages_unshared, ksm.pages_volatile];
        let tracked = tracked.into_iter().flatten().fold(0, u64::saturating_add);
        let (pages, sleep) = ksm.pages_to_scan.zip(ksm.sleep_millisecs)?;
        nuksm_model::full_scan_seconds(tracked, pages, sleep)
    }

    /// Pages ksmd looked at per second since `before`.
    pub fn pages_per_second(&self, before: &Self) -> Option<f64> {
        let pages = self.ksm.pages_scanned?.saturating_sub(before.ksm.pages_scanned?);
        Some(pages as f64 / self.seconds_since(before))
    }

    /// Part of one CPU that ksmd used since `before`, 0 to 1.
    pub fn ksmd_cpu_share(&self, before: &Self) -> Option<f64> {
        Some((self.ksmd_cpu_seconds? - before.ksmd_cpu_seconds?) / self.seconds_since(before))
    }

    /// Of the use of merged pages that looks saw since `before`, the local part, 0 to 1;
    /// `None` when they saw none.
    pub fn used_locally(&self, before: &Self) -> Option<f64> {
        let (now, before) = (self.engine.as_ref()?, before.engine.as_ref()?);
        // What is less than before is of another boot.
        let local = now.used_local?.checked_sub(before.used_local?)?;
        let all = local.saturating_add(now.used_remote?.checked_sub(before.used_remote?)?);
        (all > 0).then(|| local as f64 / all as f64)
    }

    /// Time since `before`, in seconds; above 0 whatever happened to the clock.
    fn seconds_since(&self, before: &Self) -> f64 {
        (self.unix_time - before.unix_time).max(1e-3)
    }
}

/// Where merged pages are, as far as it can be told.
#[derive(Debug)]
pub struct Places {
    pub nodes: Vec<NodeRow>,
    pub tenants: Vec<TenantRow>,
    /// What is not told.
    pub notes: Vec<String>,
}

impl Places {
    /// From a view of them all.
    pub fn new(view: &View) -> Self {
        let pages = view.pages_per_node();
        let mappings = view.mappings_per_node();
        let nodes = view.machine.nodes.iter().filter(|node| node.total_bytes > 0).map(|node| {
            let (local_mappings, remote_mappings) = mappings.get(&node.id).copied().unwrap_or_default();
            NodeRow {
                node: node.id,
                merged_pages: pages.get(&node.id).copied().unwrap_or(0),
                local_mappings,
                remote_mappings,
                free_bytes: node.free_bytes,
            }
        });
        let saved = view.saved_bytes(nuksm_pagemap::page_size());
        let pages = view.tenant_pages(&view.pages).into_iter().zip(saved);
        let tenants = view.tenants.iter().zip(pages).map(|(tenant, (pages, saved_bytes))| TenantRow {
            pid: tenant.pid,
            name: tenant.name.clone(),
            node: tenant.node,
            nice: tenant.nice,
            merged_mappings: pages.merged,
            local_mappings: pages.local,
            remote_mappings: pages.merged - pages.local,
            saved_bytes,
            tracked_pages: tenant.ksm.rmap_items,
            ksm_merged_local: tenant.ksm.merged_local,
            ksm_merged_remote: tenant.ksm.merged_remote,
        });
        let unreliable = (!view.ksm_flag_reliable).then(|| {
            "this kernel flags every anonymous page as KSM: pages that a fork shares in mergeable memory are \
             counted as merged"
                .to_owned()
        });
        let unknown = view.pages_of_unknown_node();
        let nowhere = (unknown > 0).then(|| {
            format!(
                "{unknown} merged pages are on an unknown node: they went while they were looked at, or their \
                 process does not answer"
            )
        });
        let untold =
            view.note().into_iter().chain(view.notes.clone()).chain(unreliable).chain(nowhere).collect();
        Self { nodes: nodes.collect(), tenants: tenants.collect(), notes: untold }
    }
}

/// CPU time of the kernel thread ksmd, which is mostly where it was last time.
fn ksmd_cpu_seconds(root: &Root) -> Result<Option<f64>> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let last = LAST.load(Relaxed);
    if let Some(seconds) = cpu_seconds_if_ksmd(root, last)? {
        return Ok(Some(seconds));
    }
    for pid in root.numbered("proc", "")? {
        if let Some(seconds) = cpu_seconds_if_ksmd(root, pid)? {
            LAST.store(pid, Relaxed);
            return Ok(Some(seconds));
        }
    }
    Ok(None)
}

fn cpu_seconds_if_ksmd(root: &Root, pid: u32) -> Result<Option<f64>> {
    let stat = TaskStat::read(root, pid)?.filter(|stat| stat.is_kernel_thread && stat.comm == "ksmd");
    Ok(stat.map(|stat| stat.cpu_seconds()))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use nuksm_ksmfs::{Choice, PagesByNode};
    use std::collections::BTreeMap;
    use std::fs;

    /// Counters as on a small host, without places of pages.
    pub fn sample() -> Sample {
        let ksm = Ksm {
            run: Some(1),
            pages_to_scan: Some(100),
            sleep_millisecs: Some(20),
            pages_shared: Some(3),
            pages_sharing: Some(4),
            pages_unshared: Some(1_000),
            pages_volatile: Some(7),
            pages_scanned: Some(5_000),
            full_scans: Some(12),
            ksm_zero_pages: Some(2),
            general_profit: Some(4096 * 6 - 640),
            ..Ksm::default()
        };
        Sample {
            unix_time: 1_000.0,
            kernel: "6.12.0".into(),
            savings: Savings::new(4, 2, ksm.general_profit, 4096),
            replica_bytes: None,
            ksm,
            engine: None,
            ksmd_cpu_seconds: Some(1.5),
            load: Load::default(),
            nodes: None,
            tenants: None,
            notes: Vec::new(),
        }
    }

    /// An engine with all files, of which some still hold zero.
    pub fn engine() -> Engine {
        let choice = |text: &str| Some(text.parse::<Choice>().unwrap());
        Engine {
            index: choice("content [checksum]").unwrap(),
            kib_per_tree: Some(16),
            trees: Some(16_384),
            placement: choice("first [fair] priority"),
            placed_hot: Some(12),
            placed_spread: Some(1_200),
            placed_priority: Some(0),
            placed_no_room: Some(3),
            migrated: Some(50),
            migrate_refused: Some(2),
            look_cpu_permille: Some(5),
            looks: Some(300),
            look_cpu_us: Some(1_200_000),
            look_round_ms: Some(4_100),
            used_local: Some(9_000),
            used_remote: Some(1_000),
            replica_percent: Some(0),
            replicas_by_node: Some(PagesByNode(BTreeMap::from([(1, 20)]))),
            replicas_made: Some(30),
            replicas_folded: Some(10),
            replicas_refused: Some(5),
            replica_glance_ms: Some(8),
            checksum_compares: Some(1_234_567),
            content_compares: Some(2_000),
            compared_bytes: Some(6_001_000),
            collisions: Some(1),
            summed: Some(4_000),
            last_scan_ms: Some(1_250),
            last_scan_cpu_ms: Some(800),
            ..Engine::default()
        }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let before = sample();
        let mut now = sample();
        now.unix_time += 2.0;
        now.ksm.pages_scanned = Some(5_500);
        now.ksmd_cpu_seconds = Some(1.6);
        assert_eq!(now.pages_per_second(&before), Some(250.0));
        assert!((now.ksmd_cpu_share(&before).unwrap() - 0.05).abs() < 1e-9);
        now.ksm.pages_scanned = None;
        assert_eq!(now.pages_per_second(&before), None);
    }

    #[test]
    fn use_is_what_looks_saw_since_the_sample_before() {
        let with = |local, remote| {
            let engine = Engine { used_local: local, used_remote: remote, ..engine() };
            Sample { engine: Some(engine), ..sample() }
        };
        let part = |now: &Sample| now.used_locally(&with(Some(9_000), Some(1_000)));
        assert_eq!(part(&with(Some(9_030), Some(1_010))), Some(0.75), "not 89.9 %, as since boot");
        assert_eq!(part(&with(Some(9_000), Some(1_010))), Some(0.0));
        assert_eq!(part(&with(Some(9_000), Some(1_000))), None, "nothing was used");
        assert_eq!(part(&with(Some(10), Some(1_010))), None, "there was a boot");
        assert_eq!(part(&with(None, Some(1_010))), None, "only root may see it");
        assert_eq!(part(&with(Some(u64::MAX), Some(u64::MAX))), Some(1.0 - 9_000.0 / u64::MAX as f64));
        assert_eq!((part(&sample()), with(Some(1), Some(1)).used_locally(&sample())), (None, None));
    }

    #[test]
    fn replicas_are_counted_in_bytes_and_unknown_without_an_engine() {
        let file = |name: &str, text: &str| (format!("sys/kernel/mm/ksm/{name}"), text.to_owned());
        let mut files =
            vec![file("run", "1\n"), file("pages_sharing", "7\n"), file("replicas_by_node", "N0=3 N1=2\n")];
        let read = |files: &[(String, String)]| {
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let (_dir, root) = crate::shared::tree::tree(&files);
            Sample::read_counters(&root).unwrap().replica_bytes
        };
        assert_eq!(read(&files), None);
        files.push(file("index", "content [checksum]\n"));
        assert_eq!(read(&files), Some(5 * nuksm_pagemap::page_size()));
        files.remove(2);
        assert_eq!(read(&files), None, "an engine without replicas");
    }

    #[test]
    fn a_sample_of_a_version_before_has_no_replicas() {
        let mut json = serde_json::to_value(sample()).unwrap();
        json["engine"] = serde_json::json!({ "index": "checksum", "used_local": 3 });
        assert!(json.as_object_mut().unwrap().remove("replica_bytes").is_some());
        let before: Sample = serde_json::from_value(json).unwrap();
        assert_eq!((before.replica_bytes, before.engine.unwrap().used_local), (None, Some(3)));
    }

    #[test]
    fn the_glossary_knows_each_figure_of_savings_nodes_and_tenants() {
        let glossary = include_str!("../../../../docs/glossary.md");
        let mut sample = sample();
        sample.place(&crate::shared::view::tests::view());
        let json = serde_json::to_value(&sample).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let rows = [&json["savings"], &json["nodes"][0], &json["tenants"][0]];
        let figures = rows.into_iter().flat_map(keys).filter(|key| {
            ["_bytes", "_pages", "_mappings"].iter().any(|unit| key.ends_with(unit)) && key != "free_bytes"
        });
        for key in figures {
            assert!(glossary.contains(&format!("`{key}`")), "{key}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut sample = sample();
        sample.engine = Some(engine());
        sample.place(&crate::shared::view::tests::view());
        let text = serde_json::to_string(&sample).unwrap();
        let again: Sample = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
        assert_eq!(again.ksm, sample.ksm);
    }

    #[test]
    fn only_the_kernel_thread_is_ksmd() {
        let dir = tempfile::tempdir().unwrap();
        for (pid, flags, ticks) in [(20, 0, 900), (31, 0x0020_8040, 150)] {
            let proc = dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&proc).unwrap();
            let zeros = |count| vec!["0"; count].join(" ");
            let stat = format!("{pid} (ksmd) S {} {flags} {} {ticks} {}", zeros(5), zeros(4), zeros(38));
            fs::write(proc.join("stat"), stat).unwrap();
        }
        let seconds = ksmd_cpu_seconds(&Root::at(dir.path())).unwrap().unwrap();
        assert!((seconds * nuksm_numafs::TICKS_PER_SECOND - 150.0).abs() < 1e-6, "{seconds}");
    }
}
