// SPDX-License-Identifier: GPL-2.0-only
//! The planner's promises, by example and by property.

use super::*;
use crate::{Policy, Sharer, node_shares};
use proptest::prelude::*;

/// All nodes are equally far from each other.
fn flat(from: u32, to: u32) -> u32 {
    if from == to { 10 } else { 20 }
}

fn shares(policy: Policy, sharers: &[(u32, i32)]) -> Vec<NodeShare> {
    node_shares(policy, &sharers.iter().map(|&(node, nice)| Sharer { node, nice }).collect::<Vec<_>>())
}

fn fair(nodes: &[u32]) -> Vec<NodeShare> {
    shares(Policy::Fair, &nodes.iter().map(|&node| (node, 0)).collect::<Vec<_>>())
}

fn pages(count: usize, node: u32, set: u32) -> Vec<Page> {
    vec![Page { node, set }; count]
}

fn roomy() -> Room {
    (0..8).map(|node| (node, 1 << 40)).collect()
}

fn carry_out(pages: &mut [Page], plan: &Plan) {
    for step in &plan.moves {
        pages[step.page as usize].node = step.to;
    }
}

fn on_node(pages: &[Page], node: u32) -> usize {
    pages.iter().filter(|page| page.node == node).count()
}

#[test]
fn all_on_one_node_becomes_half_and_half() {
    let mut pages = pages(4096, 0, 0);
    let plan = plan(&pages, &[fair(&[0, 1])], roomy(), flat);
    carry_out(&mut pages, &plan);
    assert_eq!((plan.moves.len(), on_node(&pages, 1)), (2048, 2048));
    let neighbours = plan.moves.windows(2).filter(|pair| pair[1].page - pair[0].page == 2).count();
    assert_eq!(neighbours, 2047, "every other page goes, so that hot stretches are shared, too");
}

#[test]
fn priority_moves_only_the_difference() {
    // 2048 on each node, the target is 10:1.
    let mut pages = [pages(2048, 0, 0), pages(2048, 1, 0)].concat();
    let set = shares(Policy::Priority, &[(0, -20), (1, -11)]);
    let plan = plan(&pages, &[set], roomy(), flat);
    carry_out(&mut pages, &plan);
    assert_eq!((plan.moves.len(), on_node(&pages, 0)), (3724 - 2048, 3724), "4096 x 10/11 = 3723.6");
}

#[test]
fn a_page_without_sharer_where_it_is_goes_home() {
    let mut pages = pages(10, 3, 0);
    let plan = plan(&pages, &[fair(&[1])], roomy(), flat);
    carry_out(&mut pages, &plan);
    assert_eq!(on_node(&pages, 1), 10);
}

#[test]
fn many_sets_of_one_page_come_out_even_and_for_each_tenant() {
    // Tenants 0..10 on node 0 share ten single pages each with one on node 1.
    let sets = vec![fair(&[0, 1]); 100];
    let mut pages: Vec<Page> = (0..100).map(|set| Page { node: 0, set }).collect();
    let plan = plan(&pages, &sets, roomy(), flat);
    carry_out(&mut pages, &plan);
    assert_eq!(on_node(&pages, 0), 50);
    for tenant in pages.chunks(10) {
        assert_eq!(on_node(tenant, 0), 5);
    }
}

#[test]
fn a_full_node_takes_nothing_and_strays_go_to_the_nearest_sharer() {
    let two_full: Room = [(0, 5), (1, 0)].into();
    let half = plan(&pages(10, 0, 0), &[fair(&[0, 1])], two_full.clone(), flat);
    assert_eq!((half.moves.len(), half.no_room), (0, 5));

    // Node 3 has no sharer, node 1 is full: five go to node 0 in their own
    // right, no more have room there.
    let strays = plan(&pages(10, 3, 0), &[fair(&[0, 1])], two_full, flat);
    assert_eq!((strays.moves.len(), strays.no_room), (5, 5));
    let line = |from: u32, to: u32| 10 + 10 * from.abs_diff(to);
    let room = [(0, 100), (1, 0), (2, 100)].into();
    let strays = plan(&pages(9, 5, 0), &[fair(&[0, 1, 2])], room, line);
    let to = |node| strays.moves.iter().filter(|step| step.to == node).count();
    assert_eq!((to(0), to(1), to(2), strays.no_room), (6, 0, 3, 0), "equally near: the lower number");
}

#[test]
fn pages_of_nobody_stay() {
    assert_eq!(plan(&pages(5, 1, 0), &[Vec::new()], roomy(), flat), Plan::default());
    assert_eq!(plan(&[], &[], roomy(), flat), Plan::default());
}

/// Up to 6 sharing sets of up to 5 sharers on 4 nodes, and up to 200 pages
/// anywhere.
fn machine() -> impl Strategy<Value = (Vec<Page>, Vec<Vec<NodeShare>>)> {
    let sharers = prop::collection::vec((0..4_u32, -20..20_i32), 1..5);
    let policy = prop_oneof![Just(Policy::Fair), Just(Policy::Priority)];
    (prop::collection::vec(sharers, 1..6), policy).prop_flat_map(|(sets, policy)| {
        let sets: Vec<_> = sets.iter().map(|sharers| shares(policy, sharers)).collect();
        let count = u32::try_from(sets.len()).unwrap();
        let page = (0..5_u32, 0..count).prop_map(|(node, set)| Page { node, set });
        (prop::collection::vec(page, 0..200), Just(sets))
    })
}

/// How many pages of each set are on each node.
fn counts(pages: &[Page]) -> BTreeMap<(u32, u32), u64> {
    pages.iter().fold(BTreeMap::new(), |mut counts, page| {
        *counts.entry((page.set, page.node)).or_default() += 1;
        counts
    })
}

proptest! {
    #[test]
    fn shares_are_reached_to_within_one_page((mut pages, sets) in machine()) {
        let plan = plan(&pages, &sets, roomy(), flat);
        carry_out(&mut pages, &plan);
        let counts = counts(&pages);
        for (number, set) in (0_u32..).zip(&sets) {
            let total: u64 = (0..5).filter_map(|node| counts.get(&(number, node))).sum();
            let weights: u128 = set.iter().map(|share| share.weight).sum();
            for node in 0..5 {
                let weight = set.iter().find(|share| share.node == node).map_or(0, |share| share.weight);
                let ideal = total as f64 * weight as f64 / weights as f64;
                let here = counts.get(&(number, node)).copied().unwrap_or(0) as f64;
                prop_assert!((here - ideal).abs() < 1.0, "set {number} node {node}: {here} for {ideal}");
            }
        }
    }

    #[test]
    fn a_second_plan_is_empty((mut pages, sets) in machine()) {
        let first = plan(&pages, &sets, roomy(), flat);
        carry_out(&mut pages, &first);
        prop_assert_eq!(plan(&pages, &sets, roomy(), flat), Plan::default());
    }

    #[test]
    fn no_page_moves_in_vain((pages, sets) in machine()) {
        let mut after = pages.clone();
        let plan = plan(&pages, &sets, roomy(), flat);
        carry_out(&mut after, &plan);
        let (before, after) = (counts(&pages), counts(&after));
        let gone: u64 = before.iter().map(|(key, &count)| count.saturating_sub(*after.get(key).unwrap_or(&0))).sum();
        prop_assert_eq!(gone, plan.moves.len() as u64, "as many moves as pages that nodes had too many of");
        prop_assert!(plan.moves.iter().all(|step| pages[step.page as usize].node != step.to));
    }

    #[test]
    fn never_over_a_nodes_free_memory((pages, sets) in machine(), free in prop::collection::vec(0..30_u64, 4)) {
        let room: Room = (0_u32..).zip(free.iter().copied()).collect();
        let plan = plan(&pages, &sets, room, flat);
        for (node, &free) in (0_u32..).zip(&free) {
            let arriving = plan.moves.iter().filter(|step| step.to == node).count() as u64;
            prop_assert!(arriving <= free, "node {node}: {arriving} for {free}");
        }
        prop_assert!(plan.moves.iter().all(|step| step.to < 4), "no room was given for node 4");
    }
}
