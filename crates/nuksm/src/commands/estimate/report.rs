// SPDX-License-Identifier: GPL-2.0-only
//! The report, as --json prints it.

use super::gather::Gathered;
use super::uses::{self, Used};
use nuksm_model::estimate::{
    self, Budget, Figure, Forecast, Kept, RemoteShares, Saving, Settings, Tenant, Uses,
};
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// What merge domains would leave, and cost; `None` unless asked for.
    pub domains: Option<Borders>,
    /// What replicas would buy; `None` unless asked for, or when it is unknown.
    pub replicas: Option<Replicas>,
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

/// What merge domains leave of the saving, and cost.
#[derive(Debug, Serialize)]
pub struct Borders {
    /// Pages that merging saves in all of them; zero pages stand apart.
    pub saved_pages: Count,
    /// Pages that it would save besides in one domain.
    pub border_pages: Count,
    /// Pages of zeroes, likewise.
    pub border_zero_pages: u64,
    /// By name.
    pub domains: Vec<DomainRow>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub struct DomainRow {
    /// Its name, or the cgroup whose own it is.
    pub name: String,
    pub tenants: usize,
    /// Pages that are not all zeroes.
    pub pages: u64,
    pub saved_pages: Count,
}

impl Borders {
    /// `names` has one for each of `tenants`.
    pub fn new(names: &[String], contents: Kept, tenants: &[Tenant], settings: Settings) -> Self {
        let mut numbers: BTreeMap<&str, usize> = names.iter().map(|name| (name.as_str(), 0)).collect();
        for (number, (_, place)) in numbers.iter_mut().enumerate() {
            *place = number;
        }
        let domain_of: Vec<usize> = names.iter().map(|name| numbers[name.as_str()]).collect();
        let (records, rate) = contents;
        let found = estimate::partition(records, rate, tenants, &domain_of, settings);
        let row = |(name, domain): (&&str, estimate::Domain)| DomainRow {
            name: (*name).to_owned(),
            tenants: domain.tenants,
            pages: domain.pages,
            saved_pages: domain.saved_pages.into(),
        };
        Self {
            saved_pages: found.saved_pages.into(),
            border_pages: found.border_pages.into(),
            border_zero_pages: found.border_zero_pages,
            domains: numbers.keys().zip(found.domains).map(row).collect(),
        }
    }
}

/// With `merge_across_nodes` 1, on a kernel with the engine.
#[derive(Debug, Serialize)]
pub struct Replicas {
    /// Windows of time in which use was watched.
    pub windows: u8,
    pub window_ms: u128,
    /// In so many of them a page has to be used to be hot.
    pub hot_windows: u8,
    /// Uses of pages that would be merged; one used in three windows has three.
    pub uses: u64,
    /// Pages whose frames could not be watched.
    pub unseen_pages: u64,
    /// Pages that somebody used, nobody knows who: others have the same frame.
    pub used_by_unknown_pages: u64,
    pub one_copy: BudgetRow,
    pub budgets: Vec<BudgetRow>,
    /// With as many as there would be if nothing kept them down.
    pub all: BudgetRow,
}

#[derive(Debug, Serialize)]
pub struct BudgetRow {
    /// Of what merging saves, what replicas may take.
    pub percent: Option<u32>,
    pub replica_pages: u64,
    pub replica_bytes: u64,
    /// The part of the uses that would be local, 0 to 1.
    pub local: Option<f64>,
}

impl Replicas {
    /// `None` when some tenant's node is unknown.
    fn new(used: Used, contents: Kept, tenants: &[Tenant], settings: Settings) -> Option<Self> {
        let Used { percents, hot, others, unseen, by_whom, .. } = used;
        let (hot, others) = (hot.finish(), others.finish());
        let seen = Uses { hot: (&hot.0, hot.1), others: (&others.0, others.1) };
        let nodes: Vec<Option<u32>> = tenants.iter().map(|tenant| tenant.node).collect();
        let found = estimate::replicas(contents, seen, &nodes, settings.max_page_sharing, &percents.0)?;
        let row = |percent, budget: Budget| BudgetRow {
            percent,
            replica_pages: budget.pages,
            replica_bytes: budget.pages * settings.page_size,
            local: budget.local,
        };
        let budgets = percents.0.iter().zip(found.budgets);
        Some(Self {
            windows: uses::WINDOWS,
            window_ms: uses::LENGTH.as_millis(),
            hot_windows: uses::HOT,
            uses: found.uses,
            unseen_pages: unseen,
            used_by_unknown_pages: by_whom,
            one_copy: row(Some(0), found.one_copy),
            budgets: budgets.map(|(percent, budget)| row(Some(*percent), budget)).collect(),
            all: row(None, found.all),
        })
    }
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
        let Gathered { labels, domains, tenants, contents, frames, used, .. } = gathered;
        let (records, rate) = contents.finish();
        let domains = domains.map(|names| Borders::new(&names, (&records, rate), &tenants, settings));
        let forecast = estimate::forecast(&records, rate, &tenants, settings);
        let replicas = used.and_then(|used| Replicas::new(used, (&records, rate), &tenants, settings));
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
            domains,
            replicas,
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
