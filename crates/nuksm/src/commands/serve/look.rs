// SPDX-License-Identifier: GPL-2.0-only
//! Looks at where pages are: the costly part. Who looks, when, and what was
//! seen last.

use crate::shared::domains::{Applied, Domains};
use crate::shared::placing;
use crate::shared::sample::{NodeRow, Places, TenantRow};
use crate::shared::tenants;
use crate::shared::view::View;
use nuksm_ksmfs::{Engine, Ksm};
use nuksm_sysroot::Root;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The part of a CPU that looking may use.
const BUDGET: f64 = 0.005;

/// Intervals after which a look is due even where no counter says that anything
/// changed: others move pages, too.
const AT_LEAST_EVERY: u32 = 30;

/// When to look again.
#[derive(Debug, Default)]
pub struct Schedule {
    last: Option<(Instant, Duration, Option<Fingerprint>)>,
}

/// What changes when pages are merged or un-merged, or tenants come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(Vec<Option<u64>>);

impl Fingerprint {
    /// From counters that cost nothing to read.
    pub fn new(ksm: &Ksm, engine: Option<&Engine>) -> Self {
        let migrated = engine.and_then(|engine| engine.migrated);
        Self(vec![ksm.pages_shared, ksm.pages_sharing, ksm.ksm_zero_pages, migrated])
    }
}

impl Schedule {
    /// Is a look due? Not before it costs less than the budget on the average,
    /// and seldom when nothing changed.
    pub fn is_due(&self, now: Instant, interval: Duration, fingerprint: &Fingerprint) -> bool {
        let Some((at, cost, seen)) = &self.last else {
            return true;
        };
        let pause = if seen.as_ref() == Some(fingerprint) { interval * AT_LEAST_EVERY } else { interval };
        // A little less than an interval ago is an interval ago.
        now.saturating_duration_since(*at) + interval / 10 >= pause.max(cost.div_f64(BUDGET))
    }

    /// Notes a look and its CPU time; without a fingerprint, the next one is due
    /// whatever the counters say.
    pub fn looked(&mut self, at: Instant, cpu_seconds: f64, fingerprint: Option<Fingerprint>) {
        self.last = Some((at, Duration::from_secs_f64(cpu_seconds), fingerprint));
    }
}

/// What a look saw.
#[derive(Debug)]
pub struct Look {
    pub at: Instant,
    pub cpu_seconds: f64,
    pub nodes: Vec<NodeRow>,
    /// With what identifies the process.
    tenants: Vec<(tenants::Tenant, TenantRow)>,
    pub notes: Vec<String>,
    /// `None` where the kernel has none, or they are not to be known.
    pub domains: Option<Domains>,
}

impl Look {
    /// From a view that took so much CPU time.
    pub fn new(root: &Root, view: &View, cpu_seconds: f64) -> Self {
        let Places { nodes, tenants, mut notes } = Places::new(view);
        let tenants = view.tenants.iter().cloned().zip(tenants).collect();
        let domains = Domains::new(root, view, nuksm_pagemap::page_size()).unwrap_or_else(|error| {
            notes.push(format!("merge domains are not known: {error:#}"));
            None
        });
        Self { at: Instant::now(), cpu_seconds, nodes, tenants, notes, domains }
    }

    /// The tenants that are still there.
    pub fn living(&self, root: &Root) -> Vec<TenantRow> {
        let living = self.tenants.iter().filter(|(tenant, _)| tenants::is_alive(root, tenant));
        living.map(|(_, row)| row.clone()).collect()
    }
}

/// Sums over all passes of `[place]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Placed {
    pub passes: u64,
    pub failed: u64,
    pub moved: u64,
    pub refused: BTreeMap<&'static str, u64>,
    pub no_room: u64,
}

impl Placed {
    /// Adds a pass.
    pub fn add(&mut self, report: &placing::Report) {
        self.passes += 1;
        self.moved += report.moved;
        self.no_room = report.no_room;
        for (reason, pages) in &report.refusals {
            *self.refused.entry(reason).or_default() += pages;
        }
    }
}

/// Sums over all passes of `[domains]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Divided {
    pub passes: u64,
    /// Passes that ended in an error.
    pub failed: u64,
    /// Cgroups that were given another domain.
    pub changes: u64,
    /// Cgroups that could not be given one in the last pass.
    pub refused: usize,
}

impl Divided {
    /// Adds a pass.
    pub fn add(&mut self, applied: &Applied) {
        self.passes += 1;
        self.changes += applied.changes.len() as u64;
        self.refused = applied.failed.len() + applied.without_memory.len();
    }
}

/// What the threads know of each other's work.
#[derive(Debug, Default)]
pub struct Shared {
    look: Mutex<Option<Look>>,
    /// `None` without `[domains]`.
    divided: Mutex<Option<Divided>>,
    /// `None` without `[place]`.
    placed: Mutex<Option<Placed>>,
    /// Changes made by `[tune]`; `None` without it.
    tuned: Mutex<Option<u64>>,
}

impl Shared {
    pub fn look(&self) -> MutexGuard<'_, Option<Look>> {
        lock(&self.look)
    }

    pub fn divided(&self) -> MutexGuard<'_, Option<Divided>> {
        lock(&self.divided)
    }

    pub fn placed(&self) -> MutexGuard<'_, Option<Placed>> {
        lock(&self.placed)
    }

    pub fn tuned(&self) -> MutexGuard<'_, Option<u64>> {
        lock(&self.tuned)
    }
}

/// No thread leaves these half-written, so that one that failed harms nobody.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::sample::tests::sample;

    #[test]
    fn looks_keep_to_their_budget_and_follow_changes() {
        let (start, interval) = (Instant::now(), Duration::from_secs(10));
        let same = Fingerprint::new(&sample().ksm, None);
        let mut merged = sample();
        merged.ksm.pages_sharing = Some(5);
        let changed = Fingerprint::new(&merged.ksm, None);
        let mut schedule = Schedule::default();
        let due = |schedule: &Schedule, seconds, fingerprint| {
            schedule.is_due(start + Duration::from_secs(seconds), interval, fingerprint)
        };
        assert!(due(&schedule, 0, &same), "the first");
        schedule.looked(start, 0.01, Some(same.clone()));
        assert_eq!((due(&schedule, 5, &changed), due(&schedule, 10, &changed)), (false, true));
        assert_eq!((due(&schedule, 290, &same), due(&schedule, 300, &same)), (false, true));
        schedule.looked(start, 2.0, Some(same.clone()));
        assert_eq!(
            (due(&schedule, 390, &changed), due(&schedule, 400, &changed)),
            (false, true),
            "2 s in 400 s"
        );
        schedule.looked(start, 2.0, None);
        assert_eq!((due(&schedule, 390, &same), due(&schedule, 400, &same)), (false, true));
        schedule.looked(start, 0.01, None);
        assert!(due(&schedule, 10, &same), "there is work left");
    }

    #[test]
    fn who_exited_is_not_in_the_rows() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc/11");
        std::fs::create_dir_all(&proc).unwrap();
        let stat = format!("11 (t11) S {} 0 {}", vec!["0"; 15].join(" "), vec!["0"; 30].join(" "));
        std::fs::write(proc.join("stat"), stat).unwrap();
        let root = Root::at(dir.path());
        let look = Look::new(&root, &crate::shared::view::tests::view(), 0.1);
        let living: Vec<u32> = look.living(&root).iter().map(|row| row.pid).collect();
        assert_eq!(living, [11]);
    }
}
