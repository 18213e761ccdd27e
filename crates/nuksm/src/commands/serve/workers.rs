// SPDX-License-Identifier: GPL-2.0-only
//! `[place]` and `[tune]`, a thread each, started and stopped as the
//! configuration asks.

use super::config::Config;
use super::look::{Fingerprint, Look, Placed, Schedule, Shared};
use crate::shared::placing::{self, Homes, Kind};
use crate::shared::stop::{Stop, Stopper};
use crate::shared::tuning::{self, Daemon};
use crate::shared::view;
use anyhow::{Result, anyhow};
use ksmfs::Engine;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use sysroot::Root;

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

/// Both workers.
#[derive(Debug)]
pub struct Workers {
    root: Root,
    shared: Arc<Shared>,
    place: Option<Worker<placing::Rule>>,
    tune: Option<Worker<tuning::Rule>>,
}

impl Workers {
    pub fn new(root: &Root, shared: Arc<Shared>) -> Self {
        Self { root: root.clone(), shared, place: None, tune: None }
    }

    /// Starts, stops and starts again what the configuration changes; what it
    /// leaves alone goes on.
    pub fn apply(&mut self, config: &Config) -> Result<()> {
        if self.place.as_ref().map(|worker| &worker.told) != config.place.as_ref() {
            if let Some(wanted) = &config.place {
                wanted.check(&self.root, true)?;
            }
            self.place.take().map_or(Ok(()), Worker::stop)?;
            *self.shared.placed() = None;
            self.place = config.place.as_ref().map(|wanted| self.start_place(wanted.clone())).transpose()?;
        }
        if self.tune.as_ref().map(|worker| &worker.told) != config.tune.as_ref() {
            self.tune.take().map_or(Ok(()), Worker::stop)?;
            *self.shared.tuned() = None;
            self.tune = config.tune.as_ref().map(|wanted| self.start_tune(wanted.clone())).transpose()?;
        }
        Ok(())
    }

    /// Stops both; KSM's settings are then as they were.
    pub fn stop(self) -> Result<()> {
        let placed = self.place.map_or(Ok(()), Worker::stop);
        self.tune.map_or(Ok(()), Worker::stop).and(placed)
    }

    fn start_place(&self, told: placing::Rule) -> Result<Worker<placing::Rule>> {
        let lock = placing::Rule::lock(&self.root)?;
        let (stopper, stop) = Stop::by_hand();
        let (root, shared, rule) = (self.root.clone(), Arc::clone(&self.shared), told.clone());
        *shared.placed() = Some(Placed::default());
        let thread = std::thread::spawn(move || {
            let _held = lock;
            let mut work =
                Placing { root, shared, rule, schedule: Schedule::default(), homes: Homes::default() };
            loop {
                match work.pass_if_due(&stop) {
                    Err(error) if view::was_stopped(&error) => return Ok(()),
                    Err(error) => {
                        work.shared.placed().get_or_insert_default().failed += 1;
                        eprintln!("nuksm: [place] {error:#}");
                    }
                    Ok(()) => {}
                }
                if stop.wait(work.rule.interval.duration()) {
                    return Ok(());
                }
            }
        });
        Ok(Worker { told, stopper, thread })
    }

    fn start_tune(&self, told: tuning::Rule) -> Result<Worker<tuning::Rule>> {
        let (stopper, stop) = Stop::by_hand();
        let mut daemon = Daemon::start(&self.root, told.clone(), false)?;
        let (root, shared, rule) = (self.root.clone(), Arc::clone(&self.shared), told.clone());
        *shared.tuned() = Some(0);
        let thread = std::thread::spawn(move || {
            loop {
                let worked = daemon.run(&stop, |_| {
                    *shared.tuned().get_or_insert_default() += 1;
                    Ok(())
                });
                // What cannot be looked at is not to go on at some speed of ours.
                let restored = daemon.restore();
                let Err(error) = worked else { return restored };
                eprintln!("nuksm: [tune] {error:#}; until that is mended, ksmd has the speed it had");
                let Some(next) = start_again(&root, &rule, &stop) else { return restored };
                daemon = next;
            }
        });
        Ok(Worker { told, stopper, thread })
    }
}

/// Tries each interval; `None` when asked to end meanwhile.
fn start_again(root: &Root, rule: &tuning::Rule, stop: &Stop) -> Option<Daemon> {
    while !stop.wait(rule.interval.duration()) {
        match Daemon::start(root, rule.clone(), false) {
            Ok(daemon) => return Some(daemon),
            Err(error) => eprintln!("nuksm: [tune] {error:#}"),
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
}

impl Placing {
    /// A pass, when looking is worth its cost; its look serves the metrics, too.
    fn pass_if_due(&mut self, stop: &Stop) -> Result<()> {
        let (ksm, engine) = (view::require_ksm(&self.root)?, Engine::read(&self.root)?);
        let fingerprint = Fingerprint::new(&ksm, engine.as_ref());
        let now = Instant::now();
        if !self.schedule.is_due(now, self.rule.interval.duration(), &fingerprint) {
            return Ok(());
        }
        let mut cost = 0.0;
        let shared = &self.shared;
        let report = placing::pass(
            &self.root,
            &self.rule,
            Kind::Repeated,
            &mut self.homes,
            stop,
            |view, cpu_seconds| {
                cost = cpu_seconds;
                *shared.look() = Some(Look::new(view, cpu_seconds));
            },
        )?;
        // Until all is settled, the next pass has work although no counter changed.
        self.schedule.looked(now, cost, Some(fingerprint).filter(|_| report.is_settled()));
        shared.placed().get_or_insert_default().add(&report);
        Ok(())
    }
}
