// SPDX-License-Identifier: GPL-2.0-only
//! The policies: which part of a sharing set's pages each node should hold.

use std::collections::BTreeMap;

/// How merged pages are spread over the nodes of their sharers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Evenly over the nodes that have a sharer (paper, IV-A and IV-E).
    Fair,
    /// In proportion to 1/snice of the sharers, snice = nice + 21: the paper's
    /// nuShare (IV-B) for two sharers, and a sum of 1 for any number.
    Priority,
}

/// A tenant that shares a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharer {
    /// The node on which it would find the page local.
    pub node: u32,
    /// Nice value of its group leader, -20 to 19.
    pub nice: i32,
}

/// A node's part of a sharing set's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeShare {
    /// The node.
    pub node: u32,
    /// Its share: this number divided by the sum of all of the set.
    pub weight: u128,
}

/// Least common multiple of all snice values, 1 to 40: with it 1/snice is an
/// integer, and plans are exact.
const SNICE_LCM: u128 = 5_342_931_457_063_200;

/// The share of each node that has one of `sharers`, ascending by node.
#[must_use]
pub fn node_shares(policy: Policy, sharers: &[Sharer]) -> Vec<NodeShare> {
    let mut weights = BTreeMap::<u32, u128>::new();
    for sharer in sharers {
        let weight = weights.entry(sharer.node).or_default();
        *weight = match policy {
            Policy::Fair => 1,
            Policy::Priority => *weight + SNICE_LCM / snice(sharer.nice),
        };
    }
    weights.into_iter().map(|(node, weight)| NodeShare { node, weight }).collect()
}

/// The paper's positive priority value (IV-B), 1 to 40.
fn snice(nice: i32) -> u128 {
    u128::try_from(nice.clamp(-20, 19) + 21).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes' shares in percent, for sharers given as (node, nice).
    fn percent(policy: Policy, tenants: &[(u32, i32)]) -> Vec<(u32, f64)> {
        let sharers: Vec<Sharer> = tenants.iter().map(|&(node, nice)| Sharer { node, nice }).collect();
        let nodes = node_shares(policy, &sharers);
        let sum: u128 = nodes.iter().map(|share| share.weight).sum();
        nodes
            .iter()
            .map(|share| (share.node, (share.weight as f64 / sum as f64 * 1e4).round() / 100.0))
            .collect()
    }

    #[test]
    fn fair_counts_nodes_not_sharers() {
        assert_eq!(percent(Policy::Fair, &[(1, 0), (0, 5), (1, 19)]), [(0, 50.0), (1, 50.0)]);
        assert_eq!(percent(Policy::Fair, &[(2, 0)]), [(2, 100.0)]);
    }

    #[test]
    fn priority_gives_the_papers_table_iii() {
        for (nices, local) in [
            ((-20, -11), [90.91, 9.09]),
            ((-20, -16), [83.33, 16.67]),
            ((-20, -20), [50.0, 50.0]),
            ((-16, -20), [16.67, 83.33]),
            ((-11, -20), [9.09, 90.91]),
        ] {
            let shares = percent(Policy::Priority, &[(0, nices.0), (1, nices.1)]);
            assert_eq!(shares, [(0, local[0]), (1, local[1])], "nice {nices:?}");
        }
    }

    #[test]
    fn priority_sums_to_one_for_any_number_of_sharers() {
        assert_eq!(
            percent(Policy::Priority, &[(0, 0), (1, 0), (2, 0), (3, 0)]),
            [(0, 25.0), (1, 25.0), (2, 25.0), (3, 25.0)]
        );
        // Two of three equal sharers on one node: it gets two thirds.
        assert_eq!(percent(Policy::Priority, &[(0, 0), (1, 0), (1, 0)]), [(0, 33.33), (1, 66.67)]);
    }

    #[test]
    fn every_snice_divides_the_common_multiple() {
        assert!((-20..=19).all(|nice| SNICE_LCM % snice(nice) == 0));
        assert_eq!((snice(-20), snice(19)), (1, 40));
    }
}
