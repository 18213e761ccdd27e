// SPDX-License-Identifier: GPL-2.0-only
//! The placement planner: which merged pages move where.
//!
//! All shared pages are known at once, so the plan is exact. Pages are grouped
//! by sharing set (the tenants that use them), and within it by stretches of
//! neighbouring addresses, since neighbours are often used alike. Each node
//! gets its share of each set and of each stretch, rounded down or up by less
//! than a page; the roundings are chosen so that the stretches add up to their
//! set, and the sets to the shares of all. Only pages above their node's number
//! move, and counts that already fit are left alone: planning again after the
//! moves finds nothing to do.

mod balance;
mod counts;
mod ways;

pub use counts::Room;

use crate::NodeShare;
use balance::{Set, balance};
use counts::{Counts, has_room};
use std::ops::Range;

/// A merged page: where it is and who shares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The node that holds it.
    pub node: u32,
    /// Index of its sharing set.
    pub set: u32,
    /// Its place in the memory of its first sharer: neighbours there have
    /// neighbouring numbers.
    pub place: u64,
}

/// Pages of memory in a stretch: 256 KiB, where pages have 4 KiB.
const STRETCH: u64 = 64;

/// A set and one of its stretches.
type StretchId = (u32, u64);

impl Page {
    fn stretch(&self) -> StretchId {
        (self.set, self.place / STRETCH)
    }
}

/// One page to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Index of the page.
    pub page: u32,
    /// The node it should go to.
    pub to: u32,
}

/// What should be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Moves, ascending by page.
    pub moves: Vec<Move>,
    /// Pages that stay because no node they should go to has room.
    pub no_room: u64,
}

/// Plans the placement of `pages`; `sets[page.set]` are the shares of its
/// sharers' nodes ([`crate::node_shares`]).
///
/// `distance` (from, to) is used only when a page has no sharer where it is
/// and the node it should go to is full: it then goes to the sharers' node
/// with room that is nearest to all of them.
#[must_use]
pub fn plan(
    pages: &[Page],
    sets: &[impl AsRef<[NodeShare]>],
    mut room: Room,
    distance: impl Fn(u32, u32) -> u32,
) -> Plan {
    let runs = runs(pages);
    let mut stretches: Vec<Stretch> = runs
        .chunk_by(|left, right| left.stretch == right.stretch)
        .map(|runs| Stretch::new(runs, pages))
        .collect();
    round(&mut stretches, sets);

    let mut plan = Plan::default();
    for stretch in stretches.iter_mut().filter(|stretch| stretch.counts.has_surplus()) {
        let (set, seed) = (stretch.set(), stretch.first_place());
        for index in stretch.by_place(pages) {
            let from = pages[index as usize].node;
            if !stretch.counts.must_leave(from, seed) {
                continue;
            }
            let nearest = || nearest_with_room(sets[set].as_ref(), from, &room, &distance);
            match stretch.counts.take_deficit(&room, seed).or_else(nearest) {
                Some(to) => {
                    room.entry(to).and_modify(|free| *free -= 1);
                    plan.moves.push(Move { page: index, to });
                }
                None => plan.no_room += 1,
            }
        }
    }
    plan.moves.sort_unstable_by_key(|step| step.page);
    plan
}

/// Pages of a stretch that follow each other in the order of frames.
struct Run {
    stretch: StretchId,
    pages: Range<u32>,
}

/// All runs, by stretch. There are few: neighbouring frames mostly have
/// neighbouring places.
fn runs(pages: &[Page]) -> Vec<Run> {
    let mut next = 0_u32;
    let run = |neighbours: &[Page]| {
        let first = next;
        next += u32::try_from(neighbours.len()).unwrap_or(0);
        Run { stretch: neighbours[0].stretch(), pages: first..next }
    };
    let neighbours = pages.chunk_by(|left, right| left.stretch() == right.stretch());
    let mut runs: Vec<Run> = neighbours.map(run).collect();
    runs.sort_unstable_by_key(|run| run.stretch);
    runs
}

/// A set's pages in a stretch of its first tenant's memory.
struct Stretch<'a> {
    runs: &'a [Run],
    counts: Counts,
}

impl<'a> Stretch<'a> {
    fn new(runs: &'a [Run], pages: &[Page]) -> Self {
        let mut counts = Counts::default();
        for index in runs.iter().flat_map(|run| run.pages.clone()) {
            counts.add(pages[index as usize].node, 1);
        }
        Self { runs, counts }
    }

    fn set(&self) -> usize {
        self.runs[0].stretch.0 as usize
    }

    fn first_place(&self) -> u64 {
        self.runs[0].stretch.1 * STRETCH
    }

    /// Indexes of its pages, by their places.
    fn by_place(&self, pages: &[Page]) -> Vec<u32> {
        let mut indexes: Vec<u32> = self.runs.iter().flat_map(|run| run.pages.clone()).collect();
        indexes.sort_unstable_by_key(|&index| pages[index as usize].place);
        indexes
    }
}

/// Fixes how many pages each node should have of each stretch.
fn round(stretches: &mut [Stretch], sets: &[impl AsRef<[NodeShare]>]) {
    for stretch in &mut *stretches {
        stretch.counts.round_down(sets[stretch.set()].as_ref());
        stretch.counts.round_up_towards_present();
    }
    let mut rounded: Vec<Set> = stretches
        .chunk_by_mut(|left, right| left.set() == right.set())
        .map(|of_set| {
            let shares = sets[of_set[0].set()].as_ref();
            Set::new(of_set, shares)
        })
        .collect();
    balance(&mut rounded);
}

/// A better place for a page on `node`, where it has no sharer.
fn nearest_with_room(
    shares: &[NodeShare],
    node: u32,
    room: &Room,
    distance: impl Fn(u32, u32) -> u32,
) -> Option<u32> {
    if shares.iter().any(|share| share.node == node) {
        return None;
    }
    let cost = |to: u32| {
        let costs = shares.iter().map(|share| share.weight * u128::from(distance(share.node, to)));
        costs.sum::<u128>()
    };
    let with_room = shares.iter().map(|share| share.node).filter(|&to| has_room(room, to));
    with_room.min_by_key(|&to| (cost(to), to)).filter(|&to| cost(to) < cost(node))
}

#[cfg(test)]
mod tests;
