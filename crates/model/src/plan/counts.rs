// SPDX-License-Identifier: GPL-2.0-only
//! How many of some pages are on each node, and how many should be.

use crate::NodeShare;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Pages that each node can still take; a node that is not named takes none.
pub type Room = BTreeMap<u32, u64>;

/// One page, in the unit in which parts of pages are added up.
pub const ONE: i128 = 1 << 32;

/// Pages on one node.
#[derive(Debug, Clone, Default)]
struct OnNode {
    node: u32,
    /// Pages that are here.
    count: u32,
    /// Pages that should be here.
    quota: u32,
    rounding: Rounding,
    /// Of those that are here, how many were asked about.
    asked: u32,
    /// Pages that are to come.
    coming: u32,
}

/// How a node's share became a number of pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Rounding {
    /// It is one.
    #[default]
    Exact,
    /// This part of a page was cut off, in 2^-32.
    Down(u32),
    /// This part of a page would have been cut off.
    Up(u32),
}

/// Some pages, node by node.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    nodes: Vec<OnNode>,
}

impl Counts {
    fn on(&mut self, node: u32) -> &mut OnNode {
        let known = self.nodes.iter().position(|entry| entry.node == node);
        let index = known.unwrap_or_else(|| {
            // There are many of these, of few nodes each.
            self.nodes.reserve_exact(1);
            self.nodes.push(OnNode { node, ..OnNode::default() });
            self.nodes.len() - 1
        });
        &mut self.nodes[index]
    }

    pub fn add(&mut self, node: u32, pages: u32) {
        self.on(node).count += pages;
    }

    /// Each node and the pages it should have.
    pub fn quotas(&self) -> impl Iterator<Item = (u32, u32)> {
        self.nodes.iter().map(|entry| (entry.node, entry.quota))
    }

    /// By how much of a page each node's quota is above its share, in [`ONE`]s.
    pub fn rounded_up(&self) -> impl Iterator<Item = (u32, i128)> {
        self.nodes.iter().filter_map(|entry| match entry.rounding {
            Rounding::Exact => None,
            Rounding::Down(part) => Some((entry.node, -i128::from(part))),
            Rounding::Up(part) => Some((entry.node, ONE - i128::from(part))),
        })
    }

    /// Rounds the nodes' shares down to whole pages. Where nobody has a share,
    /// there is nobody to be local to: all stay where they are.
    pub fn round_down(&mut self, shares: &[NodeShare]) {
        let sum: u128 = shares.iter().map(|share| share.weight).sum();
        if sum == 0 {
            self.nodes.iter_mut().for_each(|entry| entry.quota = entry.count);
            return;
        }
        let total = self.nodes.iter().map(|entry| entry.count).sum();
        for share in shares {
            let pages = u128::from(total) * share.weight;
            let entry = self.on(share.node);
            entry.quota = u32::try_from(pages / sum).unwrap_or(total);
            if pages % sum > 0 {
                let part = pages % sum * (1 << 32) / sum;
                entry.rounding = Rounding::Down(u32::try_from(part).unwrap_or(u32::MAX));
            }
        }
    }

    /// Of what was rounded down, rounds up what is lacking to all pages: where
    /// the pages already are, then where most was cut off.
    pub fn round_up_towards_present(&mut self) {
        let all: u32 = self.nodes.iter().map(|entry| entry.count).sum();
        let lacking = all - self.nodes.iter().map(|entry| entry.quota).sum::<u32>();
        let mut rounded: Vec<_> = self.nodes.iter_mut().filter(|entry| entry.cut_off().is_some()).collect();
        rounded.sort_by_key(|entry| (entry.count <= entry.quota, Reverse(entry.cut_off()), entry.node));
        rounded.into_iter().take(lacking as usize).for_each(OnNode::turn);
    }

    /// May the page rounded up on `from` be had by `to` instead?
    pub fn can_hand_over(&self, from: u32, to: u32) -> bool {
        #[cfg(test)]
        LOOKS.with(|looks| looks.set(looks.get() + 1));
        let rounding = |node| {
            let entry = self.nodes.iter().find(|entry| entry.node == node);
            entry.map_or(Rounding::Exact, |entry| entry.rounding)
        };
        matches!((rounding(from), rounding(to)), (Rounding::Up(_), Rounding::Down(_)))
    }

    pub fn hand_over(&mut self, from: u32, to: u32) {
        self.on(from).turn();
        self.on(to).turn();
    }

    /// Each two nodes of which the second may have a page of the first.
    pub fn hand_overs(&self) -> impl Iterator<Item = (u32, u32)> {
        #[cfg(test)]
        LOOKS.with(|looks| looks.set(looks.get() + 1));
        let rounded_up = self.nodes.iter().filter(|entry| matches!(entry.rounding, Rounding::Up(_)));
        rounded_up.flat_map(|from| {
            let rounded_down = self.nodes.iter().filter(|entry| matches!(entry.rounding, Rounding::Down(_)));
            rounded_down.map(|to| (from.node, to.node))
        })
    }

    /// Of shares that are rounded down: has each node its share, rounded down or
    /// up?
    pub fn fits(&self) -> bool {
        self.nodes.iter().all(|entry| (entry.quota..=entry.most()).contains(&entry.count))
    }

    /// Nodes with more pages than their share rounded up, and how many more.
    pub fn above_most(&self) -> BTreeMap<u32, u32> {
        self.nodes_with(|entry| entry.count.saturating_sub(entry.most()))
    }

    /// Nodes with fewer pages than their share rounded up, and how many fewer.
    pub fn below_most(&self) -> BTreeMap<u32, u32> {
        self.nodes_with(|entry| entry.most().saturating_sub(entry.count))
    }

    /// Nodes with more pages than their share rounded down, and how many more.
    pub fn above_least(&self) -> BTreeMap<u32, u32> {
        self.nodes_with(|entry| entry.count.saturating_sub(entry.quota))
    }

    /// Nodes with fewer pages than their share rounded down, and how many fewer.
    pub fn below_least(&self) -> BTreeMap<u32, u32> {
        self.nodes_with(|entry| entry.quota.saturating_sub(entry.count))
    }

    /// The nodes with any pages by that count.
    fn nodes_with(&self, pages: impl Fn(&OnNode) -> u32) -> BTreeMap<u32, u32> {
        self.nodes.iter().map(|entry| (entry.node, pages(entry))).filter(|&(_, pages)| pages > 0).collect()
    }

    /// Counts so many pages on the other node.
    pub fn shift(&mut self, from: u32, to: u32, pages: usize) {
        let pages = u32::try_from(pages).unwrap_or(0);
        self.on(from).count -= pages;
        self.on(to).count += pages;
    }

    /// Rounds up where there is a page more.
    pub fn round_to_present(&mut self) {
        self.nodes.iter_mut().filter(|entry| entry.count > entry.quota).for_each(OnNode::turn);
    }

    /// Must any page leave its node?
    pub fn has_surplus(&self) -> bool {
        self.nodes.iter().any(|entry| entry.count > entry.quota)
    }

    /// Is the next page on `node` one of those above the quota?
    ///
    /// One page of each of as many equal steps through the node's pages leaves.
    /// Which one, and where steps begin, is left to chance, as `seed` has it:
    /// of data that is used at regular distances, such as a database's page
    /// headers, all could else be on one node.
    pub fn must_leave(&mut self, node: u32, seed: u64) -> bool {
        let entry = self.on(node);
        let (count, surplus) = (u64::from(entry.count), u64::from(entry.count.saturating_sub(entry.quota)));
        if surplus == 0 {
            return false;
        }
        let index = (u64::from(entry.asked) + chance(seed, count)) % count;
        entry.asked += 1;
        let step = index * surplus / count;
        let start = (step * count).div_ceil(surplus);
        let end = ((step + 1) * count).div_ceil(surplus);
        index == start + chance(seed.wrapping_add(step), end - start)
    }

    /// The node with room that lacks most of what it should get; one less after.
    pub fn take_deficit(&mut self, room: &Room, seed: u64) -> Option<u32> {
        let lacking = self.nodes.iter_mut().filter(|entry| entry.lacks() > 0 && has_room(room, entry.node));
        let entry = lacking.max_by_key(|entry| (entry.part_lacking(seed), Reverse(entry.node)))?;
        entry.coming += 1;
        Some(entry.node)
    }
}

impl OnNode {
    /// The part of a page that rounding down cuts off, if any.
    fn cut_off(&self) -> Option<u32> {
        match self.rounding {
            Rounding::Exact => None,
            Rounding::Down(part) | Rounding::Up(part) => Some(part),
        }
    }

    /// The share rounded up, where `quota` is it rounded down.
    fn most(&self) -> u32 {
        self.quota + u32::from(self.rounding != Rounding::Exact)
    }

    /// Rounds the other way.
    fn turn(&mut self) {
        (self.quota, self.rounding) = match self.rounding {
            Rounding::Exact => (self.quota, Rounding::Exact),
            Rounding::Down(part) => (self.quota + 1, Rounding::Up(part)),
            Rounding::Up(part) => (self.quota - 1, Rounding::Down(part)),
        };
    }

    fn deficit(&self) -> u32 {
        self.quota.saturating_sub(self.count)
    }

    fn lacks(&self) -> u32 {
        self.deficit() - self.coming
    }

    /// The part of the deficit that is left in the midst of the next page:
    /// taking from the highest mixes the nodes as evenly as can be.
    fn part_lacking(&self, seed: u64) -> u64 {
        let midst = chance(seed.wrapping_add(self.node.into()), 1 << 32);
        ((u64::from(self.lacks()) << 32) - midst) / u64::from(self.deficit())
    }
}

#[cfg(test)]
thread_local! {
    /// How often this thread looked at what could be handed over.
    pub static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Can the node take a page more?
pub fn has_room(room: &Room, node: u32) -> bool {
    room.get(&node).is_some_and(|&free| free > 0)
}

/// A number below `below`, always the same for a seed.
fn chance(seed: u64, below: u64) -> u64 {
    let mut mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2 {
        mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    u64::try_from((u128::from(mixed) * u128::from(below)) >> 64).unwrap_or(0)
}
