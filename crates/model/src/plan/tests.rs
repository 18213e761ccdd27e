// SPDX-License-Identifier: GPL-2.0-only
//! The planner's promises, by example and by property.

use super::*;
use crate::{Policy, Sharer, node_shares};
use proptest::prelude::*;
use std::collections::BTreeMap;

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
    (0..count as u64).map(|place| Page { node, set, place }).collect()
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

/// The most pages by which any run of neighbours differs from `part` of it.
fn worst_window(pages: &[Page], node: u32, part: f64) -> f64 {
    let (mut sum, mut least, mut most) = (0.0_f64, 0.0_f64, 0.0_f64);
    for page in pages {
        sum += f64::from(u8::from(page.node == node)) - part;
        (least, most) = (least.min(sum), most.max(sum));
    }
    most - least
}

#[test]
fn all_on_one_node_becomes_half_and_half() {
    let mut pages = pages(4096, 0, 0);
    let plan = plan(&pages, &[fair(&[0, 1])], roomy(), flat);
    carry_out(&mut pages, &plan);
    assert_eq!((plan.moves.len(), on_node(&pages, 1)), (2048, 2048));
}

#[test]
fn neighbours_are_shared_out_even_if_their_number_was_right() {
    let mut pages = pages(4096, 0, 0);
    for page in &mut pages[..2048] {
        page.node = 1;
    }
    let plan = plan(&pages, &[fair(&[0, 1])], roomy(), flat);
    carry_out(&mut pages, &plan);
    assert_eq!((plan.moves.len(), on_node(&pages, 1)), (2048, 2048));
    let worst = worst_window(&pages, 0, 0.5);
    assert!(worst <= 2.0, "{worst} pages");
}

#[test]
fn what_is_used_at_regular_distances_is_shared_out_as_well() {
    for nodes in [&[0, 1][..], &[0, 1, 2, 3]] {
        let mut pages = pages(1 << 14, 0, 0);
        let plan = plan(&pages, &[fair(nodes)], roomy(), flat);
        carry_out(&mut pages, &plan);
        for distance in [2, 3, 4, 5, 8, 16, 64] {
            let used: Vec<Page> = pages.iter().step_by(distance).copied().collect();
            for &node in nodes {
                let off = on_node(&used, node) as f64 / used.len() as f64 - 1.0 / nodes.len() as f64;
                assert!(off.abs() < 0.1, "each {distance}th page, node {node}: {off} off");
            }
        }
    }
}

#[test]
fn pages_far_from_each_other_are_shared_out_over_their_set() {
    // Two sets, each on one node, whose pages have no neighbours: together they
    // are even already.
    let mut pages: Vec<Page> =
        (0..200).map(|at| Page { node: at % 2, set: at % 2, place: u64::from(at) * 1000 }).collect();
    let plan = plan(&pages, &vec![fair(&[0, 1]); 2], roomy(), flat);
    carry_out(&mut pages, &plan);
    for set in [0, 1] {
        let of_set: Vec<Page> = pages.iter().filter(|page| page.set == set).copied().collect();
        assert_eq!(on_node(&of_set, 0), 50);
    }
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
    let mut pages: Vec<Page> = (0..100).map(|set| Page { node: 0, set, place: set.into() }).collect();
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
    assert_eq!(plan(&[], &[fair(&[])], roomy(), flat), Plan::default());
}

#[test]
fn planning_takes_as_many_looks_for_each_stretch_however_many_there_are() {
    // 4 nodes whose shares are odd parts: what one has too many of gets to
    // another over a third.
    let set = shares(Policy::Priority, &[(0, -20), (1, -5), (2, 0), (3, 19)]);
    let looks_per_stretch = |stretches: usize| {
        let before = counts::LOOKS.get();
        let _ = plan(&pages(stretches * 64, 0, 0), std::slice::from_ref(&set), roomy(), flat);
        (counts::LOOKS.get() - before) as f64 / stretches as f64
    };
    let (few, many) = (looks_per_stretch(1 << 6), looks_per_stretch(1 << 10));
    assert!(many <= 1.5 * few, "{few} looks at each of 64, {many} at each of 1024");
}

/// Up to 6 sharing sets of up to 5 sharers on 4 nodes, and up to 200 pages
/// anywhere.
fn machine() -> impl Strategy<Value = (Vec<Page>, Vec<Vec<NodeShare>>)> {
    machine_of(4)
}

fn machine_of(nodes: u32) -> impl Strategy<Value = (Vec<Page>, Vec<Vec<NodeShare>>)> {
    let sharers = prop::collection::vec((0..nodes, -20..20_i32), 1..5);
    let policy = prop_oneof![Just(Policy::Fair), Just(Policy::Priority)];
    (prop::collection::vec(sharers, 1..6), policy).prop_flat_map(|(sets, policy)| {
        let sets: Vec<_> = sets.iter().map(|sharers| shares(policy, sharers)).collect();
        let count = u32::try_from(sets.len()).unwrap();
        let page = (0..5_u32, 0..count);
        let pages = prop::collection::btree_map(0..400_u64, page, 0..200).prop_map(|pages| {
            pages.into_iter().map(|(place, (node, set))| Page { node, set, place }).collect::<Vec<_>>()
        });
        (pages.prop_shuffle(), Just(sets))
    })
}

/// Neighbours, in any order of frames.
fn all_on_one_node() -> impl Strategy<Value = Vec<Page>> {
    let places = (0..1000_u64, 1..1000_u64).prop_map(|(first, count)| first..first + count);
    let page = |place| Page { node: 0, set: 0, place };
    places.prop_map(move |places| places.map(page).collect::<Vec<_>>()).prop_shuffle()
}

/// How many pages of each part are on each node.
fn counts<Part: Ord>(pages: &[Page], part: impl Fn(&Page) -> Part) -> BTreeMap<Part, BTreeMap<u32, u64>> {
    pages.iter().fold(BTreeMap::new(), |mut counts, page| {
        *counts.entry(part(page)).or_default().entry(page.node).or_default() += 1;
        counts
    })
}

/// The most by which the nodes' pages of any part differ from their shares.
fn most_off<Part: Ord>(
    pages: &[Page],
    sets: &[Vec<NodeShare>],
    part: impl Fn(&Page) -> Part,
    set: impl Fn(&Part) -> u32,
) -> f64 {
    let off = |(part, counts): (&Part, &BTreeMap<u32, u64>)| {
        let shares = &sets[set(part) as usize];
        let total: u64 = counts.values().sum();
        let sum: u128 = shares.iter().map(|share| share.weight).sum();
        let weight = |node| shares.iter().find(|share| share.node == node).map_or(0, |share| share.weight);
        let ideal = |node| total as f64 * weight(node) as f64 / sum as f64;
        let count = |node| counts.get(&node).copied().unwrap_or(0) as f64;
        (0..5).map(|node| (count(node) - ideal(node)).abs()).fold(0.0, f64::max)
    };
    counts(pages, part).iter().map(off).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn shares_are_reached_to_within_one_page((mut pages, sets) in machine()) {
        let plan = plan(&pages, &sets, roomy(), flat);
        carry_out(&mut pages, &plan);
        prop_assert!(most_off(&pages, &sets, Page::stretch, |part| part.0) < 1.0);
    }

    #[test]
    fn sets_fit_to_within_one_page_too((mut pages, sets) in machine()) {
        let plan = plan(&pages, &sets, roomy(), flat);
        carry_out(&mut pages, &plan);
        prop_assert!(most_off(&pages, &sets, |page| page.set, |&set| set) < 1.0);
    }

    #[test]
    fn any_run_of_neighbours_has_the_shares(mut pages in all_on_one_node(), nodes in 2..=4_u32) {
        let plan = plan(&pages, &[fair(&(0..nodes).collect::<Vec<_>>())], roomy(), flat);
        carry_out(&mut pages, &plan);
        pages.sort_unstable_by_key(|page| page.place);
        for node in 0..nodes {
            let worst = worst_window(&pages, node, 1.0 / f64::from(nodes));
            prop_assert!(worst <= f64::from(nodes + 1), "{} pages on node {}", worst, node);
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
        let (before, after) = (counts(&pages, Page::stretch), counts(&after, Page::stretch));
        let left = |(stretch, nodes): (_, &BTreeMap<u32, u64>)| -> u64 {
            let now = |node| after[stretch].get(node).copied().unwrap_or(0);
            nodes.iter().map(|(node, &count)| count.saturating_sub(now(node))).sum()
        };
        let gone: u64 = before.iter().map(left).sum();
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
