// SPDX-License-Identifier: GPL-2.0-only
//! What merging would save, from the contents of pages.
//!
//! Of all pages of one content KSM keeps one copy per `max_page_sharing`
//! places that use it; the others are saved. How many pages there are is known
//! exactly, so only the number of copies is estimated when contents are
//! sampled: a content with a million pages is one copy, or a few, and whether
//! it is in the sample changes little.

mod contents;
mod domains;
mod figure;
mod replicas;
mod tenant;
#[cfg(test)]
mod tests;

pub use contents::{Contents, Record};
pub use domains::{Domain, Partition, partition};
pub use figure::{Figure, Sum};
pub use replicas::{Budget, Kept, Replicas, Uses, replicas};
pub use tenant::{Settings, Tenant};

use crate::{Policy, Sharer, node_shares};
use std::collections::{BTreeMap, HashMap};

/// Bytes of KSM's record of a page it tracks (`struct ksm_rmap_item` of 64-bit
/// kernels with NUMA), as `general_profit` counts them.
const RMAP_ITEM_BYTES: u64 = 64;

/// What merging would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The part of all contents that the figures are from; 1: they are exact.
    pub rate: f64,
    /// In the order of the tenants.
    pub tenants: Vec<TenantForecast>,
    /// Each two tenants that have any content in common.
    pub pairs: Vec<Pair>,
    /// With `merge_across_nodes` 1.
    pub across_nodes: Saving,
    /// With `merge_across_nodes` 0; `None` unless all tenants' nodes are known.
    pub within_nodes: Option<Saving>,
}

/// What is saved in the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saving {
    /// Pages saved of those that are not all zeroes.
    pub merged_pages: Figure,
    /// Pages of zeroes saved.
    pub zero_pages: u64,
    /// Bytes of KSM's records of all pages it has to track.
    pub metadata_bytes: u64,
    /// Bytes saved less those.
    pub net_bytes: Figure,
}

/// One tenant's part; pages of zeroes are not in these figures.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantForecast {
    /// Pages whose content is nowhere else, not in the tenant either.
    pub unique_pages: Figure,
    /// Its part of the saved pages: each content's are divided among those who
    /// have it, by the number of their pages.
    pub saved_pages: Figure,
    /// Merged pages it would use, each counted once.
    pub merged_pages: Figure,
    /// Where those would be; `None` when there are none or nodes are unknown.
    pub remote: Option<RemoteShares>,
}

/// The part of a tenant's merged pages that would be on other nodes, 0 to 1,
/// with `merge_across_nodes` 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemoteShares {
    /// As KSM leaves it when it meets the tenants in their order: of a
    /// content's first two pages the second one stays.
    pub first: Figure,
    /// As KSM leaves it in the worst case: always the copy of another node.
    pub first_worst: Figure,
    /// Spread evenly over the sharers' nodes.
    pub fair: Figure,
    /// Spread by the sharers' nice values.
    pub priority: Figure,
}

/// Two tenants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Their indexes, ascending.
    pub tenants: [u32; 2],
    /// Contents that both have: merged pages that both would use.
    pub pages: Figure,
}

/// Merges in thought. `records` and `rate` are what [`Contents::finish`] gives,
/// of all pages of `tenants` that are not all zeroes.
#[must_use]
pub fn forecast(records: &[Record], rate: f64, tenants: &[Tenant], settings: Settings) -> Forecast {
    let mut tally = Tally::new(tenants, settings);
    for content in records.chunk_by(|left, right| left.fingerprint == right.fingerprint) {
        tally.add(content);
    }
    tally.look_at_sets();
    tally.forecast(rate)
}

/// Pages that are saved although their frames were already shared: `records` are
/// of frames that several places map, `pages` is the number of those places.
#[must_use]
pub fn already_shared(records: &[Record], rate: f64, pages: u64) -> Figure {
    let mut frames = Sum::default();
    for _ in records.chunk_by(|left, right| left.fingerprint == right.fingerprint) {
        frames.add(1.0);
    }
    frames.total(rate).rest_of(pages)
}

/// Sums over contents for one tenant.
#[derive(Debug, Clone, Copy, Default)]
struct TenantTally {
    unique: u64,
    /// Its part of the copies that stay, unique pages included.
    copies: Sum,
    merged: u64,
    first: Sum,
    first_worst: Sum,
    fair: Sum,
    priority: Sum,
}

struct Tally<'a> {
    tenants: &'a [Tenant],
    settings: Settings,
    nodes_known: bool,
    copies: Sum,
    copies_within_nodes: Sum,
    of_tenants: Vec<TenantTally>,
    /// Contents by the tenants that have them, two at least.
    sets: HashMap<Vec<u32>, u64>,
    pairs: BTreeMap<[u32; 2], u64>,
}

impl<'a> Tally<'a> {
    fn new(tenants: &'a [Tenant], settings: Settings) -> Self {
        Self {
            tenants,
            settings,
            nodes_known: tenants.iter().all(|tenant| tenant.node.is_some()),
            copies: Sum::default(),
            copies_within_nodes: Sum::default(),
            of_tenants: vec![TenantTally::default(); tenants.len()],
            sets: HashMap::new(),
            pairs: BTreeMap::new(),
        }
    }

    fn node(&self, tenant: u32) -> Option<u32> {
        self.tenants[tenant as usize].node
    }

    /// Copies of one content that stay when `pages` pages have it.
    fn copies_of(&self, pages: u64) -> u64 {
        pages.div_ceil(self.settings.max_page_sharing.max(1))
    }

    /// The same when only pages of one node may be merged; `pages` by tenant.
    fn copies_on_nodes(&self, pages: impl Iterator<Item = (u32, u64)>) -> u64 {
        let mut on_nodes = BTreeMap::<Option<u32>, u64>::new();
        for (tenant, pages) in pages {
            *on_nodes.entry(self.node(tenant)).or_default() += pages;
        }
        on_nodes.into_values().map(|pages| self.copies_of(pages)).sum()
    }

    /// Adds one content: its records, ascending by tenant.
    fn add(&mut self, content: &[Record]) {
        let pages: u64 = content.iter().map(|record| u64::from(record.count)).sum();
        let copies = self.copies_of(pages) as f64;
        self.copies.add(copies);
        if let [only] = content {
            // Most contents are of one tenant: no need to sort those by node.
            self.copies_within_nodes.add(copies);
            let tally = &mut self.of_tenants[only.tenant as usize];
            tally.copies.add(copies);
            tally.unique += u64::from(pages == 1);
            tally.merged += u64::from(pages > 1);
            return;
        }
        let within = self.copies_on_nodes(content.iter().map(|r| (r.tenant, u64::from(r.count))));
        self.copies_within_nodes.add(within as f64);
        let second = if content[0].count > 1 { content[0] } else { content[1] };
        let winner = self.node(second.tenant);
        for record in content {
            let is_remote = self.node(record.tenant) != winner;
            let tally = &mut self.of_tenants[record.tenant as usize];
            tally.copies.add(copies * f64::from(record.count) / pages as f64);
            tally.merged += 1;
            tally.first.add(f64::from(u8::from(is_remote)));
        }
        let set: Vec<u32> = content.iter().map(|record| record.tenant).collect();
        *self.sets.entry(set).or_default() += 1;
    }

    /// Adds what depends only on who shares.
    fn look_at_sets(&mut self) {
        for (set, contents) in std::mem::take(&mut self.sets) {
            for (index, &left) in set.iter().enumerate() {
                for &right in &set[index + 1..] {
                    *self.pairs.entry([left, right]).or_default() += contents;
                }
            }
            let sharers: Vec<Sharer> = set
                .iter()
                .map(|&tenant| &self.tenants[tenant as usize])
                .filter_map(|tenant| Some(Sharer { node: tenant.node?, nice: tenant.nice }))
                .collect();
            for (&tenant, sharer) in set.iter().zip(&sharers) {
                let elsewhere = sharers.iter().any(|other| other.node != sharer.node);
                let remote = |policy| 1.0 - local_share(policy, &sharers, sharer.node);
                let tally = &mut self.of_tenants[tenant as usize];
                tally.first_worst.add_times(f64::from(u8::from(elsewhere)), contents);
                tally.fair.add_times(remote(Policy::Fair), contents);
                tally.priority.add_times(remote(Policy::Priority), contents);
            }
        }
    }

    fn forecast(&self, rate: f64) -> Forecast {
        let pairs = self.pairs.iter().map(|(&tenants, &contents)| {
            let mut pages = Sum::default();
            pages.add_times(1.0, contents);
            Pair { tenants, pages: pages.total(rate) }
        });
        let zero_pages = || (0..).zip(self.tenants).map(|(index, tenant)| (index, tenant.zero_pages));
        let zero_copies = self.copies_of(zero_pages().map(|(_, pages)| pages).sum());
        let zero_copies_within = self.copies_on_nodes(zero_pages());
        Forecast {
            rate,
            tenants: self.tenants.iter().zip(&self.of_tenants).map(|of| self.of_tenant(of, rate)).collect(),
            pairs: pairs.collect(),
            across_nodes: self.saving(self.copies, zero_copies, rate),
            within_nodes: self
                .nodes_known
                .then(|| self.saving(self.copies_within_nodes, zero_copies_within, rate)),
        }
    }

    fn of_tenant(&self, (tenant, tally): (&Tenant, &TenantTally), rate: f64) -> TenantForecast {
        let count = |contents: u64| {
            let mut sum = Sum::default();
            sum.add_times(1.0, contents);
            sum.total(rate)
        };
        let remote = || {
            let mean = |sum: Sum| sum.mean(tally.merged, rate);
            Some(RemoteShares {
                first: mean(tally.first)?,
                first_worst: mean(tally.first_worst)?,
                fair: mean(tally.fair)?,
                priority: mean(tally.priority)?,
            })
        };
        TenantForecast {
            unique_pages: count(tally.unique),
            saved_pages: tally.copies.total(rate).rest_of(tenant.pages),
            merged_pages: count(tally.merged),
            remote: if self.nodes_known { remote() } else { None },
        }
    }

    fn saving(&self, copies: Sum, zero_copies: u64, rate: f64) -> Saving {
        let pages: u64 = self.tenants.iter().map(|tenant| tenant.pages).sum();
        let zero_pages: u64 = self.tenants.iter().map(|tenant| tenant.zero_pages).sum();
        let merged_pages = copies.total(rate).rest_of(pages);
        // The kernel's zero page costs nothing, and KSM does not track it.
        let (zero_saved, tracked) = if self.settings.use_zero_pages {
            (zero_pages, pages)
        } else {
            (zero_pages - zero_copies, pages + zero_pages)
        };
        let (metadata_bytes, page_size) = (tracked * RMAP_ITEM_BYTES, self.settings.page_size);
        let besides = metadata_bytes as f64 - (zero_saved * page_size) as f64;
        let net_bytes = merged_pages.scaled(page_size as f64, besides);
        Saving { merged_pages, zero_pages: zero_saved, metadata_bytes, net_bytes }
    }
}

/// The part of a sharing set's pages that `policy` puts on `node`.
fn local_share(policy: Policy, sharers: &[Sharer], node: u32) -> f64 {
    let by_node = node_shares(policy, sharers);
    let sum: u128 = by_node.iter().map(|share| share.weight).sum();
    let here = by_node.iter().find(|share| share.node == node).map_or(0, |share| share.weight);
    here as f64 / sum as f64
}
