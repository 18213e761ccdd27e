// SPDX-License-Identifier: GPL-2.0-only
//! What merging would save where tenants are in merge domains, and what borders cost.

use super::contents::Record;
use super::figure::{Figure, Sum};
use super::tenant::{Settings, Tenant};
use std::collections::BTreeMap;

/// Tenants that may share with each other alone; zero pages stand apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Domain {
    /// Tenants in it.
    pub tenants: usize,
    /// Their pages that are not all zeroes.
    pub pages: u64,
    /// Those that merging would save.
    pub saved_pages: Figure,
}

/// All domains.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// By their numbers.
    pub domains: Vec<Domain>,
    /// Pages that merging would save in all of them.
    pub saved_pages: Figure,
    /// Pages that it would save besides if there were one domain only.
    pub border_pages: Figure,
    /// Pages of zeroes that it would save besides then.
    pub border_zero_pages: u64,
}

/// Merges in thought, in each domain by itself, over nodes. `records` and `rate` are as for
/// [`super::forecast`]; `domain_of` has a number for each tenant, from 0 on.
#[must_use]
pub fn partition(
    records: &[Record],
    rate: f64,
    tenants: &[Tenant],
    domain_of: &[usize],
    settings: Settings,
) -> Partition {
    let copies_of = |pages: u64| pages.div_ceil(settings.max_page_sharing.max(1));
    let count = domain_of.iter().max().map_or(0, |last| last + 1);
    let mut copies = vec![Sum::default(); count];
    let (mut all, mut border) = (Sum::default(), Sum::default());
    for content in records.chunk_by(|left, right| left.fingerprint == right.fingerprint) {
        let mut pages = BTreeMap::<usize, u64>::new();
        for record in content {
            *pages.entry(domain_of[record.tenant as usize]).or_default() += u64::from(record.count);
        }
        let mut apart = 0;
        for (&domain, &pages) in &pages {
            copies[domain].add(copies_of(pages) as f64);
            apart += copies_of(pages);
        }
        all.add(apart as f64);
        let together = copies_of(pages.values().sum());
        border.add((apart - together) as f64);
    }
    let mut domains: Vec<Domain> =
        copies.iter().map(|_| Domain { tenants: 0, pages: 0, saved_pages: Figure::exact(0.0) }).collect();
    let mut zero_pages = vec![0; count];
    for (tenant, &domain) in tenants.iter().zip(domain_of) {
        domains[domain].tenants += 1;
        domains[domain].pages += tenant.pages;
        zero_pages[domain] += tenant.zero_pages;
    }
    for (domain, copies) in domains.iter_mut().zip(copies) {
        domain.saved_pages = copies.total(rate).rest_of(domain.pages);
    }
    // The kernel's zero page belongs to nobody.
    let border_zero_pages = if settings.use_zero_pages {
        0
    } else {
        zero_pages.iter().map(|&pages| copies_of(pages)).sum::<u64>() - copies_of(zero_pages.iter().sum())
    };
    let pages = tenants.iter().map(|tenant| tenant.pages).sum();
    Partition {
        domains,
        saved_pages: all.total(rate).rest_of(pages),
        border_pages: border.total(rate),
        border_zero_pages,
    }
}

#[cfg(test)]
mod tests {
    use super::super::contents::Contents;
    use super::*;
    use proptest::prelude::*;

    const SETTINGS: Settings = Settings { max_page_sharing: 3, use_zero_pages: false, page_size: 4096 };

    /// Tenants with these contents, and so many pages of zeroes each.
    fn tenants(contents: &[&[u64]], zero_pages: u64) -> (Vec<Record>, Vec<Tenant>) {
        let mut all = Contents::new(1 << 20, 0);
        let mut tenants = Vec::new();
        for (number, contents) in (0..).zip(contents) {
            contents.iter().for_each(|content| all.add(number, *content));
            tenants.push(Tenant { pages: contents.len() as u64, zero_pages, ..Tenant::default() });
        }
        (all.finish().0, tenants)
    }

    #[test]
    fn borders_cost_what_would_be_shared_across_them() {
        let (records, tenants) = tenants(&[&[1, 2, 3], &[1, 2, 4], &[1, 5, 5]], 1);
        let of = |domains: &[usize]| partition(&records, 1.0, &tenants, domains, SETTINGS);
        let one = of(&[0, 0, 0]);
        assert_eq!((one.saved_pages.value, one.border_pages.value, one.border_zero_pages), (4.0, 0.0, 0));
        let two = of(&[0, 0, 1]);
        assert_eq!((two.saved_pages.value, two.border_pages.value, two.border_zero_pages), (3.0, 1.0, 1));
        let of_each: Vec<_> = two.domains.iter().map(|d| (d.tenants, d.pages, d.saved_pages.value)).collect();
        assert_eq!(of_each, [(2, 6, 2.0), (1, 3, 1.0)]);
        let zero = Settings { use_zero_pages: true, ..SETTINGS };
        assert_eq!(partition(&records, 1.0, &tenants, &[0, 1, 2], zero).border_zero_pages, 0);
    }

    proptest! {
        #[test]
        fn one_domain_saves_all_but_the_copies_and_several_what_borders_leave(
            pages in prop::collection::vec((0..4_usize, 1..9_u64), 1..200),
            domain_of in prop::collection::vec(0..3_usize, 4),
        ) {
            let of = |tenant| pages.iter().filter(|page| page.0 == tenant).map(|page| page.1).collect();
            let each: Vec<Vec<u64>> = (0..4).map(of).collect();
            let each: Vec<&[u64]> = each.iter().map(Vec::as_slice).collect();
            let (records, tenants) = tenants(&each, 2);
            let copies: u64 = records
                .chunk_by(|left, right| left.fingerprint == right.fingerprint)
                .map(|content| content.iter().map(|r| u64::from(r.count)).sum::<u64>().div_ceil(3))
                .sum();
            let none = (pages.len() as u64 - copies) as f64;
            let one = partition(&records, 1.0, &tenants, &[0; 4], SETTINGS);
            prop_assert!((one.saved_pages.value - none).abs() < 0.5 && one.border_pages.value < 0.5);
            let several = partition(&records, 1.0, &tenants, &domain_of, SETTINGS);
            let sum = several.saved_pages.value + several.border_pages.value;
            prop_assert!((sum - none).abs() < 0.5, "{sum} {none}");
            let sum: f64 = several.domains.iter().map(|domain| domain.saved_pages.value).sum();
            prop_assert!((sum - several.saved_pages.value).abs() < 0.5);
        }
    }
}
