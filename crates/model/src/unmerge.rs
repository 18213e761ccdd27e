// SPDX-License-Identifier: GPL-2.0-only
//! What un-merging takes from each node.

use std::collections::BTreeMap;

/// Pages that un-merging takes from one node, and gives back to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCost {
    /// Copies to be made here.
    pub copies: u64,
    /// Merged pages here that are free once all their mappings have copies.
    pub freed: u64,
    /// The most that is taken at any moment, when page follows page.
    pub peak: u64,
    taken: i64,
}

impl NodeCost {
    /// Pages that the node has too few of, with `free` of them to spare.
    #[must_use]
    pub fn missing(&self, free: u64) -> u64 {
        self.peak.saturating_sub(free)
    }
}

/// The cost of un-merging page after page, on every node.
///
/// The kernel never hands the merged page itself back to the last of its
/// mappings: each of them gets a copy, and then the merged page is freed. So the
/// whole grows by one page for each mapping but the first, but a node whose
/// tenants found their pages elsewhere grows by more, and the other by less.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnmergeCost {
    /// By node.
    pub nodes: BTreeMap<u32, NodeCost>,
}

impl UnmergeCost {
    /// Adds a merged page on `node` whose mappings get `copies`, each on the
    /// node named; with `freed`, no other mapping keeps the page.
    pub fn add_page(&mut self, node: u32, copies: impl IntoIterator<Item = u32>, freed: bool) {
        for home in copies {
            let cost = self.nodes.entry(home).or_default();
            cost.copies += 1;
            cost.taken += 1;
            cost.peak = cost.peak.max(u64::try_from(cost.taken).unwrap_or(0));
        }
        if freed {
            let cost = self.nodes.entry(node).or_default();
            cost.freed += 1;
            cost.taken -= 1;
        }
    }

    /// All copies.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.nodes.values().map(|cost| cost.copies).sum()
    }

    /// By how much the memory in use grows in the end.
    #[must_use]
    pub fn growth(&self) -> u64 {
        self.copies().saturating_sub(self.nodes.values().map(|cost| cost.freed).sum())
    }

    /// Pages to spare on all nodes together after the work, when every node has
    /// enough; `free` is what each has to spare now.
    #[must_use]
    pub fn spare(&self, free: &BTreeMap<u32, u64>) -> u64 {
        let after = free.iter().map(|(node, &free)| {
            let taken = self.nodes.get(node).map_or(0, |cost| cost.taken);
            free.saturating_add_signed(-taken)
        });
        after.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_mapping_gets_a_page_where_its_tenant_lives() {
        let mut cost = UnmergeCost::default();
        for _ in 0..100 {
            cost.add_page(1, [0, 1], true);
        }
        let near = cost.nodes[&1];
        let far = cost.nodes[&0];
        assert_eq!((far.copies, far.freed, far.peak), (100, 0, 100));
        assert_eq!(
            (near.copies, near.freed, near.peak),
            (100, 100, 1),
            "only the page at hand is there twice"
        );
        assert_eq!((cost.copies(), cost.growth()), (200, 100));
        assert_eq!((far.missing(99), far.missing(100)), (1, 0));
    }

    #[test]
    fn a_page_that_others_keep_frees_nothing() {
        let mut cost = UnmergeCost::default();
        cost.add_page(0, [1], false);
        assert_eq!((cost.nodes.len(), cost.nodes[&1].copies, cost.growth()), (1, 1, 1));
    }

    #[test]
    fn what_is_spare_counts_what_was_freed() {
        let mut cost = UnmergeCost::default();
        cost.add_page(0, [1, 1], true);
        assert_eq!(cost.spare(&BTreeMap::from([(0, 5), (1, 5)])), 6 + 3);
    }

    proptest! {
        #[test]
        fn the_peak_lies_between_the_growth_and_the_copies(
            pages in proptest::collection::vec((0_u32..3, proptest::collection::vec(0_u32..3, 1..4)), 0..60)
        ) {
            let mut cost = UnmergeCost::default();
            for (node, homes) in &pages {
                cost.add_page(*node, homes.iter().copied(), true);
            }
            let mappings: usize = pages.iter().map(|(_, homes)| homes.len()).sum();
            prop_assert_eq!(cost.copies(), mappings as u64);
            prop_assert_eq!(cost.growth(), (mappings - pages.len()) as u64);
            for node in cost.nodes.values() {
                prop_assert!(node.peak <= node.copies);
                prop_assert!(node.peak >= node.copies.saturating_sub(node.freed));
            }
        }
    }
}
