// SPDX-License-Identifier: GPL-2.0-only
//! What KSM says of itself, and is told: `/sys/kernel/mm/ksm` and
//! `/proc/PID/ksm_*`.
//!
//! The set of files grew over the kernels' versions, so every one of them is
//! an `Option`: `None` means that this kernel has no such file.

mod control;
mod engine;
mod scan;
#[cfg(test)]
mod testing;

pub use control::Control;
pub use engine::{Choice, Engine, PagesByNode, Setting};
pub use scan::{Advisor, ScanSettings};

use control::DIR;
use nuksm_sysroot::{Result, Root};
use serde::{Deserialize, Serialize};

/// Settings and counters of KSM, named as their files in sysfs are.
///
/// Pages are of the machine's base page size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ksm {
    /// 0 stopped, 1 merging, 2 everything un-merged.
    pub run: Option<u64>,
    /// Pages ksmd looks at before it sleeps.
    pub pages_to_scan: Option<u64>,
    /// How long ksmd then sleeps, in milliseconds.
    pub sleep_millisecs: Option<u64>,
    /// 1: pages of different nodes may be merged.
    pub merge_across_nodes: Option<u64>,
    /// Mappings one merged page may have.
    pub max_page_sharing: Option<u64>,
    /// 1: pages of zeroes become the kernel's zero page.
    pub use_zero_pages: Option<u64>,
    /// 1: pages that did not merge lately are skipped for some scans.
    pub smart_scan: Option<u64>,
    /// Merged pages in memory.
    pub pages_shared: Option<u64>,
    /// Further places that use them: the pages saved.
    pub pages_sharing: Option<u64>,
    /// Pages that were unique so far.
    pub pages_unshared: Option<u64>,
    /// Pages that change too fast.
    pub pages_volatile: Option<u64>,
    /// Pages looked at since boot.
    pub pages_scanned: Option<u64>,
    /// Pages skipped by `smart_scan`.
    pub pages_skipped: Option<u64>,
    /// How often all mergeable memory was scanned.
    pub full_scans: Option<u64>,
    /// Mappings of the kernel's zero page made by KSM.
    pub ksm_zero_pages: Option<u64>,
    /// Bytes saved less bytes of KSM's own metadata.
    pub general_profit: Option<i64>,
}

impl Ksm {
    /// Reads all of it; `None` when this kernel is built without KSM.
    pub fn read(root: &Root) -> Result<Option<Self>> {
        if !root.path(DIR).is_dir() {
            return Ok(None);
        }
        let number = |name: &str| root.value::<u64>(format!("{DIR}/{name}"), "a number");
        Ok(Some(Self {
            run: number("run")?,
            pages_to_scan: number("pages_to_scan")?,
            sleep_millisecs: number("sleep_millisecs")?,
            merge_across_nodes: number("merge_across_nodes")?,
            max_page_sharing: number("max_page_sharing")?,
            use_zero_pages: number("use_zero_pages")?,
            smart_scan: number("smart_scan")?,
            pages_shared: number("pages_shared")?,
            pages_sharing: number("pages_sharing")?,
            pages_unshared: number("pages_unshared")?,
            pages_volatile: number("pages_volatile")?,
            pages_scanned: number("pages_scanned")?,
            pages_skipped: number("pages_skipped")?,
            full_scans: number("full_scans")?,
            // The kernel's count can fall below zero, when a process forks while ksmd
            // is at its pages.
            ksm_zero_pages: root
                .value::<i64>(format!("{DIR}/ksm_zero_pages"), "a number")?
                .map(|pages| u64::try_from(pages).unwrap_or(0)),
            general_profit: root.value(format!("{DIR}/general_profit"), "a number")?,
        }))
    }
}

/// What KSM knows of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessKsm {
    /// Pages of the process that ksmd tracks.
    pub rmap_items: Option<u64>,
    /// Pages of the process that are merged, the zero page apart.
    pub merging_pages: Option<u64>,
    /// Those on the node where the process's own copy was before merging; only
    /// the engine counts them.
    pub merged_local: Option<u64>,
    /// Those on another node.
    pub merged_remote: Option<u64>,
    /// The merge domain it belongs to; only who may administer the machine is told.
    pub domain: Option<u64>,
    /// One that it left, and in which some of its pages may still be merged.
    pub domain_left: Option<u64>,
}

impl ProcessKsm {
    /// Reads `/proc/PID/ksm_stat`, and on older kernels `ksm_merging_pages`.
    ///
    /// All fields are `None` when the kernel has neither, when the process
    /// ended, and for kernel threads.
    pub fn read(root: &Root, pid: u32) -> Result<Self> {
        let path = format!("proc/{pid}/ksm_stat");
        let mut stat = Self::default();
        for line in root.text(&path)?.unwrap_or_default().lines() {
            let Some((key, value)) = line.split_once([' ', ':']) else {
                return Err(root.malformed(&path, "lines of a name and a value", line));
            };
            let field = match key {
                "ksm_rmap_items" => &mut stat.rmap_items,
                "ksm_merging_pages" => &mut stat.merging_pages,
                "ksm_merged_local" => &mut stat.merged_local,
                "ksm_merged_remote" => &mut stat.merged_remote,
                "ksm_domain" => &mut stat.domain,
                "ksm_domain_left" => &mut stat.domain_left,
                _ => continue,
            };
            let number = value.trim().parse().map_err(|_| root.malformed(&path, "a number", line))?;
            *field = Some(number);
        }
        if stat == Self::default() {
            let path = format!("proc/{pid}/ksm_merging_pages");
            // Kernel threads have the file, and nothing in it.
            if root.text(&path)?.is_some_and(|text| !text.is_empty()) {
                stat.merging_pages = root.value(path, "a number")?;
            }
        }
        Ok(stat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn root(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn a_kernel_without_ksm_is_none() {
        let (_dir, root) = root(&[("sys/kernel/mm/other", "")]);
        assert_eq!(Ksm::read(&root).unwrap(), None);
    }

    #[test]
    fn counters_an_old_kernel_lacks_are_none_not_zero() {
        let (_dir, root) =
            root(&[("sys/kernel/mm/ksm/run", "1\n"), ("sys/kernel/mm/ksm/pages_shared", "0\n")]);
        let ksm = Ksm::read(&root).unwrap().unwrap();
        assert_eq!((ksm.run, ksm.pages_shared, ksm.ksm_zero_pages), (Some(1), Some(0), None));
    }

    #[test]
    fn a_loss_is_negative_profit() {
        let (_dir, root) = root(&[("sys/kernel/mm/ksm/general_profit", "-64\n")]);
        assert_eq!(Ksm::read(&root).unwrap().unwrap().general_profit, Some(-64));
    }

    #[test]
    fn a_count_of_zero_pages_below_zero_is_none_of_them() {
        let (_dir, root) = root(&[("sys/kernel/mm/ksm/ksm_zero_pages", "-58\n")]);
        assert_eq!(Ksm::read(&root).unwrap().unwrap().ksm_zero_pages, Some(0));
    }

    #[test]
    fn bad_content_names_the_file() {
        let (_dir, root) = root(&[("sys/kernel/mm/ksm/run", "maybe\n")]);
        let message = Ksm::read(&root).unwrap_err().to_string();
        assert!(message.contains("ksm/run: expected a number, found \"maybe\""), "{message}");
    }

    #[test]
    fn new_kernels_old_kernels_and_kernel_threads() {
        let (_dir, root) = root(&[
            (
                "proc/7/ksm_stat",
                "ksm_rmap_items 9\nksm_zero_pages 1\nksm_merging_pages 8\nksm_process_profit -5\n",
            ),
            ("proc/8/ksm_merging_pages", "3\n"),
            ("proc/9/ksm_stat", "ksm_rmap_items 9\nksm_merge_any: no\n"),
            ("proc/12/ksm_stat", ""),
            ("proc/12/ksm_merging_pages", ""),
            ("proc/10/ksm_stat", "ksm_rmap_items many\n"),
        ]);
        let read = |pid| ProcessKsm::read(&root, pid).unwrap();
        let stock =
            |rmap_items, merging_pages| ProcessKsm { rmap_items, merging_pages, ..Default::default() };
        assert_eq!(read(7), stock(Some(9), Some(8)));
        assert_eq!(read(8), stock(None, Some(3)));
        assert_eq!(read(12), ProcessKsm::default());
        assert_eq!(read(9), stock(Some(9), None));
        assert_eq!(read(11), ProcessKsm::default());
        assert!(ProcessKsm::read(&root, 10).unwrap_err().to_string().contains("ksm_rmap_items many"));
    }

    #[test]
    fn the_engine_tells_near_pages_from_far_ones() {
        let (_dir, root) = root(&[
            ("proc/7/ksm_stat", "ksm_merging_pages 8\nksm_merged_local 0\nksm_merged_remote 8\n"),
            ("proc/8/ksm_stat", "ksm_merging_pages 8\nksm_merged_local -1\n"),
            ("proc/9/ksm_stat", "ksm_merging_pages 8\nksm_domain 4294967296\nksm_domain_left 0\n"),
        ]);
        let stat = ProcessKsm::read(&root, 9).unwrap();
        assert_eq!((stat.domain, stat.domain_left), (Some(1 << 32), Some(0)));
        let stat = ProcessKsm::read(&root, 7).unwrap();
        assert_eq!((stat.merged_local, stat.merged_remote), (Some(0), Some(8)));
        assert_eq!((stat.domain, stat.domain_left), (None, None), "this user may not know");
        assert!(ProcessKsm::read(&root, 8).unwrap_err().to_string().contains("ksm_merged_local -1"));
    }
}
