// SPDX-License-Identifier: GPL-2.0-only
//! Carrying rules out, once or as tenants come.

use super::kernel::require;
use super::plan::{self, Change, Looked, Plan};
use super::pods::{self, Pods};
use super::rule::Rules;
use crate::shared::lock::Lock;
use crate::shared::stop::Stop;
use anyhow::{Context, Result};
use log::{info, warn};
use nuksm_cgroupfs::{Default, Watch};
use nuksm_sysroot::{Root, printable};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What gives cgroups domains waits so long for another that does.
const TURN: Duration = Duration::from_secs(20);

/// What a pass did.
#[derive(Debug, Serialize)]
pub struct Applied {
    /// What cgroups have now that no rule names.
    pub default: &'static str,
    /// Whether that was something else before.
    pub default_changed: bool,
    /// Cgroups that were given another domain.
    pub changes: Vec<Change>,
    /// Cgroups that had what rules want.
    pub kept: usize,
    /// Cgroups that could not be given one, and why.
    pub failed: Vec<(String, String)>,
    /// Cgroups that rules name, and that count no memory.
    pub without_memory: Vec<String>,
}

/// Makes all as rules want it, once; with `dry_run` it says only what it would do.
pub fn pass(root: &Root, rules: &Rules, dry_run: bool) -> Result<Applied> {
    let _lock = if dry_run { None } else { Some(lock(root)?) };
    Applying::new(root, rules.clone())?.pass(true, dry_run, None)
}

/// One set of rules at a time.
pub fn lock(root: &Root) -> Result<Lock> {
    Lock::take(root, "domains.lock", "`nuksm domain apply` (or `nuksm serve` with [domains])")
}

/// One look, and what follows from it, at a time: two at once might give one name two
/// numbers, or one number two names.
pub fn turn(root: &Root) -> Result<Lock> {
    Lock::take_within(root, "domains.turn.lock", "`nuksm domain` (or `nuksm serve` with [domains])", TURN)
}

/// Rules at work.
#[derive(Debug)]
pub struct Applying {
    root: Root,
    rules: Rules,
    /// Said of once, not with each pass.
    said: BTreeSet<String>,
}

/// So many times as long as a pass took, nothing new is looked at.
const PAUSE: u32 = 4;

/// How long a request to end may go unheard while nothing comes.
const DEAF: Duration = Duration::from_millis(500);

impl Applying {
    /// Nothing is done yet.
    pub fn new(root: &Root, rules: Rules) -> Result<Self> {
        require(root)?;
        Ok(Self { root: root.clone(), rules, said: BTreeSet::new() })
    }

    /// Applies the rules as tenants come, until asked to end. `done` is told of each pass.
    pub fn run(&mut self, stop: &Stop, mut done: impl FnMut(Result<Applied>)) {
        let mut all = true;
        let mut watch = None;
        loop {
            // Whoever has root's number can use up what there is of these: then each
            // interval has to do.
            match watch.take().map_or_else(Watch::new, Ok) {
                Ok(again) => watch = Some(again),
                Err(error) => self.say(&format!("cannot watch for new cgroups: {error}")),
            }
            let began = Instant::now();
            let passed = self.pass(all, false, watch.as_ref());
            all &= passed.is_err();
            done(passed);
            // Where tenants make cgroups all the time, others have some of the CPU, too.
            if stop.wait((PAUSE * began.elapsed()).min(self.rules.interval.duration())) {
                return;
            }
            let due = Instant::now() + self.rules.interval.duration();
            loop {
                let left = due.saturating_duration_since(Instant::now());
                if stop.is_requested() {
                    return;
                }
                if left.is_zero() {
                    break;
                }
                let time = left.min(DEAF);
                match watch.as_ref().map(|watch| watch.wait(time)) {
                    Some(Ok(true)) => break,
                    Some(Err(error)) => {
                        self.say(&format!("cannot wait for new cgroups: {error}"));
                        watch = None;
                    }
                    None if stop.wait(time) => return,
                    Some(Ok(false)) | None => {}
                }
            }
        }
    }

    /// One pass. With `all` cgroups that earlier rules named are looked for everywhere.
    fn pass(&mut self, all: bool, dry_run: bool, watch: Option<&Watch>) -> Result<Applied> {
        let root = &self.root.clone();
        let default = require(root)?;
        let set_default =
            || self.rules.default.write(root).context("cannot set what cgroups have that no rule names");
        // Before all else: who comes meanwhile shares with nobody.
        if default != self.rules.default && self.rules.default == Default::Own && !dry_run {
            set_default()?;
        }
        let (of_pods, labels) = self.rules.of_pods();
        let (mut unwatched, mut failed) = (None, Vec::new());
        if let (Some(watch), true) = (watch, of_pods) {
            unwatched = watch.add(root, pods::DIRECTORY).err();
        }
        // Those that are not known keep what they have.
        let pods = if of_pods { Pods::read(root, labels) } else { Ok(Pods::default()) };
        let pods = pods.unwrap_or_else(|error| {
            failed.push(("pods".to_owned(), format!("{error:#}")));
            Pods::default()
        });
        let _turn = if dry_run { None } else { Some(turn(root)?) };
        // Before it is listed: what is made meanwhile is seen by one or the other.
        let mut open = |path: &str| {
            unwatched =
                watch.and_then(|watch| nuksm_cgroupfs::watch(watch, root, path).err()).or(unwatched.take());
        };
        let Looked { cgroups, unread, hiding } = plan::look(root, &self.rules, &pods, all, &mut open);
        let Plan { changes, kept, mut without_memory } = Plan::new(&cgroups)?;
        let is_there = |path: &str| root.path("sys/fs/cgroup").join(&path[1..]).exists();
        without_memory.retain(|path| is_there(path));
        let mut made = Vec::new();
        for change in changes {
            match if dry_run { Ok(()) } else { change.make(root) } {
                Ok(()) => made.push(change),
                // It may be gone by now.
                Err(error) if is_there(&change.cgroup) => {
                    failed.push((change.cgroup, format!("{error:#}")));
                }
                Err(_) => {}
            }
        }
        // After all else, and only if that went well: who has to be kept apart is.
        let is_late = default != self.rules.default && self.rules.default == Default::Shared && !dry_run;
        if is_late && failed.is_empty() {
            set_default()?;
        }
        let default_now = if is_late && !failed.is_empty() { default } else { self.rules.default };
        for (path, why) in unread.iter().filter(|(path, _)| is_there(path)) {
            self.say(&format!("{path} and all below it are passed over: {why}"));
        }
        for path in &hiding {
            self.say(&format!(
                "a rule names {path}, so an earlier rule for some below it has no say there: the outermost \
                 cgroup that any rule names decides"
            ));
        }
        if let Some(error) = unwatched {
            self.say(&format!("{error}: new cgroups are seen at the next interval only"));
        }
        for path in &without_memory {
            self.say(&format!(
                "{path} counts no memory (+memory is missing in cgroup.subtree_control above it): who is in it \
                 belongs where that one does"
            ));
        }
        Ok(Applied {
            default: default_now.as_str(),
            default_changed: default != default_now,
            changes: made,
            kept,
            failed,
            without_memory,
        })
    }

    fn say(&mut self, text: &str) {
        // Names in it may be anybody's, and without end.
        if self.said.len() < 1000 && self.said.insert(text.to_owned()) {
            warn!("[domains] {}", printable(text));
        }
    }
}

impl Applied {
    /// Tells the log.
    pub fn log(&self) {
        if self.default_changed {
            info!("[domains] cgroups that no rule names: {}", self.default);
        }
        for change in &self.changes {
            info!("[domains] {}: {}", printable(&change.cgroup), change.domain);
        }
        for (cgroup, why) in &self.failed {
            warn!("[domains] {}: {}", printable(cgroup), printable(why));
        }
    }

    /// For people; of a dry run what would be done.
    pub fn text(&self, dry_run: bool) -> String {
        let mut text = String::new();
        if self.default_changed {
            text += &format!("cgroups that no rule names: {}\n", self.default);
        }
        for change in &self.changes {
            text += &format!("{}: {}\n", change.cgroup, change.domain);
        }
        for (cgroup, why) in &self.failed {
            text += &format!("{cgroup}: FAILED: {why}\n");
        }
        for cgroup in &self.without_memory {
            text += &format!("{cgroup}: counts no memory, so it has no domain of its own\n");
        }
        let (would, given) = (if dry_run { "would be " } else { "" }, self.changes.len());
        text + &format!("{given} cgroups {would}given another domain, {} as rules want it\n", self.kept)
    }
}
