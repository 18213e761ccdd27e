// SPDX-License-Identifier: GPL-2.0-only
//! Ways on which pages get from one node to another, when one stretch can hand
//! over between some nodes and another between others.

use std::collections::BTreeMap;

/// How many stretches can hand over a page from one node to another.
#[derive(Debug, Default)]
pub struct Ways {
    steps: BTreeMap<u32, BTreeMap<u32, u32>>,
}

impl Ways {
    /// Counts what one stretch can hand over.
    pub fn add(&mut self, hand_overs: impl Iterator<Item = (u32, u32)>) {
        for (from, to) in hand_overs {
            *self.steps.entry(from).or_default().entry(to).or_default() += 1;
        }
    }

    /// The shortest way from one of the nodes with pages too many to one that
    /// lacks some; and as many pages as both have, and every step can take. A
    /// page handed over never takes away another step of the same way.
    pub fn shortest(
        &self,
        too_many: &BTreeMap<u32, u32>,
        lacking: &BTreeMap<u32, u32>,
    ) -> Option<(Vec<u32>, usize)> {
        let mut ways: Vec<(Vec<u32>, u32)> =
            too_many.iter().map(|(&node, &pages)| (vec![node], pages)).collect();
        let mut seen: Vec<u32> = too_many.keys().copied().collect();
        let mut next = 0;
        while let Some((way, pages)) = ways.get(next).cloned() {
            next += 1;
            let last = way[way.len() - 1];
            for (&to, &able) in self.steps.get(&last).into_iter().flatten() {
                if seen.contains(&to) {
                    continue;
                }
                seen.push(to);
                let (way, pages) = ([way.as_slice(), &[to]].concat(), pages.min(able));
                if let Some(&lacking) = lacking.get(&to) {
                    return Some((way, pages.min(lacking) as usize));
                }
                ways.push((way, pages));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_and_no_more_pages_than_its_narrowest_step() {
        let mut ways = Ways::default();
        for (from, to, stretches) in [(0, 1, 5), (1, 2, 3), (2, 3, 9), (0, 4, 2), (4, 2, 9)] {
            ways.add(std::iter::repeat_n((from, to), stretches));
        }
        let shortest =
            |from: (u32, u32), to: (u32, u32)| ways.shortest(&BTreeMap::from([from]), &BTreeMap::from([to]));
        assert_eq!(shortest((0, 100), (3, 100)), Some((vec![0, 1, 2, 3], 3)));
        assert_eq!(shortest((0, 2), (3, 100)), Some((vec![0, 1, 2, 3], 2)));
        assert_eq!(shortest((0, 100), (3, 1)), Some((vec![0, 1, 2, 3], 1)));
        assert_eq!(shortest((4, 7), (3, 7)), Some((vec![4, 2, 3], 7)));
        assert_eq!(shortest((3, 1), (0, 1)), None);
        let both = ways.shortest(&BTreeMap::from([(0, 9), (2, 9)]), &BTreeMap::from([(3, 9)]));
        assert_eq!(both, Some((vec![2, 3], 9)));
    }
}
