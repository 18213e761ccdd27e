// SPDX-License-Identifier: GPL-2.0-only
//! Which two tenants share how many pages.

use crate::shared::view::View;
use serde::{Serialize, Serializer};
use std::ops::Range;

/// Two tenants that share something.
#[derive(Debug, Clone, Serialize)]
pub struct Pair<'a> {
    /// Their process numbers, ascending.
    pub pids: [u32; 2],
    /// Their names.
    pub names: [&'a str; 2],
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
    /// The members of all sharing sets, one set after the other: sets are asked for in
    /// any order, and each memory of its own would be one more that no cache has.
    members: Vec<u32>,
    /// The sets that each tenant is in: where their members are, and their pages.
    sets_of: Vec<Vec<(Range<usize>, u64)>>,
}

/// As the list of its pairs. Of many tenants they take more memory than all else, so
/// nobody holds them all.
impl Serialize for Sharing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.pairs())
    }
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
        let mut count = vec![0; view.tenants.len()];
        for &tenant in view.sets.iter().flatten() {
            count[tenant as usize] += 1;
        }
        let mut members = Vec::with_capacity(count.iter().sum());
        let mut sets_of: Vec<_> = count.into_iter().map(Vec::with_capacity).collect();
        for (set, pages) in view.sets.iter().zip(view.pages_per_set()) {
            let place = members.len()..members.len() + set.len();
            members.extend(set);
            for &tenant in set {
                sets_of[tenant as usize].push((place.clone(), pages));
            }
        }
        let tenants = view.tenants.iter().map(|tenant| (tenant.pid, tenant.name.clone())).collect();
        Self { tenants, members, sets_of }
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
    pub fn pairs(&self) -> impl Iterator<Item = Pair<'_>> {
        let mut row = Row { pages: vec![0; self.tenants.len()], known: Vec::new() };
        (0_u32..).zip(&self.tenants).flat_map(move |(left, (pid, name))| {
            self.shared_with(left, left + 1, &mut row).into_iter().map(move |(right, pages)| {
                let (other, other_name) = &self.tenants[right as usize];
                Pair { pids: [*pid, *other], names: [name, other_name], pages }
            })
        })
    }

    /// Pages that a tenant shares with those from `first` on, ascending. Leaves
    /// `row` as it was: without any.
    fn shared_with(&self, tenant: u32, first: u32, row: &mut Row) -> Vec<(u32, u64)> {
        for (place, pages) in &self.sets_of[tenant as usize] {
            let set = &self.members[place.clone()];
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
pub mod tests {
    use super::*;
    use crate::shared::view::tests::{crowd, view};
    use std::cell::Cell;

    thread_local! {
        pub static ADDITIONS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn pairs_and_partners_say_the_same() {
        let sharing = Sharing::new(&view());
        let pairs: Vec<_> = sharing.pairs().map(|pair| (pair.pids, pair.pages)).collect();
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

    #[test]
    fn pairs_are_found_as_they_are_asked_for() {
        let sharing = Sharing::new(&crowd(4, 2, 6));
        let before = ADDITIONS.get();
        assert_eq!(sharing.pairs().next().map(|pair| pair.pids[0]), Some(100));
        assert_eq!(ADDITIONS.get() - before, sharing.sets_of[0].len());
    }
}
