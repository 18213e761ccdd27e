// SPDX-License-Identifier: GPL-2.0-only
//! Which contents which tenant has how often, in bounded memory.
//!
//! When the memory is full, half of all contents are forgotten, chosen by
//! their fingerprints: those whose next bit is set. A content is forgotten in
//! all tenants or in none, so equal pages stay together, which a sample of
//! pages would tear apart.

/// One content in one tenant's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// What the content is known by.
    pub fingerprint: u64,
    /// Index of the tenant.
    pub tenant: u32,
    /// Pages of the tenant that have it.
    pub count: u32,
}

/// The contents seen so far, or a sample of them.
#[derive(Debug)]
pub struct Contents {
    records: Vec<Record>,
    limit: usize,
    /// Contents are kept whose fingerprint starts with so many zero bits.
    zero_bits: u32,
}

/// Fewer records than this are of no use.
const LEAST_RECORDS: usize = 1024;

impl Contents {
    /// For at most `bytes` of records; one content in 2^`zero_bits` is kept
    /// from the beginning on.
    #[must_use]
    pub fn new(bytes: u64, zero_bits: u32) -> Self {
        let limit = usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<Record>();
        Self { records: Vec::new(), limit: limit.max(LEAST_RECORDS), zero_bits: zero_bits.min(63) }
    }

    /// The part of all contents that is kept, at most 1.
    #[must_use]
    pub fn rate(&self) -> f64 {
        1.0 / (1_u64 << self.zero_bits) as f64
    }

    /// A page of `tenant`.
    pub fn add(&mut self, tenant: u32, fingerprint: u64) {
        self.add_times(tenant, fingerprint, 1);
    }

    /// So many at once, or so many uses of one.
    pub fn add_times(&mut self, tenant: u32, fingerprint: u64, count: u32) {
        let record = Record { fingerprint, tenant, count };
        if !self.keeps(record.fingerprint) {
            return;
        }
        if self.records.len() == self.limit {
            self.make_room();
            if !self.keeps(record.fingerprint) {
                return;
            }
        }
        if self.records.len() == self.records.capacity() {
            // Doubling by itself could go far beyond the limit.
            let more = self.records.len().max(LEAST_RECORDS).min(self.limit - self.records.len());
            self.records.reserve_exact(more);
        }
        self.records.push(record);
    }

    fn keeps(&self, fingerprint: u64) -> bool {
        fingerprint.leading_zeros() >= self.zero_bits
    }

    /// Makes half of the memory free, by counting equal records once, and by
    /// forgetting contents where that is not enough.
    fn make_room(&mut self) {
        self.fold();
        while self.records.len() > self.limit / 2 && self.zero_bits < 63 {
            self.zero_bits += 1;
            let zero_bits = self.zero_bits;
            self.records.retain(|record| record.fingerprint.leading_zeros() >= zero_bits);
        }
    }

    /// Sorts, and makes one record of those of one content in one tenant.
    fn fold(&mut self) {
        self.records.sort_unstable();
        self.records.dedup_by(|next, first| {
            let same = (next.fingerprint, next.tenant) == (first.fingerprint, first.tenant);
            if same {
                first.count = first.count.saturating_add(next.count);
            }
            same
        });
    }

    /// All records, ascending by fingerprint and tenant, one of each.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Record>, f64) {
        self.fold();
        let rate = self.rate();
        (self.records, rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_fits_is_exact() {
        let mut contents = Contents::new(1 << 20, 0);
        for _ in 0..300 {
            contents.add(1, 5);
            contents.add(0, 5);
        }
        contents.add(0, u64::MAX);
        let (records, rate) = contents.finish();
        let counts: Vec<_> = records.iter().map(|r| (r.fingerprint, r.tenant, r.count)).collect();
        assert_eq!((counts, rate), (vec![(5, 0, 300), (5, 1, 300), (u64::MAX, 0, 1)], 1.0));
    }

    #[test]
    fn many_pages_of_few_contents_need_no_sampling() {
        let mut contents = Contents::new(0, 0);
        for page in 0..100_000_u64 {
            contents.add(0, (page % 500) << 50);
        }
        let (records, rate) = contents.finish();
        assert_eq!((records.len(), rate), (500, 1.0));
        assert!(records.iter().all(|record| record.count == 200));
    }

    #[test]
    fn the_wanted_sample_is_taken_from_the_beginning_on() {
        let mut contents = Contents::new(1 << 20, 2);
        for page in 0..16_u64 {
            contents.add(0, page << 60);
        }
        let (records, rate) = contents.finish();
        assert_eq!((records.len(), rate), (4, 0.25));
    }

    proptest! {
        #[test]
        fn a_kept_content_is_kept_in_all_tenants_and_counted_right(
            pages in prop::collection::vec((0..4_u32, 0..3_000_u64), 0..6_000),
        ) {
            let print = |content: u64| content.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut contents = Contents::new(0, 0);
            let mut truth = BTreeMap::<(u64, u32), u32>::new();
            for &(tenant, content) in &pages {
                contents.add(tenant, print(content));
                prop_assert!(contents.records.capacity() <= LEAST_RECORDS, "the limit is kept");
                *truth.entry((print(content), tenant)).or_default() += 1;
            }
            let (records, rate) = contents.finish();
            truth.retain(|&(fingerprint, _), _| f64::from(fingerprint.leading_zeros()) >= -rate.log2());
            let kept: BTreeMap<_, _> =
                records.iter().map(|r| ((r.fingerprint, r.tenant), r.count)).collect();
            prop_assert_eq!(kept, truth);
        }
    }
}
