// SPDX-License-Identifier: GPL-2.0-only
//! The report, as --json prints it.

use super::gather::Gathered;
use nuksm_model::estimate::{self, Figure, Forecast, RemoteShares, Saving, Settings};
use serde::Serialize;

/// What merging would save, and where the merged pages would be.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The part of all contents the figures are from; 1 when nothing was sampled.
    pub sampled: f64,
    pub page_size: u64,
    pub max_page_sharing: u64,
    pub use_zero_pages: bool,
    pub totals: Totals,
    /// In the order in which they were looked at.
    pub tenants: Vec<TenantRow>,
    /// Each two tenants that have anything in common, most first.
    pub pairs: Vec<PairRow>,
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Totals {
    /// Pages looked at.
    pub pages: u64,
    /// Those of them that are all zeroes.
    pub zero_pages: u64,
    /// Pages that cannot be saved any more, several places share them already:
    /// they were merged, or a fork left them so. `None` when unknown.
    pub already_shared_pages: Option<Count>,
    /// Pages of zeroes without memory of their own; not among `pages`.
    pub zero_already_pages: u64,
    /// Pages that were gone before they could be read; not among `pages`.
    pub vanished_pages: u64,
    pub across_nodes: SavingRow,
    /// `None` when some tenant's node is unknown.
    pub within_nodes: Option<SavingRow>,
}

#[derive(Debug, Serialize)]
pub struct SavingRow {
    pub saved_pages: Count,
    pub zero_pages: u64,
    pub metadata_bytes: u64,
    pub net_saved_bytes: Count,
}

#[derive(Debug, Serialize)]
pub struct TenantRow {
    pub name: String,
    /// Where its pages were read: `pid 123`, or a file.
    pub source: String,
    pub pid: Option<u32>,
    pub node: Option<u32>,
    pub nice: i32,
    /// Pages looked at.
    pub pages: u64,
    pub zero_pages: u64,
    pub unique_pages: Count,
    /// Its part of the pages saved, zero pages apart.
    pub saved_pages: Count,
    /// Merged pages it would use.
    pub merged_mappings: Count,
    /// The part of those that would be on other nodes.
    pub remote: Option<Remote>,
}

#[derive(Debug, Serialize)]
pub struct Remote {
    pub first: Figure,
    pub first_worst: Figure,
    pub fair: Figure,
    pub priority: Figure,
}

#[derive(Debug, Serialize)]
pub struct PairRow {
    /// Indexes of `tenants`.
    pub tenants: [u32; 2],
    pub names: [String; 2],
    /// Merged pages that both would use.
    pub pages: Count,
}

/// A [`Figure`] in whole pages or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Count {
    pub value: i64,
    pub low: i64,
    pub high: i64,
}

impl From<Figure> for Count {
    fn from(figure: Figure) -> Self {
        // Far below what a float holds exactly.
        #[allow(clippy::cast_possible_truncation)]
        let whole = |value: f64| value.round() as i64;
        Self { value: whole(figure.value), low: whole(figure.low), high: whole(figure.high) }
    }
}

impl Count {
    /// How far the value may be off.
    pub fn error(self) -> i64 {
        (self.high - self.value).max(self.value - self.low)
    }
}

impl Report {
    pub fn new(gathered: Gathered, settings: Settings, mut notes: Vec<String>) -> Self {
        let Gathered { labels, tenants, contents, frames, .. } = gathered;
        let (records, rate) = contents.finish();
        let forecast = estimate::forecast(&records, rate, &tenants, settings);
        drop(records);
        let (frames, frames_rate) = frames.finish();
        let already = estimate::already_shared(&frames, frames_rate, gathered.shared_places);
        if forecast.within_nodes.is_none() {
            notes
                .push("some tenants' nodes are unknown, so nothing is said of nodes: write FILE@NODE".into());
        }
        let zero_pages = tenants.iter().map(|tenant| tenant.zero_pages).sum();
        let Forecast { tenants: forecasts, pairs, across_nodes, within_nodes, rate } = forecast;
        let mut pairs: Vec<PairRow> = pairs
            .iter()
            .map(|pair| PairRow {
                tenants: pair.tenants,
                names: pair.tenants.map(|tenant| labels[tenant as usize].0.tenant.clone()),
                pages: pair.pages.into(),
            })
            .collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.pages.value));
        let mut rows = Vec::new();
        for (((label, pid), tenant), forecast) in labels.into_iter().zip(&tenants).zip(forecasts) {
            rows.push(TenantRow {
                name: label.tenant,
                source: label.source,
                pid,
                node: label.node,
                nice: label.nice,
                pages: tenant.pages + tenant.zero_pages,
                zero_pages: tenant.zero_pages,
                unique_pages: forecast.unique_pages.into(),
                saved_pages: forecast.saved_pages.into(),
                merged_mappings: forecast.merged_pages.into(),
                remote: forecast.remote.map(Remote::from),
            });
        }
        Self {
            sampled: rate,
            page_size: settings.page_size,
            max_page_sharing: settings.max_page_sharing,
            use_zero_pages: settings.use_zero_pages,
            totals: Totals {
                pages: tenants.iter().map(|tenant| tenant.pages + tenant.zero_pages).sum(),
                zero_pages,
                already_shared_pages: gathered.frames_known.then(|| already.into()),
                zero_already_pages: gathered.zero_already,
                vanished_pages: gathered.vanished,
                across_nodes: across_nodes.into(),
                within_nodes: within_nodes.map(Into::into),
            },
            tenants: rows,
            pairs,
            notes,
        }
    }
}

impl From<Saving> for SavingRow {
    fn from(saving: Saving) -> Self {
        Self {
            saved_pages: saving.merged_pages.into(),
            zero_pages: saving.zero_pages,
            metadata_bytes: saving.metadata_bytes,
            net_saved_bytes: saving.net_bytes.into(),
        }
    }
}

impl From<RemoteShares> for Remote {
    fn from(shares: RemoteShares) -> Self {
        let RemoteShares { first, first_worst, fair, priority } = shares;
        Self { first, first_worst, fair, priority }
    }
}
