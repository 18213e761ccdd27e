// SPDX-License-Identifier: GPL-2.0-only
//! Which two tenants share how many pages.

use crate::shared::view::View;
use serde::Serialize;
use std::collections::BTreeMap;

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

/// Each two tenants that share anything, ascending.
pub fn pairs(view: &View) -> Vec<Pair> {
    let mut pairs = BTreeMap::<(u32, u32), u64>::new();
    for (set, pages) in view.sets.iter().zip(view.pages_per_set()) {
        for (index, &left) in set.iter().enumerate() {
            for &right in &set[index + 1..] {
                *pairs.entry((left, right)).or_default() += pages;
            }
        }
    }
    let pair = |((left, right), pages): ((u32, u32), u64)| {
        let [left, right] = [left, right].map(|tenant| &view.tenants[tenant as usize]);
        Pair { pids: [left.pid, right.pid], names: [left.name.clone(), right.name.clone()], pages }
    };
    pairs.into_iter().map(pair).collect()
}
