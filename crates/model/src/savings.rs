// SPDX-License-Identifier: GPL-2.0-only
//! What merging saves, and how fast it goes.

use serde::{Deserialize, Serialize};

/// Memory saved by KSM, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Savings {
    /// Freed by merging: one page per further place that uses a merged page.
    #[serde(alias = "merged_bytes")]
    pub saved_bytes: u64,
    /// Freed by mapping the kernel's zero page instead of pages of zeroes.
    #[serde(alias = "zero_page_bytes")]
    pub zero_page_saved_bytes: u64,
    /// Used by KSM for its own records; `None` when this kernel does not say.
    pub metadata_bytes: Option<u64>,
    /// What is left of the first two after the third; negative when KSM costs
    /// more than it saves.
    #[serde(alias = "net_bytes")]
    pub net_saved_bytes: Option<i64>,
}

impl Savings {
    /// From the counters `pages_sharing`, `ksm_zero_pages` and, where the
    /// kernel has it, `general_profit`.
    ///
    /// The kernel computes the last as saved bytes less metadata, so the
    /// metadata is the difference. (`pages_shared` is not saved: those pages
    /// are the copies that stay.)
    #[must_use]
    pub fn new(pages_sharing: u64, zero_pages: u64, general_profit: Option<i64>, page_size: u64) -> Self {
        let saved_bytes = pages_sharing * page_size;
        let zero_page_saved_bytes = zero_pages * page_size;
        let saved = i64::try_from(saved_bytes + zero_page_saved_bytes).unwrap_or(i64::MAX);
        // The counters are read one after the other while ksmd runs, so the
        // difference may come out negative for a moment.
        let metadata_bytes = general_profit.map(|profit| u64::try_from(saved - profit).unwrap_or(0));
        Self { saved_bytes, zero_page_saved_bytes, metadata_bytes, net_saved_bytes: general_profit }
    }
}

/// How long ksmd needs for all `tracked_pages` when it looks at
/// `pages_to_scan` and then sleeps `sleep_millisecs`: the sleeping alone, so
/// the least it can take. `None` when it would never end.
#[must_use]
pub fn full_scan_seconds(tracked_pages: u64, pages_to_scan: u64, sleep_millisecs: u64) -> Option<f64> {
    (pages_to_scan > 0)
        .then(|| tracked_pages.div_ceil(pages_to_scan) as f64 * sleep_millisecs as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_subtracted_and_zero_pages_stand_apart() {
        // 10 pages and 2 zero pages saved, 24 records of 64 bytes.
        let savings = Savings::new(10, 2, Some(12 * 4096 - 24 * 64), 4096);
        assert_eq!((savings.saved_bytes, savings.zero_page_saved_bytes), (40_960, 8_192));
        assert_eq!((savings.metadata_bytes, savings.net_saved_bytes), (Some(1_536), Some(47_616)));
    }

    #[test]
    fn a_loss_shows_and_the_unknown_stays_unknown() {
        assert_eq!(Savings::new(0, 0, Some(-640), 4096).net_saved_bytes, Some(-640));
        let old_kernel = Savings::new(5, 0, None, 4096);
        assert_eq!((old_kernel.metadata_bytes, old_kernel.net_saved_bytes), (None, None));
    }

    #[test]
    fn a_scan_lasts_as_long_as_ksmd_sleeps_meanwhile() {
        assert_eq!(full_scan_seconds(1_000, 100, 20), Some(0.2));
        assert_eq!(full_scan_seconds(1_001, 100, 20), Some(0.22));
        assert_eq!(full_scan_seconds(1_000, 0, 20), None);
    }
}
