// SPDX-License-Identifier: GPL-2.0-only
//! The placement planner: which merged pages move where.
//!
//! All shared pages are known at once, so the plan is exact. Pages are grouped
//! by sharing set (the tenants that use them); each node gets its share of
//! each set, rounded down or up by less than a page, and the roundings are
//! chosen so that over all sets the shares come out as well. Only pages above
//! their node's number move, and counts that already fit are left alone:
//! planning again after the moves finds nothing to do.

use crate::NodeShare;
use std::collections::BTreeMap;

/// A merged page: where it is and who shares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The node that holds it.
    pub node: u32,
    /// Index of its sharing set.
    pub set: u32,
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

/// Pages that each node can still take; a node that is not named takes none.
pub type Room = BTreeMap<u32, u64>;

/// Plans the placement of `pages`; `sets[page.set]` are the shares of its
/// sharers' nodes ([`crate::node_shares`]).
///
/// `distance` (from, to) is used only when a page has no sharer where it is
/// and the node it should go to is full: it then goes to the sharers' node
/// with room that is nearest to all of them.
#[must_use]
pub fn plan(
    pages: &[Page],
    sets: &[Vec<NodeShare>],
    mut room: Room,
    distance: impl Fn(u32, u32) -> u32,
) -> Plan {
    let mut counts: Vec<SetCounts> = sets.iter().map(|shares| SetCounts::new(shares)).collect();
    for page in pages {
        counts[page.set as usize].add(page.node);
    }
    for set in &mut counts {
        set.round_towards_present();
    }
    balance_roundings(&mut counts);

    let mut plan = Plan::default();
    for (index, page) in (0_u32..).zip(pages) {
        let set = &mut counts[page.set as usize];
        if !set.must_leave(page.node) {
            continue;
        }
        let to = match set.take_deficit(&room) {
            Some(node) => Some(node),
            None => set.nearest_with_room(page.node, &room, &distance),
        };
        match to {
            Some(to) => {
                room.entry(to).and_modify(|free| *free -= 1);
                plan.moves.push(Move { page: index, to });
            }
            None => plan.no_room += 1,
        }
    }
    plan
}

/// A sharing set's pages on one node.
#[derive(Debug, Clone, Default)]
struct OnNode {
    node: u32,
    /// Share of the set; 0 for a node without a sharer.
    weight: u128,
    /// Pages that are here.
    count: u64,
    /// Pages that should be here.
    quota: u64,
    /// Numerator of the part of a page that rounding down left over.
    rest: u128,
    /// Was this node's share rounded up?
    up: bool,
    /// Pages still to come.
    deficit: u64,
    /// Pages seen times surplus, modulo count: spreads those that leave
    /// evenly over those that are here.
    spread: u64,
}

/// A sharing set's pages, node by node.
#[derive(Debug, Clone)]
struct SetCounts {
    nodes: Vec<OnNode>,
    weight_sum: u128,
}

impl SetCounts {
    fn new(shares: &[NodeShare]) -> Self {
        let on_node =
            |share: &NodeShare| OnNode { node: share.node, weight: share.weight, ..OnNode::default() };
        Self {
            nodes: shares.iter().map(on_node).collect(),
            weight_sum: shares.iter().map(|share| share.weight).sum(),
        }
    }

    fn add(&mut self, node: u32) {
        match self.nodes.iter_mut().find(|entry| entry.node == node) {
            Some(entry) => entry.count += 1,
            None => self.nodes.push(OnNode { node, count: 1, ..OnNode::default() }),
        }
    }

    /// Rounds the nodes' shares to whole pages, up where the pages already
    /// are, then where most was cut off.
    fn round_towards_present(&mut self) {
        let total: u64 = self.nodes.iter().map(|entry| entry.count).sum();
        let sum = self.weight_sum;
        if sum == 0 {
            // Nobody to be local to: leave everything where it is.
            for entry in &mut self.nodes {
                entry.quota = entry.count;
            }
            return;
        }
        for entry in &mut self.nodes {
            let share = u128::from(total) * entry.weight;
            entry.quota = u64::try_from(share / sum).unwrap_or(total);
            entry.rest = share % sum;
        }
        let left_over = total - self.nodes.iter().map(|entry| entry.quota).sum::<u64>();
        let mut order: Vec<usize> =
            (0..self.nodes.len()).filter(|&index| self.nodes[index].rest > 0).collect();
        order.sort_by_key(|&index| {
            let entry = &self.nodes[index];
            (entry.count <= entry.quota, std::cmp::Reverse(entry.rest), entry.node)
        });
        for index in order.into_iter().take(usize::try_from(left_over).unwrap_or(usize::MAX)) {
            self.nodes[index].up = true;
        }
    }

    fn rounding(&self, node: u32) -> Option<&OnNode> {
        self.nodes.iter().find(|entry| entry.node == node && entry.rest > 0)
    }

    /// May the page rounded up on `from` be had by `to` instead?
    fn can_hand_over(&self, from: u32, to: u32) -> bool {
        self.rounding(from).is_some_and(|entry| entry.up) && self.rounding(to).is_some_and(|entry| !entry.up)
    }

    fn hand_over(&mut self, from: u32, to: u32) {
        for entry in &mut self.nodes {
            if entry.node == from || entry.node == to {
                entry.up = entry.node == to;
            }
        }
    }

    /// Fixes the quotas; from now on pages are told to leave or stay.
    fn settle(&mut self) {
        for entry in &mut self.nodes {
            entry.quota += u64::from(entry.up);
            entry.deficit = entry.quota.saturating_sub(entry.count);
        }
    }

    /// Is the next page on `node` one of those above the quota?
    fn must_leave(&mut self, node: u32) -> bool {
        let Some(entry) = self.nodes.iter_mut().find(|entry| entry.node == node) else {
            return false;
        };
        entry.spread += entry.count.saturating_sub(entry.quota);
        let leaves = entry.spread >= entry.count;
        if leaves {
            entry.spread -= entry.count;
        }
        leaves
    }

    /// The node with room that lacks most pages of this set; one less after.
    fn take_deficit(&mut self, room: &Room) -> Option<u32> {
        let lacking = self.nodes.iter_mut().filter(|entry| entry.deficit > 0 && has_room(room, entry.node));
        let entry = lacking.max_by_key(|entry| (entry.deficit, std::cmp::Reverse(entry.node)))?;
        entry.deficit -= 1;
        Some(entry.node)
    }

    /// A better place for a page on `node`, where it has no sharer.
    fn nearest_with_room(&self, node: u32, room: &Room, distance: impl Fn(u32, u32) -> u32) -> Option<u32> {
        let shares = || self.nodes.iter().filter(|entry| entry.weight > 0);
        if shares().any(|entry| entry.node == node) {
            return None;
        }
        let cost =
            |to: u32| shares().map(|entry| entry.weight * u128::from(distance(entry.node, to))).sum::<u128>();
        let best = shares()
            .map(|entry| entry.node)
            .filter(|&to| has_room(room, to))
            .min_by_key(|&to| (cost(to), to));
        best.filter(|&to| cost(to) < cost(node))
    }
}

fn has_room(room: &Room, node: u32) -> bool {
    room.get(&node).is_some_and(|&free| free > 0)
}

/// One page, in the unit in which parts of pages are added up.
const ONE: i128 = 1 << 32;

/// Hands rounded-up pages over between nodes while that brings two nodes'
/// totals over all sets nearer to what their shares add up to, then fixes all
/// quotas. Afterwards no node is more than a page above its total while
/// another is below, except where no set could round the other way.
///
/// Without this, many small sets could each be right to within a page and all
/// of them be wrong the same way. The sets that hand over are taken at equal
/// steps along their order, so that no tenant pays for another.
fn balance_roundings(sets: &mut [SetCounts]) {
    let mut surplus = BTreeMap::<u32, i128>::new();
    for set in sets.iter() {
        for entry in set.nodes.iter().filter(|entry| entry.rest > 0) {
            let cut_off = i128::try_from(entry.rest * (1 << 32) / set.weight_sum).unwrap_or(0);
            *surplus.entry(entry.node).or_default() += if entry.up { ONE - cut_off } else { -cut_off };
        }
    }
    let nodes: Vec<u32> = surplus.keys().copied().collect();
    let pairs = || nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to)));
    loop {
        let mut changed = false;
        for (from, to) in pairs() {
            // A page handed over improves both totals' squares as long as they
            // are more than one page apart; each brings them two nearer.
            let excess = surplus[&from] - surplus[&to] - ONE;
            if excess <= 0 {
                continue;
            }
            let able: Vec<usize> = (0..sets.len()).filter(|&set| sets[set].can_hand_over(from, to)).collect();
            let wanted =
                usize::try_from((excess + 2 * ONE - 1) / (2 * ONE)).unwrap_or(usize::MAX).min(able.len());
            for step in 0..wanted {
                sets[able[step * able.len() / wanted]].hand_over(from, to);
            }
            let pages = i128::try_from(wanted).unwrap_or(0) * ONE;
            surplus.entry(from).and_modify(|total| *total -= pages);
            surplus.entry(to).and_modify(|total| *total += pages);
            changed |= wanted > 0;
        }
        if !changed {
            break;
        }
    }
    sets.iter_mut().for_each(SetCounts::settle);
}

#[cfg(test)]
mod tests;
