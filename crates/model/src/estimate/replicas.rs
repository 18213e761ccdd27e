// SPDX-License-Identifier: GPL-2.0-only
//! What replicas would buy: copies of a merged page on each node that it is hot on, within
//! a budget, as the engine makes them.
//!
//! Use is what was seen in some short windows of time, a page used in three of them being
//! three uses. A merged page that is hot on k nodes is on one of them by lot, so one copy
//! has 1 of k uses local on average, and each replica another one. One that nobody is hot
//! on is by lot on one of its sharers' nodes, and gets no replica.

use super::contents::Record;
use std::collections::BTreeMap;

/// Records, ascending as `Contents::finish` gives them, and the part of all contents
/// that they are of.
pub type Kept<'a> = (&'a [Record], f64);

/// Uses of pages; the count of a record is how many.
#[derive(Debug, Clone, Copy)]
pub struct Uses<'a> {
    /// Of hot pages.
    pub hot: Kept<'a>,
    /// Of all others.
    pub others: Kept<'a>,
}

/// What replicas would buy.
#[derive(Debug, Clone, PartialEq)]
pub struct Replicas {
    /// Uses of merged pages.
    pub uses: u64,
    /// Without replicas.
    pub one_copy: Budget,
    /// With those budgets, in the order in which they were asked for.
    pub budgets: Vec<Budget>,
    /// With a copy on each node that a page is hot on.
    pub all: Budget,
}

/// So much memory for replicas, and what it buys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Replicas there would be, one page each.
    pub pages: u64,
    /// The part of all uses that would be local, 0 to 1; `None` when there were none.
    pub local: Option<f64>,
}

/// A page that is hot on several nodes.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// Its uses on these nodes.
    uses: u64,
    /// How many nodes that are.
    nodes: u64,
}

impl Wanted {
    /// Uses that one more copy makes local.
    fn gain(self) -> f64 {
        self.uses as f64 / self.nodes as f64
    }
}

/// Makes replicas in thought: of all `contents`, those with several pages being merged,
/// for each of `percents` of what merging saves. `nodes` are the tenants'; `None` unless all
/// are known.
#[must_use]
pub fn replicas(
    contents: Kept,
    uses: Uses,
    nodes: &[Option<u32>],
    max_page_sharing: u64,
    percents: &[u32],
) -> Option<Replicas> {
    let nodes: Vec<u32> = nodes.iter().copied().collect::<Option<_>>()?;
    let rate = contents.1.min(uses.hot.1).min(uses.others.1);
    let keeps = |record: &Record| f64::from(record.fingerprint.leading_zeros()) >= -rate.log2();
    let mut hot = uses.hot.0;
    let mut others = uses.others.0;
    let mut tally = Tally::default();
    for content in contents.0.chunk_by(|left, right| left.fingerprint == right.fingerprint) {
        let hot = take(&mut hot, content[0].fingerprint);
        let others = take(&mut others, content[0].fingerprint);
        if keeps(&content[0]) {
            tally.add(content, hot, others, &nodes, max_page_sharing.max(1));
        }
    }
    Some(tally.replicas(rate, percents))
}

/// The first of `records`, those with this fingerprint; what is before them goes.
fn take<'a>(records: &mut &'a [Record], fingerprint: u64) -> &'a [Record] {
    let (_, rest) = records.split_at(records.iter().take_while(|r| r.fingerprint < fingerprint).count());
    let (found, rest) = rest.split_at(rest.iter().take_while(|r| r.fingerprint == fingerprint).count());
    *records = rest;
    found
}

#[derive(Debug, Default)]
struct Tally {
    saved: u64,
    uses: u64,
    /// Uses that are local with one copy of each page.
    local: f64,
    wanted: Vec<Wanted>,
}

impl Tally {
    fn add(&mut self, content: &[Record], hot: &[Record], others: &[Record], nodes: &[u32], most: u64) {
        let pages: u64 = content.iter().map(|record| u64::from(record.count)).sum();
        self.saved += pages - pages.div_ceil(most);
        if pages < 2 || hot.is_empty() && others.is_empty() {
            return;
        }
        // Of each node of a sharer: uses, and whether the page is hot there.
        let mut used: BTreeMap<u32, (u64, bool)> =
            content.iter().map(|record| (nodes[record.tenant as usize], (0, false))).collect();
        for (records, is_hot) in [(hot, true), (others, false)] {
            for record in records {
                let node = used.entry(nodes[record.tenant as usize]).or_default();
                node.0 += u64::from(record.count);
                node.1 |= is_hot;
            }
        }
        let all: u64 = used.values().map(|(uses, _)| uses).sum();
        let on_hot = || used.values().filter(|(_, is_hot)| *is_hot);
        let page = Wanted { uses: on_hot().map(|(uses, _)| uses).sum(), nodes: on_hot().count() as u64 };
        self.uses += all;
        self.local += if page.nodes > 0 { page.gain() } else { all as f64 / used.len() as f64 };
        if page.nodes > 1 {
            self.wanted.push(page);
        }
    }

    fn replicas(mut self, rate: f64, percents: &[u32]) -> Replicas {
        self.wanted.sort_by_key(|page| std::cmp::Reverse(page.uses));
        let saved = self.saved;
        let within = |percent: &u32| self.with(saved.saturating_mul((*percent).into()) / 100, rate);
        Replicas {
            uses: scaled(self.uses, rate),
            one_copy: self.with(0, rate),
            budgets: percents.iter().map(within).collect(),
            all: self.with(u64::MAX, rate),
        }
    }

    /// With `pages` replicas at the most, the hottest pages first.
    fn with(&self, pages: u64, rate: f64) -> Budget {
        let (mut left, mut local) = (pages, self.local);
        for page in &self.wanted {
            let replicas = (page.nodes - 1).min(left);
            left -= replicas;
            local += replicas as f64 * page.gain();
            if left == 0 {
                break;
            }
        }
        let local = (self.uses > 0).then(|| local / self.uses as f64);
        Budget { pages: scaled(pages - left, rate), local }
    }
}

/// Of a sample, as many of all.
fn scaled(count: u64, rate: f64) -> u64 {
    // The rate is 1 / 2^n, and counts are far below what a float holds exactly.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let all = (count as f64 / rate) as u64;
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERCENTS: [u32; 4] = [0, 10, 50, 100];

    fn known(nodes: &[u32]) -> Vec<Option<u32>> {
        nodes.iter().copied().map(Some).collect()
    }

    /// Each content that all tenants have a page of: the windows in which each used its own,
    /// and whether it was hot. With budgets of [`PERCENTS`].
    fn of(nodes: &[u32], contents: &[&[(u32, bool)]]) -> Replicas {
        let (mut all, mut hot, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (fingerprint, uses) in (0..).zip(contents) {
            for (tenant, &(count, is_hot)) in (0..).zip(*uses) {
                all.push(Record { fingerprint, tenant, count: 1 });
                if count > 0 {
                    let records = if is_hot { &mut hot } else { &mut others };
                    records.push(Record { fingerprint, tenant, count });
                }
            }
        }
        let uses = Uses { hot: (&hot, 1.0), others: (&others, 1.0) };
        replicas((&all, 1.0), uses, &known(nodes), 256, &PERCENTS).unwrap()
    }

    fn budget(pages: u64, local: f64) -> Budget {
        Budget { pages, local: Some(local) }
    }

    #[test]
    fn no_budget_buys_nothing_and_a_copy_on_each_hot_node_all() {
        let hot: &[_] = &[(8, true), (8, true)];
        let found = of(&[0, 1], &[hot; 4]);
        // Four pages are saved: 0, 10, 50 and 100 % of them.
        assert_eq!(found.budgets, [budget(0, 0.5), budget(0, 0.5), budget(2, 0.75), budget(4, 1.0)]);
        assert_eq!((found.one_copy, found.all, found.uses), (budget(0, 0.5), budget(4, 1.0), 64));
    }

    #[test]
    fn what_is_hot_on_one_node_needs_none() {
        let page: &[_] = &[(8, true), (5, true), (0, false)];
        let found = of(&[0, 0, 1], &[page; 9]);
        assert_eq!((found.one_copy, found.all), (budget(0, 1.0), budget(0, 1.0)));
        assert!(found.budgets.iter().all(|all| *all == found.one_copy));
    }

    #[test]
    fn the_hottest_pages_come_first() {
        let cool: &[_] = &[(4, true), (4, true)];
        let found = of(&[0, 1], &[cool, &[(8, true), (8, true)]]);
        // One copy: 4 + 8 of 24 uses; one of two replicas makes the hotter page local.
        assert_eq!(found.budgets[2], budget(1, (4.0 + 16.0) / 24.0));
        assert_eq!(found.all, budget(2, 1.0));
    }

    #[test]
    fn a_page_may_have_copies_on_some_of_its_nodes() {
        let found = of(&[0, 1, 2, 3], &[&[(6, true); 4]]);
        // Three pages are saved.
        assert_eq!(found.budgets[2], budget(1, 0.5));
        assert_eq!(found.budgets[3], budget(3, 1.0));
    }

    #[test]
    fn who_uses_a_page_now_and_then_gets_none() {
        let found = of(&[0, 1], &[&[(3, false), (1, false)]]);
        assert_eq!((found.one_copy, found.all), (budget(0, 0.5), budget(0, 0.5)));
        // A hot node has the page, the other one's uses stay remote.
        let found = of(&[0, 1], &[&[(6, true), (2, false)]]);
        assert_eq!((found.one_copy, found.all), (budget(0, 0.75), budget(0, 0.75)));
        // On a hot node everybody's uses are local.
        let found = of(&[0, 0], &[&[(6, true), (2, false)]]);
        assert_eq!(found.one_copy, budget(0, 1.0));
    }

    #[test]
    fn what_is_not_merged_or_not_used_does_not_count() {
        let record = |fingerprint, tenant, count| Record { fingerprint, tenant, count };
        // Content 1 is only one page; 3 is no content that was read.
        let all = [record(1, 0, 1), record(2, 0, 2)];
        let hot = [record(0, 1, 8), record(1, 0, 8), record(2, 0, 16), record(3, 1, 8)];
        let uses = Uses { hot: (&hot, 1.0), others: (&[], 1.0) };
        let found = replicas((&all, 1.0), uses, &known(&[0, 1]), 256, &[100]).unwrap();
        assert_eq!((found.uses, found.one_copy, found.all), (16, budget(0, 1.0), budget(0, 1.0)));
        let idle = of(&[0, 1], &[&[(0, false), (0, false)]]);
        assert_eq!((idle.uses, idle.one_copy.local, idle.budgets[3].pages), (0, None, 0));
    }

    #[test]
    fn without_all_nodes_nothing_is_said() {
        let uses = Uses { hot: (&[], 1.0), others: (&[], 1.0) };
        assert_eq!(replicas((&[], 1.0), uses, &[Some(0), None], 256, &[5]), None);
    }

    #[test]
    fn of_several_samples_the_smallest_counts_and_stands_for_all() {
        // Of four contents, two begin with a zero bit; use is known of those only.
        let record = |content: u64, tenant| Record { fingerprint: content << 62, tenant, count: 1 };
        let both = |content| [record(content, 0), record(content, 1)];
        let all: Vec<Record> = (0..4).flat_map(both).collect();
        let hot: Vec<Record> = (0..2).flat_map(both).collect();
        let uses = Uses { hot: (&hot, 0.5), others: (&[], 1.0) };
        let found = replicas((&all, 1.0), uses, &known(&[0, 1]), 256, &[50]).unwrap();
        assert_eq!((found.uses, found.budgets[0], found.all), (8, budget(2, 0.75), budget(4, 1.0)));
    }

    #[test]
    fn a_page_that_is_several_anyway_saves_less() {
        let all = [
            Record { fingerprint: 1, tenant: 0, count: 30 },
            Record { fingerprint: 1, tenant: 1, count: 30 },
        ];
        let uses = Uses { hot: (&all, 1.0), others: (&[], 1.0) };
        let pages = |most, percent| {
            let found = replicas((&all, 1.0), uses, &known(&[0, 1]), most, &[percent]).unwrap();
            found.budgets[0].pages
        };
        // 59 pages are saved, or 30.
        assert_eq!((pages(256, 2), pages(2, 3), pages(2, 4)), (1, 0, 1));
    }

    proptest! {
        #[test]
        fn no_budget_is_exceeded_and_more_never_buys_less(
            nodes in prop::collection::vec(0..4_u32, 1..6),
            contents in prop::collection::vec(prop::collection::vec((0..9_u32, any::<bool>()), 5), 0..40),
            mut percents in prop::collection::vec(0..101_u32, 1..6),
        ) {
            percents.sort_unstable();
            let (mut all, mut hot, mut others) = (Vec::new(), Vec::new(), Vec::new());
            for (fingerprint, uses) in (0..).zip(&contents) {
                for (tenant, &(count, is_hot)) in (0..).zip(uses).take(nodes.len()) {
                    all.push(Record { fingerprint, tenant, count: 1 });
                    if count > 0 {
                        let records = if is_hot { &mut hot } else { &mut others };
                        records.push(Record { fingerprint, tenant, count });
                    }
                }
            }
            let uses = Uses { hot: (&hot, 1.0), others: (&others, 1.0) };
            let found = replicas((&all, 1.0), uses, &known(&nodes), 256, &percents).unwrap();
            let saved = (contents.len() * (nodes.len() - 1)) as u64;
            let part = |budget: &Budget| budget.local.unwrap_or(0.0);
            let mut before = found.one_copy;
            for (budget, percent) in found.budgets.iter().zip(&percents) {
                prop_assert!(budget.pages * 100 <= saved * u64::from(*percent));
                prop_assert!(budget.pages >= before.pages && part(budget) >= part(&before));
                before = *budget;
            }
            prop_assert!(before.pages <= found.all.pages && part(&before) <= part(&found.all));
            prop_assert!(part(&found.all) <= 1.0 + 1e-9);
            let used: u32 = hot.iter().chain(&others).map(|record| record.count).sum();
            prop_assert_eq!(found.uses, if nodes.len() > 1 { used.into() } else { 0 });
        }
    }
}
