// SPDX-License-Identifier: GPL-2.0-only
//! Forecasts against merging page by page.

use super::*;
use proptest::prelude::*;

/// A page: whose, and what is in it; 0 is a page of zeroes.
type Page = (u32, u64);

fn scatter(content: u64) -> u64 {
    content.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn run(pages: &[Page], nodes: &[(u32, i32)], settings: Settings, memory: u64) -> Forecast {
    let mut contents = Contents::new(memory, 0);
    let mut tenants: Vec<Tenant> =
        nodes.iter().map(|&(node, nice)| Tenant { node: Some(node), nice, ..Tenant::default() }).collect();
    for &(tenant, content) in pages {
        let counts = &mut tenants[tenant as usize];
        if content == 0 {
            counts.zero_pages += 1;
        } else {
            counts.pages += 1;
            contents.add(tenant, scatter(content));
        }
    }
    let (records, rate) = contents.finish();
    forecast(&records, rate, &tenants, settings)
}

fn settings(max_page_sharing: u64, use_zero_pages: bool) -> Settings {
    Settings { max_page_sharing, use_zero_pages, page_size: 4096 }
}

/// Merges as ksmd does: each page joins a copy that has room, or stays.
/// `domain` says which pages may be merged at all. Returns pages saved.
fn merge(pages: &[Page], max_page_sharing: u64, domain: impl Fn(u32) -> u32) -> u64 {
    let mut copies = HashMap::<(u32, u64), Vec<u64>>::new();
    let mut saved = 0;
    for &(tenant, content) in pages {
        let copies = copies.entry((domain(tenant), content)).or_default();
        match copies.iter_mut().find(|users| **users < max_page_sharing) {
            Some(users) => {
                *users += 1;
                saved += 1;
            }
            None => copies.push(1),
        }
    }
    saved
}

fn distinct(pages: &[Page], tenant: u32) -> Vec<u64> {
    let mut contents: Vec<u64> =
        pages.iter().filter(|page| page.0 == tenant && page.1 != 0).map(|page| page.1).collect();
    contents.sort_unstable();
    contents.dedup();
    contents
}

fn count(pages: &[Page], content: u64) -> usize {
    pages.iter().filter(|page| page.1 == content).count()
}

fn close(figure: Figure, truth: f64) -> bool {
    figure == Figure::exact(figure.value) && (figure.value - truth).abs() < 1e-6
}

fn memory() -> impl Strategy<Value = (Vec<(u32, i32)>, Vec<Page>)> {
    prop::collection::vec((0..3_u32, -20..20_i32), 1..5).prop_flat_map(|nodes| {
        let tenants = u32::try_from(nodes.len()).unwrap();
        (Just(nodes), prop::collection::vec((0..tenants, 0..12_u64), 0..120))
    })
}

proptest! {
    #[test]
    fn savings_are_those_of_merging_page_by_page(
        (nodes, pages) in memory(),
        max in 2..8_u64,
        use_zero_pages: bool,
    ) {
        let forecast = run(&pages, &nodes, settings(max, use_zero_pages), 1 << 20);
        let (zero, rest): (Vec<Page>, Vec<Page>) = pages.iter().partition(|page| page.1 == 0);
        let across = |_: u32| 0;
        let within = |tenant: u32| nodes[tenant as usize].0;
        let tracked = if use_zero_pages { rest.len() } else { pages.len() };
        for (saving, saved, saved_zero) in [
            (forecast.across_nodes, merge(&rest, max, across), merge(&zero, max, across)),
            (forecast.within_nodes.unwrap(), merge(&rest, max, within), merge(&zero, max, within)),
        ] {
            let saved_zero = if use_zero_pages { zero.len() as u64 } else { saved_zero };
            prop_assert!(close(saving.merged_pages, saved as f64), "{:?}, not {}", saving, saved);
            prop_assert_eq!(saving.zero_pages, saved_zero);
            let net = (saved + saved_zero) as f64 * 4096.0 - tracked as f64 * 64.0;
            prop_assert!(close(saving.net_bytes, net), "{:?}, not {}", saving, net);
        }
    }

    #[test]
    fn tenants_parts_are_what_each_page_says((nodes, pages) in memory(), max in 2..8_u64) {
        let forecast = run(&pages, &nodes, settings(max, false), 1 << 20);
        let mut parts = 0.0;
        for (tenant, of) in (0..).zip(&forecast.tenants) {
            let own = distinct(&pages, tenant);
            let unique = own.iter().filter(|&&content| count(&pages, content) == 1).count();
            prop_assert!(close(of.unique_pages, unique as f64));
            prop_assert!(close(of.merged_pages, (own.len() - unique) as f64));
            parts += of.saved_pages.value;
        }
        prop_assert!((parts - forecast.across_nodes.merged_pages.value).abs() < 1e-6);
    }

    #[test]
    fn pairs_have_the_contents_that_both_have((nodes, pages) in memory()) {
        let forecast = run(&pages, &nodes, settings(256, false), 1 << 20);
        let mut pairs = Vec::new();
        for left in 0..u32::try_from(nodes.len()).unwrap() {
            for right in left + 1..u32::try_from(nodes.len()).unwrap() {
                let theirs = distinct(&pages, right);
                let common = distinct(&pages, left).iter().filter(|c| theirs.contains(c)).count();
                if common > 0 {
                    pairs.push(Pair { tenants: [left, right], pages: Figure::exact(common as f64) });
                }
            }
        }
        prop_assert_eq!(forecast.pairs, pairs);
    }

    #[test]
    fn remote_shares_are_those_of_each_merged_page((nodes, pages) in memory()) {
        let forecast = run(&pages, &nodes, settings(256, false), 1 << 20);
        for (tenant, of) in (0..).zip(&forecast.tenants) {
            let home = nodes[tenant as usize].0;
            let merged: Vec<u64> =
                distinct(&pages, tenant).into_iter().filter(|&c| count(&pages, c) > 1).collect();
            let Some(remote) = of.remote else {
                prop_assert!(merged.is_empty());
                continue;
            };
            let (mut first, mut worst, mut fair, mut priority) = (0.0, 0.0, 0.0, 0.0);
            for &content in &merged {
                // By tenant, as ksmd would come along.
                let mut users: Vec<u32> =
                    pages.iter().filter(|page| page.1 == content).map(|page| page.0).collect();
                users.sort_unstable();
                let second = users[1];
                users.dedup();
                let weight = |tenant: u32| 1.0 / f64::from(nodes[tenant as usize].1 + 21);
                let at_home: Vec<u32> =
                    users.iter().copied().filter(|&user| nodes[user as usize].0 == home).collect();
                let mut on: Vec<u32> = users.iter().map(|&user| nodes[user as usize].0).collect();
                on.sort_unstable();
                on.dedup();
                first += f64::from(u8::from(nodes[second as usize].0 != home));
                worst += f64::from(u8::from(on.len() > 1));
                fair += 1.0 - 1.0 / on.len() as f64;
                let sum = |of: &[u32]| of.iter().map(|&user| weight(user)).sum::<f64>();
                priority += 1.0 - sum(&at_home) / sum(&users);
            }
            let mean = |sum: f64| sum / merged.len() as f64;
            prop_assert!(close(remote.first, mean(first)), "{:?}", remote);
            prop_assert!(close(remote.first_worst, mean(worst)), "{:?}", remote);
            prop_assert!(close(remote.fair, mean(fair)), "{:?}", remote);
            prop_assert!(close(remote.priority, mean(priority)), "{:?}", remote);
        }
    }
}

/// Two tenants of 20,000 pages each: half of their contents are the same, and
/// a tenth of all pages has one content.
fn twins(shift: u64) -> Vec<Page> {
    let contents = |own: u64| {
        (0..20_000).map(move |page| {
            if page % 10 == 0 {
                shift
            } else if page % 2 == 0 {
                shift + page
            } else {
                shift + own + page
            }
        })
    };
    contents(1 << 30).map(|c| (0, c)).chain(contents(1 << 31).map(|c| (1, c))).collect()
}

#[test]
fn samples_come_near_and_say_how_near() {
    let nodes = [(0, 0), (1, 0)];
    let mut inside = [0_u32; 4];
    for population in 0..30 {
        let pages = twins(1 + (population << 40));
        let exact = run(&pages, &nodes, settings(256, false), 1 << 30);
        let sample = run(&pages, &nodes, settings(256, false), 64 << 10);
        assert!(exact.rate > 0.9 && sample.rate < 0.2, "{}", sample.rate);
        let figures = |forecast: &Forecast| {
            let tenant = &forecast.tenants[0];
            let saved = forecast.across_nodes.merged_pages;
            [saved, tenant.saved_pages, tenant.unique_pages, forecast.pairs[0].pages]
        };
        for ((inside, exact), sample) in inside.iter_mut().zip(figures(&exact)).zip(figures(&sample)) {
            *inside += u32::from(sample.low <= exact.value && exact.value <= sample.high);
            let error = (sample.value - exact.value).abs() / exact.value;
            assert!(error < 0.15, "{sample:?}, not {exact:?}");
        }
    }
    assert!(inside.iter().all(|&inside| inside >= 26), "of 30 there were {inside:?} within the bounds");
}

#[test]
fn a_content_with_very_many_pages_needs_more_copies() {
    let pages: Vec<Page> = (0..1_000).map(|_| (0, 7)).collect();
    let saving = run(&pages, &[(0, 0)], settings(256, false), 1 << 20).across_nodes;
    assert_eq!(saving.merged_pages, Figure::exact(996.0));
}

#[test]
fn without_nodes_nothing_is_said_of_nodes() {
    let tenants =
        [Tenant { node: Some(0), pages: 1, ..Tenant::default() }, Tenant { pages: 1, ..Tenant::default() }];
    let mut contents = Contents::new(1 << 20, 0);
    contents.add(0, 1);
    contents.add(1, 1);
    let (records, rate) = contents.finish();
    let forecast = forecast(&records, rate, &tenants, settings(256, false));
    assert_eq!((forecast.within_nodes, forecast.tenants[0].remote), (None, None));
    assert_eq!(forecast.across_nodes.merged_pages, Figure::exact(1.0));
}

#[test]
fn frames_that_are_shared_already_are_counted_by_their_further_places() {
    let mut frames = Contents::new(1 << 20, 0);
    for (tenant, frame) in [(0, 1), (0, 1), (1, 1), (1, 2)] {
        frames.add(tenant, scatter(frame));
    }
    let (records, rate) = frames.finish();
    assert_eq!(already_shared(&records, rate, 4), Figure::exact(2.0));
}
