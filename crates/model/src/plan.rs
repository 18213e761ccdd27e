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
mod stretch;
mod ways;

pub use counts::Room;
pub use stretch::Page;

use crate::NodeShare;
use balance::{Set, balance};
use counts::has_room;
use stretch::{Run, Stretch, runs};

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
    let mut stretches: Vec<Stretch> =
        runs.chunk_by(Run::is_beside).map(|runs| Stretch::new(runs, pages)).collect();
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
