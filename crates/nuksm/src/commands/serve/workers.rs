// SPDX-License-Identifier: GPL-2.0-only
//! `[domains]`, `[place]` and `[tune]`, a thread each, started and stopped as the
//! configuration asks.

use super::health::Health;
use super::look::{Divided, Fingerprint, Look, Placed, Schedule, Shared};
use crate::shared::config::Config;
use crate::shared::cost::Meter;
use crate::shared::domains::{self, Applying};
use crate::shared::lock::Lock;
use crate::shared::placing::{self, Homes, Kind};
use crate::shared::stop::{Stop, Stopper};
use crate::shared::tuning::{self, Daemon};
use crate::shared::view;
use anyhow::{Result, anyhow, bail};
use log::{debug, warn};
use nuksm_ksmfs::Engine;
use nuksm_sysroot::Root;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// The parts' names, as in the configuration.
const DOMAINS: &str = "[domains]";
const PLACE: &str = "[place]";
const TUNE: &str = "[tune]";
/// Other troubles than those of a part that runs: what ends them is its start.
const NO_DOMAINS: &str = "[domains] does not run";
const NO_PLACE: &str = "[place] does not run";
const NO_TUNE: &str = "[tune] does not run";

/// Passes in a row that must fail before placing counts as broken: a process that
/// ends, or memory that is short, can spoil one.
const PATIENCE: u32 = 3;

/// A thread, with what it was told.
#[derive(Debug)]
struct Worker<T> {
    told: T,
    stopper: Stopper,
    thread: JoinHandle<Result<()>>,
}

impl<T> Worker<T> {
    fn stop(self) -> Result<()> {
        drop(self.stopper);
        self.thread.join().map_err(|_| anyhow!("a thread failed"))?
    }
}

/// All workers.
#[derive(Debug)]
pub struct Workers {
    root: Root,
    shared: Arc<Shared>,
    health: Arc<Health>,
    domains: Option<Worker<domains::Rules>>,
    /// Held as long as rules are wanted.
    domains_lock: Option<Lock>,
    place: Option<Worker<placing::Rule>>,
    /// Held as long as placing is wanted.
    place_lock: Option<Lock>,
    tune: Option<Worker<tuning::Rule>>,
}

impl Workers {
    pub fn new(root: &Root, shared: Arc<Shared>, health: Arc<Health>) -> Self {
        Self {
            root: root.clone(),
            shared,
            health,
            domains: None,
            domains_lock: None,
            place: None,
            place_lock: None,
            tune: None,
        }
    }

    /// Starts, stops and starts again what the configuration changes; what it
    /// leaves alone goes on. One that cannot start keeps no other from it.
    pub fn apply(&mut self, config: &Config) -> Result<()> {
        let divided = self.renew_domains(config.domains.as_ref());
        self.note(NO_DOMAINS, &divided, self.domains.is_some());
        let placed = self.renew_place(config.place.as_ref());
        self.note(NO_PLACE, &placed, self.place.is_some());
        let tuned = self.renew_tune(config.tune.as_ref());
        self.note(NO_TUNE, &tuned, self.tune.is_some());
        let errors = [divided, placed, tuned].into_iter().filter_map(Result::err);
        let errors: Vec<String> = errors.map(|error| format!("{error:#}")).collect();
        if errors.is_empty() { Ok(()) } else { bail!("{}", errors.join("; ")) }
    }

    /// What cgroups were given stays when rules end: nobody begins to share because of that.
    fn renew_domains(&mut self, wanted: Option<&domains::Rules>) -> Result<()> {
        if self.domains.as_ref().map(|worker| &worker.told) == wanted {
            return Ok(());
        }
        if wanted.is_some() {
            domains::require(&self.root)?;
        }
        self.domains.take().map_or(Ok(()), Worker::stop)?;
        *self.shared.divided() = None;
        let Some(wanted) = wanted else {
            self.domains_lock = None;
            self.health.well(DOMAINS);
            return Ok(());
        };
        if self.domains_lock.is_none() {
            self.domains_lock = Some(domains::lock(&self.root)?);
        }
        self.domains = Some(self.start_domains(wanted.clone())?);
        Ok(())
    }

    fn renew_place(&mut self, wanted: Option<&placing::Rule>) -> Result<()> {
        if self.place.as_ref().map(|worker| &worker.told) == wanted {
            return Ok(());
        }
        if let Some(wanted) = wanted {
            wanted.check(&self.root, true)?;
        }
        self.place.take().map_or(Ok(()), Worker::stop)?;
        *self.shared.placed() = None;
        let Some(wanted) = wanted else {
            self.place_lock = None;
            self.health.well(PLACE);
            return Ok(());
        };
        // Once held, it is kept: nobody else may come between two rules.
        if self.place_lock.is_none() {
            self.place_lock = Some(placing::Rule::lock(&self.root)?);
        }
        self.place = Some(self.start_place(wanted.clone()));
        Ok(())
    }

    fn renew_tune(&mut self, wanted: Option<&tuning::Rule>) -> Result<()> {
        if self.tune.as_ref().map(|worker| &worker.told) == wanted {
            return Ok(());
        }
        self.tune.take().map_or(Ok(()), Worker::stop)?;
        *self.shared.tuned() = None;
        if wanted.is_none() {
            self.health.well(TUNE);
        }
        self.tune = wanted.map(|wanted| self.start_tune(wanted.clone())).transpose()?;
        Ok(())
    }

    /// A part that is not there cannot say itself that it does not work.
    fn note(&self, missing: &'static str, renewed: &Result<()>, runs: bool) {
        match renewed {
            Err(error) if !runs => self.health.failing(missing, format!("{error:#}")),
            _ => self.health.well(missing),
        }
    }

    /// Stops all; KSM's settings are then as they were.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let divided = self.domains.take().map_or(Ok(()), Worker::stop);
        let placed = self.place.take().map_or(Ok(()), Worker::stop);
        self.tune.take().map_or(Ok(()), Worker::stop).and(placed).and(divided)
    }

    fn start_domains(&self, told: domains::Rules) -> Result<Worker<domains::Rules>> {
        let (stopper, stop) = Stop::by_hand();
        let mut applying = Applying::new(&self.root, told.clone())?;
        let (shared, health) = (Arc::clone(&self.shared), Arc::clone(&self.health));
        *shared.divided() = Some(Divided::default());
        let thread = std::thread::spawn(move || {
            let _watch = health.watch(DOMAINS);
            applying.run(&stop, |passed| {
                let mut divided = shared.divided();
                match &passed {
                    Ok(applied) => {
                        applied.log();
                        divided.get_or_insert_default().add(applied);
                        match applied.failed.first() {
                            None => health.well(DOMAINS),
                            Some((cgroup, why)) => health.failing(DOMAINS, format!("{cgroup}: {why}")),
                        }
                    }
                    Err(error) => {
                        divided.get_or_insert_default().failed += 1;
                        health.failing(DOMAINS, format!("{error:#}"));
                        warn!("[domains] {error:#}");
                    }
                }
            });
            Ok(())
        });
        Ok(Worker { told, stopper, thread })
    }

    fn start_place(&self, told: placing::Rule) -> Worker<placing::Rule> {
        let (stopper, stop) = Stop::by_hand();
        let (root, shared, rule) = (self.root.clone(), Arc::clone(&self.shared), told.clone());
        *shared.placed() = Some(Placed::default());
        let health = Arc::clone(&self.health);
        let thread = std::thread::spawn(move || {
            let _watch = health.watch(PLACE);
            let mut work = Placing::new(root, shared, rule, health);
            loop {
                let passed = work.pass_if_due(&stop);
                if passed.as_ref().is_err_and(view::was_stopped) {
                    return Ok(());
                }
                work.note(passed);
                if stop.wait(work.rule.interval.duration()) {
                    return Ok(());
                }
            }
        });
        Worker { told, stopper, thread }
    }

    fn start_tune(&self, told: tuning::Rule) -> Result<Worker<tuning::Rule>> {
        let (stopper, stop) = Stop::by_hand();
        let mut daemon = Daemon::start(&self.root, told.clone(), false)?;
        let (root, shared, rule) = (self.root.clone(), Arc::clone(&self.shared), told.clone());
        *shared.tuned() = Some(0);
        let health = Arc::clone(&self.health);
        let thread = std::thread::spawn(move || {
            let _watch = health.watch(TUNE);
            loop {
                let worked = daemon.run(&stop, |change| {
                    // Only a step can prove that all is well again.
                    health.well(TUNE);
                    *shared.tuned().get_or_insert_default() += u64::from(change.is_some());
                    Ok(())
                });
                // What cannot be looked at is not to go on at some speed of ours.
                let restored = daemon.restore();
                let Err(error) = worked else { return restored };
                health.failing(TUNE, format!("{error:#}"));
                warn!("[tune] {error:#}; until that is mended, ksmd has the speed it had");
                let Some(next) = start_again(&root, &rule, &stop) else { return restored };
                daemon = next;
            }
        });
        Ok(Worker { told, stopper, thread })
    }
}

/// An error elsewhere ends the daemon, too.
impl Drop for Workers {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            warn!("{error:#}");
        }
    }
}

/// Tries each interval; `None` when asked to end meanwhile.
fn start_again(root: &Root, rule: &tuning::Rule, stop: &Stop) -> Option<Daemon> {
    while !stop.wait(rule.interval.duration()) {
        match Daemon::start(root, rule.clone(), false) {
            Ok(daemon) => return Some(daemon),
            Err(error) => warn!("[tune] {error:#}"),
        }
    }
    None
}

/// What placing keeps from pass to pass.
struct Placing {
    root: Root,
    shared: Arc<Shared>,
    rule: placing::Rule,
    schedule: Schedule,
    homes: Homes,
    health: Arc<Health>,
    failed_in_a_row: u32,
    /// Whether it was said that the kernel leaves nothing to do.
    said: bool,
}

impl Placing {
    fn new(root: Root, shared: Arc<Shared>, rule: placing::Rule, health: Arc<Health>) -> Self {
        let (schedule, homes) = Default::default();
        Self { root, shared, rule, schedule, homes, health, failed_in_a_row: 0, said: false }
    }

    /// Says how a pass ended; `false` is one that was not due.
    fn note(&mut self, passed: Result<bool>) {
        match passed {
            Ok(false) => {}
            Ok(true) => {
                self.failed_in_a_row = 0;
                self.health.well(PLACE);
            }
            Err(error) => {
                self.shared.placed().get_or_insert_default().failed += 1;
                self.failed_in_a_row += 1;
                if self.failed_in_a_row >= PATIENCE {
                    self.health.failing(PLACE, format!("{error:#}"));
                }
                warn!("[place] {error:#}");
            }
        }
    }

    /// A pass, when looking is worth its cost; its look serves the metrics, too.
    fn pass_if_due(&mut self, stop: &Stop) -> Result<bool> {
        let (ksm, engine) = (view::require_ksm(&self.root)?, Engine::read(&self.root)?);
        let fingerprint = Fingerprint::new(&ksm, engine.as_ref());
        let now = Instant::now();
        if !self.schedule.is_due(now, self.rule.interval.duration(), &fingerprint) {
            return Ok(false);
        }
        let meter = Meter::start();
        let mut cost = None;
        let shared = &self.shared;
        let passed = placing::pass(
            &self.root,
            &self.rule,
            Kind::Repeated,
            &mut self.homes,
            stop,
            |view, cpu_seconds| {
                cost = Some(cpu_seconds);
                *shared.look() = Some(Look::new(&self.root, view, cpu_seconds));
            },
        );
        // What a look costs does not depend on how it ends. Only a pass can prove
        // that all is well again, so the next one is due whatever the counters say.
        let cost = cost.unwrap_or_else(|| meter.cpu_seconds());
        self.schedule.looked(now, cost, None);
        let report = passed?;
        // Until all is settled, the next pass has work although no counter changed.
        if report.is_settled() {
            self.schedule.looked(now, cost, Some(fingerprint));
        }
        if let Some(why) = report.held_back {
            bail!("nothing moves: {why}");
        }
        if let Some(why) = report.left_to_kernel.as_ref().filter(|_| !self.said) {
            warn!("[place] nothing moves: {why}");
        }
        self.said = report.left_to_kernel.is_some();
        debug!("[place] {} of {} pages moved, {} refused", report.moved, report.planned, report.refused);
        shared.placed().get_or_insert_default().add(&report);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::options::Seconds;

    #[test]
    fn tuning_that_fails_at_each_step_is_trouble_all_the_time() {
        let dir = tempfile::tempdir().unwrap();
        let ksm = dir.path().join("sys/kernel/mm/ksm");
        std::fs::create_dir_all(&ksm).unwrap();
        for name in ["pages_to_scan", "sleep_millisecs"] {
            std::fs::write(ksm.join(name), "100\n").unwrap();
        }
        // It starts; but no step finds out how much memory is available.
        let root = Root::at(dir.path());
        let kept = || root.text("run/nuksm/tune.json").unwrap().is_some_and(|text| !text.is_empty());
        let health = Arc::<Health>::default();
        let mut workers = Workers::new(&root, Arc::default(), Arc::clone(&health));
        let config = |seconds| Config {
            tune: Some(tuning::Rule { interval: Seconds(seconds), ..tuning::Rule::default() }),
            ..Config::default()
        };
        workers.apply(&config(1)).unwrap();
        let until = |what: &dyn Fn() -> bool| {
            while !what() {
                std::thread::yield_now();
            }
        };
        until(&|| health.trouble().is_some());
        let until_in_trouble = |what: &dyn Fn() -> bool| {
            until(&|| {
                assert!(health.trouble().is_some_and(|why| why.starts_with("[tune]: ")));
                what()
            });
        };
        until_in_trouble(&|| !kept());
        until_in_trouble(&kept);
        until_in_trouble(&|| !kept());
        workers.apply(&config(3_600)).unwrap();
        assert!(health.trouble().is_some(), "other settings prove nothing");
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/meminfo"), "MemTotal: 9 kB\nMemAvailable: 9 kB\n").unwrap();
        workers.apply(&config(1)).unwrap();
        until(&|| health.trouble().is_none());
        workers.stop().unwrap();
    }

    #[test]
    fn a_part_that_cannot_start_is_trouble_and_keeps_no_other_from_starting() {
        let (dir, root) = crate::shared::tree::tree(&[
            ("sys/kernel/mm/ksm/pages_to_scan", "100\n"),
            ("sys/kernel/mm/ksm/sleep_millisecs", "100\n"),
            ("proc/self/status", "CapEff:\t000001ffffffffff\n"),
            ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 9 kB\n"),
            ("run/nuksm/place.lock/in-the-way", ""),
        ]);
        let health = Arc::<Health>::default();
        let mut workers = Workers::new(&root, Arc::default(), Arc::clone(&health));
        let both = Config {
            place: Some(placing::Rule::default()),
            tune: Some(tuning::Rule::default()),
            ..Config::default()
        };
        let refusal = format!("{:#}", workers.apply(&both).unwrap_err());
        assert!(refusal.contains("place.lock"), "{refusal}");
        assert!(workers.tune.is_some(), "the other one does not run");
        let trouble = health.trouble().unwrap();
        assert!(trouble.starts_with("[place] does not run: ") && trouble.contains(&refusal), "{trouble}");
        std::fs::remove_dir_all(dir.path().join("run/nuksm/place.lock")).unwrap();
        workers.apply(&both).unwrap();
        // Whatever else happens: its lock is held until it is not wanted any more.
        let is_held = || placing::Rule::lock(&root).is_err();
        let path = dir.path().join("run/nuksm/place.lock");
        let other = |seconds| placing::Rule { interval: Seconds(seconds), ..placing::Rule::default() };
        let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
        let before = inode();
        workers.apply(&Config { place: Some(other(7)), ..both.clone() }).unwrap();
        assert!(is_held() && inode() == before);
        workers.apply(&Config { tune: both.tune.clone(), ..Config::default() }).unwrap();
        assert!(!is_held());
        assert_eq!(health.trouble(), None);
        workers.stop().unwrap();
    }

    #[test]
    fn one_pass_that_fails_is_bad_luck_and_three_in_a_row_are_trouble() {
        let (shared, health) = (Arc::<Shared>::default(), Arc::<Health>::default());
        // A machine that has KSM, and nothing that a pass could look at.
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sys/kernel/mm/ksm")).unwrap();
        let root = Root::at(dir.path());
        let rule = placing::Rule { interval: Seconds(0), ..placing::Rule::default() };
        let mut work = Placing::new(root, Arc::clone(&shared), rule, Arc::clone(&health));
        let (_stopper, stop) = Stop::by_hand();
        // Each is due when the one before has had its share of a CPU.
        let mut fail = |times| {
            while work.failed_in_a_row < times {
                let passed = work.pass_if_due(&stop);
                work.note(passed);
            }
        };
        fail(2);
        assert_eq!(health.trouble(), None);
        fail(3);
        let trouble = health.trouble().unwrap();
        assert!(trouble.starts_with("[place]: cannot "), "{trouble}");
        assert_eq!(shared.placed().as_ref().unwrap().failed, 3);

        work.note(Ok(false));
        assert_eq!(health.trouble(), Some(trouble), "a pass that was not due proves nothing");
        work.note(Ok(true));
        assert_eq!(health.trouble(), None);
        work.note(Err(anyhow!("for this test")));
        assert_eq!(health.trouble(), None, "counting begins again");

        work.rule.interval = Seconds(3_600);
        assert!(!work.pass_if_due(&stop).unwrap(), "the last one was just now");
    }
}
