// SPDX-License-Identifier: GPL-2.0-only
//! Does planning take the same time for each page, however many there are?
//!
//! `cargo bench --package nuksm-model` plans synthetic pages, which lie on random
//! nodes, and compares 64 million with 4 million: 2, 4 and 8 nodes, whose
//! tenants all share all pages, or share them in a thousand sets of any of them.
//! It takes 2 GiB.

#![allow(clippy::print_stdout)] // It is what this is for.

use nuksm_model::{NodeShare, Page, Policy, Room, Sharer, node_shares, plan};
use rustix::time::{ClockId, clock_gettime};

const MILLION: u64 = 1 << 20;

/// Of a tenant on each node: far from each other, so that no two nodes have
/// equal shares.
const NICE: [i32; 8] = [-20, -5, 0, 19, -16, 7, -10, 13];

fn main() {
    // `cargo test --benches` only wants to know that it runs.
    let scale = if std::env::args().any(|arg| arg == "--bench") { MILLION } else { 1 << 10 };
    println!("nodes   sets  pages (Mi)  ns per page   moves (Mi)  of 4 Mi");
    for nodes in [2, 4, 8] {
        for sets in [1, 1000] {
            let mut least = None;
            for millions in [4, 16, 64] {
                let (nanoseconds, moves) = measure(nodes, sets, millions * scale);
                let ratio = nanoseconds / *least.get_or_insert(nanoseconds);
                let moves = moves as f64 / scale as f64;
                println!("{nodes:5} {sets:6} {millions:11} {nanoseconds:12.1} {moves:12.1} {ratio:8.2}");
            }
        }
    }
}

/// CPU time of this thread: what others do meanwhile takes none of it.
fn cpu_nanoseconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// CPU nanoseconds per page, the less of two runs, and moves.
fn measure(nodes: u32, sets: u64, count: u64) -> (f64, usize) {
    let sets: Vec<Vec<NodeShare>> = (0..sets).map(|set| shares(nodes, sets, set)).collect();
    let page = |place: u64| Page {
        node: number(place, nodes.into()),
        set: number(place / 200, sets.len() as u64),
        place,
    };
    let pages: Vec<Page> = (0..count).map(page).collect();
    let run = |_| {
        let room: Room = (0..nodes).map(|node| (node, count)).collect();
        let before = cpu_nanoseconds();
        let plan = plan(&pages, &sets, room, |from, to| if from == to { 10 } else { 21 });
        ((cpu_nanoseconds() - before) / count as f64, plan.moves.len())
    };
    (0..2).map(run).fold((f64::INFINITY, 0), |least, run| if run.0 < least.0 { run } else { least })
}

/// The shares of all nodes; with many sets, of half of them.
fn shares(nodes: u32, sets: u64, set: u64) -> Vec<NodeShare> {
    let takes_part = |sharer: &Sharer| sets == 1 || number(set * 8 + u64::from(sharer.node), 2) == 0;
    let tenants = (0..nodes).zip(NICE).map(|(node, nice)| Sharer { node, nice });
    let sharers: Vec<Sharer> = tenants.filter(takes_part).collect();
    node_shares(Policy::Priority, &sharers)
}

/// A number below `below`, always the same for a seed (`SplitMix64`).
fn number(seed: u64, below: u64) -> u32 {
    let mut mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    u32::try_from((mixed ^ (mixed >> 31)) % below).unwrap_or(0)
}
