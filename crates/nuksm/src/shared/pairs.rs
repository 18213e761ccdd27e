// SPDX-License-Identifier: GPL-2.0-only
//! Which two tenants share how many pages.

use crate::shared::view::View;
use serde::Serialize;

/// Two tenants that share something.
#[derive(Debug, Clone, Serialize)]
pub struct Pair {
    /// Their process numbers, ascending.
    pub pids: [u32; 2],
    /// Their names.
    pub names: [String; 2],
    /// Merged pages that both use.
    pub pages: u64,
}

/// Who shares what: enough to say of any tenant with whom it shares.
///
/// To know that of all takes time in proportion to the squares of the sets, so
/// who needs to know of one asks for one.
#[derive(Debug, Clone, Default)]
pub struct Sharing {
    /// Process number and name of each tenant.
    tenants: Vec<(u32, String)>,
    /// The sharing sets, and how many pages each has.
    sets: Vec<(Vec<u32>, u64)>,
    /// The sets that each tenant is in.
    sets_of: Vec<Vec<u32>>,
}

/// Pages that one tenant shares with each other.
struct Row {
    pages: Vec<u64>,
    /// Tenants with any.
    known: Vec<u32>,
}

impl Sharing {
    /// From a view.
    pub fn new(view: &View) -> Self {
        let mut sets_of = vec![Vec::new(); view.tenants.len()];
        for (number, set) in (0_u32..).zip(&view.sets) {
            for &tenant in set {
                sets_of[tenant as usize].push(number);
            }
        }
        Self {
            tenants: view.tenants.iter().map(|tenant| (tenant.pid, tenant.name.clone())).collect(),
            sets: view.sets.iter().cloned().zip(view.pages_per_set()).collect(),
            sets_of,
        }
    }

    /// With whom a tenant shares how many pages: pid, name, pages; in no order.
    pub fn partners(&self, pid: u32) -> Vec<(u32, &str, u64)> {
        let Some(number) = (0..).zip(&self.tenants).find(|(_, tenant)| tenant.0 == pid) else {
            return Vec::new();
        };
        let mut row = Row { pages: vec![0; self.tenants.len()], known: Vec::new() };
        let others = self.shared_with(number.0, 0, &mut row);
        others
            .into_iter()
            .filter(|(other, _)| *other != number.0)
            .map(|(other, pages)| {
                let (pid, name) = &self.tenants[other as usize];
                (*pid, name.as_str(), pages)
            })
            .collect()
    }

    /// Each two tenants that share anything, ascending.
    pub fn pairs(&self) -> Vec<Pair> {
        let mut pairs = Vec::new();
        let mut row = Row { pages: vec![0; self.tenants.len()], known: Vec::new() };
        for (left, (pid, name)) in (0_u32..).zip(&self.tenants) {
            for (right, pages) in self.shared_with(left, left + 1, &mut row) {
                let (other, other_name) = &self.tenants[right as usize];
                pairs.push(Pair { pids: [*pid, *other], names: [name.clone(), other_name.clone()], pages });
            }
        }
        pairs
    }

    /// Pages that a tenant shares with those from `first` on, ascending. Leaves
    /// `row` as it was: without any.
    fn shared_with(&self, tenant: u32, first: u32, row: &mut Row) -> Vec<(u32, u64)> {
        for &number in &self.sets_of[tenant as usize] {
            let (set, pages) = &self.sets[number as usize];
            for &other in &set[set.partition_point(|&other| other < first)..] {
                #[cfg(test)]
                tests::ADDITIONS.with(|additions| additions.set(additions.get() + 1));
                let known = &mut row.pages[other as usize];
                if *known == 0 {
                    row.known.push(other);
                }
                *known += pages;
            }
        }
        row.known.sort_unstable();
        row.known.drain(..).map(|other| (other, std::mem::take(&mut row.pages[other as usize]))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::view::tests::{crowd, view};
    use std::cell::Cell;

    thread_local! {
        pub static ADDITIONS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn pairs_and_partners_say_the_same() {
        let sharing = Sharing::new(&view());
        let pairs: Vec<_> = sharing.pairs().iter().map(|pair| (pair.pids, pair.pages)).collect();
        assert_eq!(pairs, [([10, 11], 2), ([10, 12], 1)]);
        assert_eq!(sharing.partners(10), [(11, "t11", 2), (12, "t12", 1)]);
        assert_eq!(sharing.partners(12), [(10, "t10", 1)]);
        assert!(sharing.partners(99).is_empty());
    }

    #[test]
    fn a_look_costs_no_pairs_and_one_tenant_its_own_only() {
        // Each two of four tenants are a set: every tenant is in three.
        let before = ADDITIONS.get();
        let sharing = Sharing::new(&crowd(4, 2, 6));
        assert_eq!(ADDITIONS.get(), before);
        let _ = sharing.partners(100);
        assert_eq!(ADDITIONS.get() - before, 2 * sharing.sets_of[0].len());
    }

    /// `cargo test --release --package nuksm measure -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement: it takes a minute"]
    #[allow(clippy::print_stdout)]
    fn measure_sharing_over_tenants() {
        println!("tenants  sharers    sets     pairs  ms for pairs  ns per addition  ms for one tenant");
        for (tenants, sharers, sets) in
            [(64, 64, 1_000), (64, 64, 16_000), (1_000, 4, 16_000), (4_000, 4, 64_000), (16_000, 4, 256_000)]
        {
            let sharing = Sharing::new(&crowd(tenants, sharers, sets));
            let before = ADDITIONS.get();
            let meter = crate::shared::cost::Meter::start();
            let pairs = sharing.pairs().len();
            let seconds = meter.cpu_seconds();
            let additions = ADDITIONS.get() - before;
            let meter = crate::shared::cost::Meter::start();
            let _ = sharing.partners(100);
            println!(
                "{tenants:7} {sharers:8} {sets:7} {pairs:9} {:13.1} {:16.1} {:18.2}",
                seconds * 1e3,
                seconds * 1e9 / additions as f64,
                meter.cpu_seconds() * 1e3
            );
        }
    }
}
