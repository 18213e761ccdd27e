// SPDX-License-Identifier: GPL-2.0-only
//! Look, decide, set; interval after interval.

use super::report::Change;
use super::rule::Rule;
use super::state::Original;
use crate::shared::load::Load;
use crate::shared::sample::Sample;
use crate::shared::stop::Stop;
use anyhow::{Context, Result};
use nuksm_ksmfs::{Advisor, ScanSettings};
use nuksm_model::{Demand, Figures, PageCost, ScanRate};
use nuksm_sysroot::Root;

/// Seconds for a full scan that the advisor is given when nothing asks for
/// more: the kernel's default.
const SLOW_SCAN: u64 = 200;
/// And when all that is allowed is asked for.
const FAST_SCAN: u64 = 2;

/// A faster setting is worth a change when it differs by so much; a slower one
/// always is.
const WORTH: f64 = 1.1;

/// Tunes ksmd.
#[derive(Debug)]
pub struct Daemon {
    root: Root,
    rule: Rule,
    /// `None` in a dry run: then nothing is set.
    original: Option<Original>,
    /// What was found at the start, and set since; in a dry run, what would be.
    set: ScanSettings,
    cost: PageCost,
}

impl Daemon {
    /// Remembers what is set; changes nothing yet.
    pub fn start(root: &Root, rule: Rule, dry_run: bool) -> Result<Self> {
        let set = settings(root)?;
        if rule.advisor && set.advisor.is_none() {
            anyhow::bail!("this kernel has no advisor for KSM: Linux 6.8 has");
        }
        let original = if dry_run { None } else { Some(Original::keep(root, &set)?) };
        Ok(Self { root: root.clone(), rule, original, set, cost: PageCost::default() })
    }

    /// Tunes until `stop` says so; `tell` gets what each step changed, if it did.
    pub fn run(&mut self, stop: &Stop, mut tell: impl FnMut(Option<&Change>) -> Result<()>) -> Result<()> {
        let mut before = Sample::read_counters(&self.root)?;
        while !stop.wait(self.rule.interval.duration()) {
            let now = Sample::read_counters(&self.root)?;
            tell(self.step(&before, &now)?.as_ref())?;
            before = now;
        }
        Ok(())
    }

    /// The settings as they were found; a dry run has none to give back.
    pub fn restore(mut self) -> Result<()> {
        self.original.as_mut().map_or(Ok(()), |original| original.restore(&self.root))
    }

    /// Answers one interval; the change, if there was reason for any.
    fn step(&mut self, before: &Sample, now: &Sample) -> Result<Option<Change>> {
        // Somebody else may have set something meanwhile.
        let found = if self.original.is_some() { settings(&self.root)? } else { self.set.clone() };
        let available =
            Load::read(&self.root)?.available_part().context("no MemAvailable in /proc/meminfo")?;
        let figures = figures(available, before, now);
        self.cost.observe(&figures);
        let limits = self.rule.limits();
        let demand = Demand::new(&limits, &figures);
        let wanted = self.wanted(&found, demand);
        let is_foreign = differ(&self.set, &found) && differ(&wanted, &found);
        if !is_foreign && !is_worth(&found, &wanted) {
            return Ok(None);
        }
        if self.original.is_some() {
            wanted.write(&self.root)?;
        }
        let change = Change {
            unix_time: now.unix_time,
            dry_run: self.original.is_none(),
            from: found,
            to: wanted.clone(),
            free_percent: figures.free * 100.0,
            scanned_pages: figures.scanned,
            saved_pages: figures.merged,
            ksmd_cpu_percent: now.ksmd_cpu_share(before).map(|share| share * 100.0),
            microseconds_per_page: self.cost.seconds_per_page() * 1e6,
            demand_by_memory: demand.memory,
            demand_by_profit: demand.profit,
            max_cpu_percent: self.rule.max_cpu.0,
        };
        self.set = wanted;
        Ok(Some(change))
    }

    fn wanted(&self, found: &ScanSettings, demand: Demand) -> ScanSettings {
        let advisor = self.set.advisor.as_ref();
        if self.rule.advisor {
            return ScanSettings {
                // The advisor's own.
                pages_to_scan: found.pages_to_scan,
                advisor: advisor.map(|_| Advisor {
                    on: true,
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    max_cpu: self.rule.max_cpu.0 as u64,
                    target_scan_time: nuksm_model::target_scan_seconds(demand, SLOW_SCAN, FAST_SCAN),
                }),
                ..self.set.clone()
            };
        }
        let rate = ScanRate::new(&self.rule.limits(), demand, self.cost.seconds_per_page());
        ScanSettings {
            pages_to_scan: rate.pages_to_scan,
            sleep_millisecs: rate.sleep_millisecs,
            advisor: advisor.map(|advisor| Advisor { on: false, ..advisor.clone() }),
        }
    }
}

fn settings(root: &Root) -> Result<ScanSettings> {
    ScanSettings::read(root)?.context("this kernel has no KSM: it needs CONFIG_KSM=y")
}

/// Does any file have something else than was set? With the advisor on, `pages_to_scan`
/// is the kernel's.
fn differ(set: &ScanSettings, found: &ScanSettings) -> bool {
    let by_advisor = set.advisor.as_ref().is_some_and(|advisor| advisor.on);
    (!by_advisor && set.pages_to_scan != found.pages_to_scan)
        || (set.sleep_millisecs, &set.advisor) != (found.sleep_millisecs, &found.advisor)
}

/// Is it slower, or faster by enough? Or another limit for the advisor.
fn is_worth(from: &ScanSettings, to: &ScanSettings) -> bool {
    let speed = |settings: &ScanSettings| match &settings.advisor {
        Some(advisor) if advisor.on => (true, 1.0 / advisor.target_scan_time.max(1) as f64),
        _ => (false, settings.pages_to_scan as f64 / settings.sleep_millisecs.max(1) as f64),
    };
    let ((by_advisor, slower), (wants_advisor, faster)) = (speed(from), speed(to));
    let limit = |settings: &ScanSettings| settings.advisor.as_ref().map(|advisor| advisor.max_cpu);
    let other_limit = wants_advisor && limit(from) != limit(to);
    by_advisor != wants_advisor || other_limit || faster < slower || faster > slower * WORTH
}

/// What happened between two samples.
fn figures(free: f64, before: &Sample, now: &Sample) -> Figures {
    let grown = |counter: fn(&Sample) -> Option<u64>| {
        counter(now).zip(counter(before)).map_or(0, |(now, before)| now.saturating_sub(before))
    };
    let saved = |sample: &Sample| Some(sample.ksm.pages_sharing? + sample.ksm.ksm_zero_pages.unwrap_or(0));
    Figures {
        free,
        scanned: grown(|sample| sample.ksm.pages_scanned),
        merged: grown(saved),
        cpu_seconds: now
            .ksmd_cpu_seconds
            .zip(before.ksmd_cpu_seconds)
            .map_or(0.0, |(now, before)| now - before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::sample::tests::sample;
    use std::fs;

    fn machine(available_kib: u64) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let ksm = dir.path().join("sys/kernel/mm/ksm");
        fs::create_dir_all(&ksm).unwrap();
        fs::create_dir_all(dir.path().join("proc")).unwrap();
        let meminfo = format!("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: {available_kib} kB\n");
        fs::write(dir.path().join("proc/meminfo"), meminfo).unwrap();
        for (name, value) in [
            ("run", "1\n"),
            ("pages_to_scan", "100\n"),
            ("sleep_millisecs", "20\n"),
            ("advisor_mode", "none [scan-time]\n"),
            ("advisor_max_cpu", "70\n"),
            ("advisor_target_scan_time", "200\n"),
        ] {
            fs::write(ksm.join(name), value).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    /// The file shows all modes, as the kernel's does, and not what was written.
    fn show_modes(root: &Root) {
        fs::write(root.path("sys/kernel/mm/ksm/advisor_mode"), "[none] scan-time\n").unwrap();
    }

    fn file(root: &Root, name: &str) -> String {
        root.text(format!("sys/kernel/mm/ksm/{name}")).unwrap().unwrap().trim().to_owned()
    }

    /// An interval of ten seconds in which ksmd scanned at nearly 1 µs a page.
    fn interval(merged: u64) -> (Sample, Sample) {
        let before = sample();
        let mut now = sample();
        now.unix_time += 10.0;
        now.ksm.pages_scanned = now.ksm.pages_scanned.map(|pages| pages + 100_000);
        now.ksm.pages_sharing = now.ksm.pages_sharing.map(|pages| pages + merged);
        now.ksmd_cpu_seconds = now.ksmd_cpu_seconds.map(|seconds| seconds + 0.0999);
        (before, now)
    }

    #[test]
    fn one_interval_is_enough_and_the_end_is_as_the_start() {
        let (_dir, root) = machine(50);
        let mut daemon = Daemon::start(&root, Rule::default(), false).unwrap();
        let (before, now) = interval(0);
        let change = daemon.step(&before, &now).unwrap().unwrap();
        assert_eq!((change.to.pages_to_scan, change.free_percent), (5_005, 5.0));
        assert_eq!(
            (file(&root, "pages_to_scan"), file(&root, "advisor_mode")),
            ("5005".into(), "none".into())
        );
        show_modes(&root);
        assert!(daemon.step(&before, &now).unwrap().is_none(), "nothing new, nothing to change");
        daemon.restore().unwrap();
        assert_eq!(file(&root, "advisor_mode"), "scan-time");
        assert_eq!(file(&root, "sleep_millisecs"), "20");
        let kept = root.text("run/nuksm/tune.json").unwrap();
        assert_eq!(kept.as_deref(), Some(""), "or the next one would give back these");
    }

    #[test]
    fn what_a_killed_daemon_left_is_given_back_once_and_not_under_a_living_one() {
        let (_dir, root) = machine(50);
        assert!(Original::left(&root).unwrap().is_none());
        let mut daemon = Daemon::start(&root, Rule::default(), false).unwrap();
        let (before, now) = interval(0);
        daemon.step(&before, &now).unwrap().unwrap();
        let message = Original::left(&root).unwrap_err().to_string();
        assert!(message.contains("is at work"), "{message}");
        drop(daemon);
        show_modes(&root);
        Original::left(&root).unwrap().unwrap().restore(&root).unwrap();
        assert_eq!(file(&root, "advisor_mode"), "scan-time", "and it sets pages_to_scan");
        assert!(Original::left(&root).unwrap().is_none());
    }

    #[test]
    fn what_somebody_else_sets_is_set_right_at_the_next_look() {
        let (_dir, root) = machine(50);
        let set = |name: &str, value: &str| {
            fs::write(root.path(format!("sys/kernel/mm/ksm/{name}")), value).unwrap();
        };
        let mut daemon = Daemon::start(&root, Rule::default(), false).unwrap();
        let (before, now) = interval(0);
        daemon.step(&before, &now).unwrap().unwrap();
        show_modes(&root);
        set("pages_to_scan", "777\n");
        let change = daemon.step(&before, &now).unwrap().unwrap();
        assert_eq!((change.from.pages_to_scan, file(&root, "pages_to_scan").as_str()), (777, "5005"));
        // As fast, by other numbers; and what matters with the advisor only.
        for (name, foreign, own) in [("pages_to_scan", "10010\n", "5005"), ("advisor_max_cpu", "90\n", "70")]
        {
            set(name, foreign);
            set("sleep_millisecs", "40\n");
            daemon.step(&before, &now).unwrap().unwrap();
            assert_eq!((file(&root, name).as_str(), file(&root, "sleep_millisecs").as_str()), (own, "20"));
        }
        assert!(daemon.step(&before, &now).unwrap().is_none());
        daemon.restore().unwrap();

        set("advisor_mode", "none [scan-time]\n");
        let mut daemon = Daemon::start(&root, Rule { advisor: true, ..Rule::default() }, false).unwrap();
        daemon.step(&before, &now).unwrap().unwrap();
        set("advisor_max_cpu", "90\n");
        daemon.step(&before, &now).unwrap().unwrap();
        assert_eq!(file(&root, "advisor_max_cpu"), "20");
        set("sleep_millisecs", "500\n");
        daemon.step(&before, &now).unwrap().unwrap();
        assert_eq!(file(&root, "sleep_millisecs"), "20");
        set("pages_to_scan", "300\n");
        assert!(daemon.step(&before, &now).unwrap().is_none(), "that is the advisor's");
    }

    #[test]
    fn a_dry_run_sets_nothing() {
        let (dir, root) = machine(50);
        let mut daemon = Daemon::start(&root, Rule::default(), true).unwrap();
        let (before, now) = interval(0);
        assert!(daemon.step(&before, &now).unwrap().unwrap().dry_run);
        daemon.restore().unwrap();
        assert_eq!(file(&root, "pages_to_scan"), "100");
        assert!(!dir.path().join("run").exists());
    }

    #[test]
    fn the_advisor_is_steered_where_that_is_asked_for() {
        let (_dir, root) = machine(50);
        let rule = Rule { advisor: true, ..Rule::default() };
        let mut daemon = Daemon::start(&root, rule.clone(), false).unwrap();
        let (before, now) = interval(0);
        daemon.step(&before, &now).unwrap().unwrap();
        assert_eq!(file(&root, "advisor_target_scan_time"), "2");
        assert_eq!(
            (file(&root, "advisor_max_cpu"), file(&root, "pages_to_scan")),
            ("20".into(), "100".into())
        );
        daemon.restore().unwrap();
        assert_eq!(
            (file(&root, "advisor_max_cpu"), file(&root, "advisor_target_scan_time")),
            ("70".into(), "200".into())
        );

        fs::remove_file(root.path("sys/kernel/mm/ksm/advisor_mode")).unwrap();
        let message = Daemon::start(&root, rule, false).unwrap_err().to_string();
        assert!(message.contains("no advisor"), "{message}");
    }

    #[test]
    fn merging_that_pays_goes_on_fast_and_small_gains_are_left() {
        let (_dir, root) = machine(900);
        let mut daemon = Daemon::start(&root, Rule::default(), false).unwrap();
        let (before, now) = interval(5_000);
        assert_eq!(daemon.step(&before, &now).unwrap().unwrap().to.pages_to_scan, 5_005);
        show_modes(&root);
        let (before, now) = interval(0);
        assert_eq!(daemon.step(&before, &now).unwrap().unwrap().to.pages_to_scan, 64);
        let from = ScanSettings { pages_to_scan: 100, sleep_millisecs: 20, advisor: None };
        let with = |pages_to_scan| ScanSettings { pages_to_scan, ..from.clone() };
        assert_eq!(
            [99, 100, 109, 111].map(|pages| is_worth(&from, &with(pages))),
            [true, false, false, true]
        );
    }
}
