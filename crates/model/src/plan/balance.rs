// SPDX-License-Identifier: GPL-2.0-only
//! Which shares are rounded up and which down, so that the roundings of
//! stretches do not add up within their set, nor those of sets over all.

use super::counts::{Counts, ONE};
use super::stretch::Stretch;
use super::ways::Ways;
use crate::NodeShare;
use std::collections::BTreeMap;

/// A sharing set and its stretches of memory.
pub struct Set<'a, 'pages> {
    stretches: &'a mut [Stretch<'pages>],
    /// What the stretches add up to: each node's share, rounded down or up.
    total: Counts,
}

impl<'a, 'pages> Set<'a, 'pages> {
    /// The stretches' shares are rounded already; some are rounded the other
    /// way until the set's fit.
    ///
    /// They always can be: the shares themselves fit without any rounding, and
    /// where parts of pages fit, so do whole ones (a flow has integral
    /// solutions). What one node has too many of goes to one that lacks them
    /// over others, if no stretch can hand it over at once; as many pages at a
    /// time as each step of the way allows, so that the number of ways depends
    /// on the nodes and not on the stretches.
    pub fn new(stretches: &'a mut [Stretch<'pages>], shares: &[NodeShare]) -> Self {
        let mut total = Counts::default();
        for stretch in &*stretches {
            stretch.counts.quotas().for_each(|(node, pages)| total.add(node, pages));
        }
        total.round_down(shares);
        let mut set = Self { stretches, total };
        while let Some((way, pages)) = set.misplaced() {
            for step in way.windows(2) {
                set.hand_over(step[0], step[1], pages);
            }
        }
        set.total.round_to_present();
        set
    }

    /// A way between nodes that brings the total nearer to the set's shares, and
    /// how many pages can go along it.
    fn misplaced(&self) -> Option<(Vec<u32>, usize)> {
        if self.total.fits() {
            return None;
        }
        let mut ways = Ways::default();
        self.stretches.iter().for_each(|stretch| ways.add(stretch.counts.hand_overs()));
        let above_most = ways.shortest(&self.total.above_most(), &self.total.below_most());
        above_most.or_else(|| ways.shortest(&self.total.above_least(), &self.total.below_least()))
    }

    /// Has `to` so many pages that `from` has by rounding.
    fn hand_over(&mut self, from: u32, to: u32, pages: usize) {
        let counts = self.stretches.iter_mut().map(|stretch| &mut stretch.counts);
        let able = counts.filter(|counts| counts.can_hand_over(from, to));
        let done = evenly(able.collect(), pages, |counts| counts.hand_over(from, to));
        self.total.shift(from, to, done);
    }

    /// May `to` have the page that `from` has because its share was rounded up?
    fn can_hand_over(&self, from: u32, to: u32) -> bool {
        self.total.can_hand_over(from, to)
            && self.stretches.iter().any(|stretch| stretch.counts.can_hand_over(from, to))
    }

    fn round_otherwise(&mut self, from: u32, to: u32) {
        self.hand_over(from, to, 1);
        self.total.hand_over(from, to);
    }
}

/// Hands rounded-up pages over between nodes while that brings two nodes'
/// totals over all sets nearer to what their shares add up to. Afterwards no
/// node is more than a page above its total while another is below, except
/// where no set could round the other way.
///
/// Without this, many small sets could each be right to within a page and all
/// of them be wrong the same way.
pub fn balance(sets: &mut [Set]) {
    let mut surplus = BTreeMap::<u32, i128>::new();
    for (node, part) in sets.iter().flat_map(|set| set.total.rounded_up()) {
        *surplus.entry(node).or_default() += part;
    }
    let nodes: Vec<u32> = surplus.keys().copied().collect();
    let mut changed = true;
    while changed {
        changed = false;
        for (from, to) in pairs(&nodes) {
            // A page handed over improves both totals' squares as long as they
            // are more than one page apart; each brings them two nearer.
            let excess = surplus[&from] - surplus[&to] - ONE;
            if excess <= 0 {
                continue;
            }
            let wanted = usize::try_from((excess + 2 * ONE - 1) / (2 * ONE)).unwrap_or(usize::MAX);
            let able = sets.iter_mut().filter(|set| set.can_hand_over(from, to)).collect();
            let done = evenly(able, wanted, |set| set.round_otherwise(from, to));
            let pages = i128::try_from(done).unwrap_or(0) * ONE;
            surplus.entry(from).and_modify(|total| *total -= pages);
            surplus.entry(to).and_modify(|total| *total += pages);
            changed |= done > 0;
        }
    }
}

fn pairs(nodes: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to)))
}

/// Does it with `wanted` of the items, or all if there are fewer; how many.
/// They are taken at equal steps, so that no tenant, and no part of its memory,
/// pays for another.
fn evenly<T>(items: Vec<&mut T>, wanted: usize, mut act: impl FnMut(&mut T)) -> usize {
    let count = items.len();
    let wanted = wanted.min(count);
    let mut taken = 0;
    for (index, item) in items.into_iter().enumerate() {
        if taken < wanted && index == taken * count / wanted {
            act(item);
            taken += 1;
        }
    }
    taken
}
