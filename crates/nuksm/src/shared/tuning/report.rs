// SPDX-License-Identifier: GPL-2.0-only
//! A change, with the figures that caused it.

use nuksm_ksmfs::ScanSettings;
use serde::Serialize;

/// One change of ksmd's speed.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// Seconds since 1970, UTC.
    pub unix_time: f64,
    /// Nothing was set.
    pub dry_run: bool,
    /// The settings before.
    pub from: ScanSettings,
    /// The settings now.
    pub to: ScanSettings,
    /// Memory that is available.
    pub free_percent: f64,
    /// Pages that ksmd scanned in the interval.
    pub scanned_pages: u64,
    /// By how many pages the saving grew in it.
    pub saved_pages: u64,
    /// What ksmd used of a CPU in it; `None` when no ksmd is in sight.
    pub ksmd_cpu_percent: Option<f64>,
    /// What a scanned page costs, by the intervals so far.
    pub microseconds_per_page: f64,
    /// 0 to 1.
    pub demand_by_memory: f64,
    /// 0 to 1.
    pub demand_by_profit: f64,
    /// What ksmd may use of a CPU.
    pub max_cpu_percent: f64,
}

impl Change {
    /// The change for people: what, and why.
    pub fn text(&self) -> String {
        let verb = if self.dry_run { "would change" } else { "changed" };
        let (reason, strength) = if self.demand_by_memory >= self.demand_by_profit {
            ("lack of memory", self.demand_by_memory)
        } else {
            ("what merging brings", self.demand_by_profit)
        };
        let reason = if strength > 0.0 {
            format!("{:.0} % of the way up by {reason}", strength * 100.0)
        } else {
            "memory is ample and little merges".into()
        };
        let used =
            self.ksmd_cpu_percent.map_or_else(|| "an unknown part".into(), |part| format!("{part:.1} %"));
        format!(
            "{verb} {} to {}: {reason}\n  {:.1} % of the memory available; {} of {} scanned pages merged; ksmd used {used} \
             of a CPU (limit {} %), {:.2} us a page\n",
            speed(&self.from),
            speed(&self.to),
            self.free_percent,
            self.saved_pages,
            self.scanned_pages,
            self.max_cpu_percent,
            self.microseconds_per_page
        )
    }
}

fn speed(settings: &ScanSettings) -> String {
    match &settings.advisor {
        Some(advisor) if advisor.on => format!("a full scan in {} s (advisor)", advisor.target_scan_time),
        _ => format!("{} pages per {} ms", settings.pages_to_scan, settings.sleep_millisecs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuksm_ksmfs::Advisor;

    #[test]
    fn the_text_as_users_see_it() {
        let advisor = Advisor { on: true, max_cpu: 70, target_scan_time: 200 };
        let change = Change {
            unix_time: 0.0,
            dry_run: false,
            from: ScanSettings { pages_to_scan: 500, sleep_millisecs: 20, advisor: Some(advisor) },
            to: ScanSettings { pages_to_scan: 565, sleep_millisecs: 20, advisor: None },
            free_percent: 20.0,
            scanned_pages: 100_000,
            saved_pages: 12,
            ksmd_cpu_percent: Some(1.0),
            microseconds_per_page: 1.0,
            demand_by_memory: 0.5,
            demand_by_profit: 0.0,
            max_cpu_percent: 20.0,
        };
        let expected = "\
changed a full scan in 200 s (advisor) to 565 pages per 20 ms: 50 % of the way up by lack of memory
  20.0 % of the memory available; 12 of 100000 scanned pages merged; ksmd used 1.0 % of a CPU (limit 20 %), 1.00 us a page
";
        assert_eq!(change.text(), expected);
        let idle = Change { demand_by_memory: 0.0, ksmd_cpu_percent: None, dry_run: true, ..change };
        assert!(idle.text().starts_with("would change a full scan"), "{}", idle.text());
        assert!(idle.text().contains("memory is ample and little merges"), "{}", idle.text());
    }
}
