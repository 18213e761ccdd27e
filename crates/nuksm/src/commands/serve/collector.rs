// SPDX-License-Identifier: GPL-2.0-only
//! Collecting once per interval, however often somebody asks.

use super::health::Health;
use super::look::{Fingerprint, Look, Schedule, Shared};
use super::metrics;
use crate::shared::config::Config;
use crate::shared::cost::Meter;
use crate::shared::privilege;
use crate::shared::sample::Sample;
use crate::shared::stop::{Stop, Stopper};
use crate::shared::view::{self, View};
use anyhow::Result;
use hyper::body::Bytes;
use log::{debug, warn};
use nuksm_sysroot::Root;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// What the next scrape gets: the metrics, or why there are none.
pub type Page = Arc<Mutex<std::result::Result<Bytes, String>>>;

/// Its name where something is wrong with it.
const PART: &str = "collecting";

/// The thread that collects.
#[derive(Debug)]
pub struct Collector {
    page: Page,
    configs: Sender<Config>,
    stopper: Stopper,
    thread: JoinHandle<()>,
}

impl Collector {
    /// Starts collecting.
    pub fn start(root: &Root, config: &Config, shared: Arc<Shared>, health: Arc<Health>) -> Self {
        let page: Page = Arc::new(Mutex::new(Err("the first collection is not done yet".into())));
        let (configs, others) = channel::<Config>();
        let (stopper, stop) = Stop::by_hand();
        let (root, result, mut config) = (root.clone(), Arc::clone(&page), config.clone());
        health.failing(PART, "the first collection is not done yet");
        let thread = std::thread::spawn(move || {
            let _watch = health.watch(PART);
            let mut looking = Looking::default();
            loop {
                let collected = collect(&root, &config, &shared, &mut looking, &stop);
                if collected.as_ref().is_err_and(view::was_stopped) {
                    return;
                }
                let collected = collected.map(Bytes::from).map_err(|error| format!("{error:#}"));
                match collected.as_ref().err().or(looking.failure.as_ref()) {
                    None => health.well(PART),
                    Some(why) => health.failing(PART, why),
                }
                if let Err(why) = &collected {
                    warn!("cannot collect metrics: {why}");
                }
                *result.lock().unwrap_or_else(PoisonError::into_inner) = collected;
                match others.recv_timeout(config.serve.interval.duration()) {
                    Ok(other) => config = other,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self { page, configs, stopper, thread }
    }

    pub fn page(&self) -> Page {
        Arc::clone(&self.page)
    }

    /// From now on: it collects at once.
    pub fn configure(&self, config: &Config) {
        // A thread that failed has said so itself.
        let _ = self.configs.send(config.clone());
    }

    pub fn stop(self) {
        drop((self.stopper, self.configs));
        // A thread that failed has said so itself.
        let _ = self.thread.join();
    }
}

/// What is kept from look to look.
#[derive(Debug, Default)]
struct Looking {
    schedule: Schedule,
    /// Why the last look failed, if it did.
    failure: Option<String>,
}

/// Counters now, places as they were last seen: also where a look fails.
fn collect(
    root: &Root,
    config: &Config,
    shared: &Shared,
    looking: &mut Looking,
    stop: &Stop,
) -> Result<String> {
    let sample = Sample::read_counters(root)?;
    // With [place], its looks are ours.
    if config.place.is_none() && privilege::missing(root, false)?.is_empty() {
        let fingerprint = Fingerprint::new(&sample.ksm, sample.engine.as_ref());
        let now = Instant::now();
        if looking.schedule.is_due(now, config.serve.interval.duration(), &fingerprint) {
            let meter = Meter::start();
            match View::collect(root, &|| stop.is_requested()) {
                Ok(view) => {
                    let look = Look::new(root, &view, meter.cpu_seconds());
                    looking.schedule.looked(now, look.cpu_seconds, Some(fingerprint));
                    looking.failure = None;
                    debug!(
                        "looked at {} pages of {} tenants in {:.3} s of CPU time",
                        view.scan.looked_at,
                        view.tenants.len(),
                        look.cpu_seconds
                    );
                    *shared.look() = Some(look);
                }
                Err(error) if view::was_stopped(&error) => return Err(error),
                Err(error) => {
                    // What a look costs does not depend on how it ends.
                    looking.schedule.looked(now, meter.cpu_seconds(), None);
                    let why = format!("cannot look where pages are: {error:#}");
                    warn!("{why}");
                    looking.failure = Some(why);
                }
            }
        }
    }
    Ok(metrics::page(root, &sample, shared, config.serve.max_tenants))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_interval_holds_from_now_on() {
        let (dir, root) = tree(&[
            ("sys/kernel/mm/ksm/pages_scanned", "7\n"),
            ("proc/self/status", "CapEff:\t0\n"),
            ("proc/meminfo", "MemAvailable: 1 kB\n"),
        ]);
        let config = |seconds| {
            let mut config = Config::default();
            config.serve.interval = Seconds(seconds);
            config
        };
        let collector = Collector::start(&root, &config(1_000_000), Arc::default(), Arc::default());
        let until_scanned = |pages| loop {
            let page = collector.page().lock().unwrap().clone();
            if page.is_ok_and(|page| {
                String::from_utf8_lossy(&page).contains(&format!("nuksm_scanned_pages_total {pages}\n"))
            }) {
                break;
            }
            std::thread::yield_now();
        };
        until_scanned(7);
        collector.configure(&config(0));
        std::fs::write(dir.path().join("sys/kernel/mm/ksm/pages_scanned"), "8\n").unwrap();
        until_scanned(8);
        collector.configure(&config(1_000_000));
        collector.stop();
    }

    use crate::shared::options::Seconds;
    use crate::shared::tree::tree;

    #[test]
    fn a_look_that_fails_costs_its_share_and_leaves_the_counters() {
        // A machine without /proc/kpageflags.
        let (_dir, root) = tree(&[
            ("sys/kernel/mm/ksm/pages_scanned", "7\n"),
            ("proc/self/status", "CapEff:\t000001ffffffffff\n"),
            ("proc/meminfo", "MemAvailable: 1 kB\n"),
        ]);
        let mut config = Config::default();
        config.serve.interval = Seconds(3_600);
        let (_stopper, stop) = Stop::by_hand();
        let (shared, mut looking) = (Shared::default(), Looking::default());
        let collect = |looking: &mut Looking| {
            let page = collect(&root, &config, &shared, looking, &stop).unwrap();
            assert!(page.contains("nuksm_scanned_pages_total 7"), "{page}");
        };
        collect(&mut looking);
        let failure = looking.failure.take().unwrap();
        assert!(failure.contains("kpageflags"), "{failure}");
        collect(&mut looking);
        assert_eq!(looking.failure, None, "the next look is not due");
    }
}
