// SPDX-License-Identifier: GPL-2.0-only
//! How fast ksmd should scan: fast when memory is short or merging pays, slow
//! when neither holds. See docs/tuning.md.

/// The part of scanned pages that must merge for merging to pay fully. A scan
/// that finds nothing costs the same and saves nothing.
const PAYS: f64 = 0.02;

/// CPU seconds per scanned page until any were measured: more than machines of
/// today take, so that the limit holds from the first moment on.
const UNMEASURED: f64 = 10e-6;

/// Intervals after which a measurement counts half: cost follows what tenants
/// do, but the clock of ksmd's CPU time is coarse.
const KEEP: f64 = 0.5;

/// What the operator allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Part of a CPU that ksmd may use, above 0, up to 1.
    pub max_cpu: f64,
    /// Bounds of `pages_to_scan`; the lower one is above 0.
    pub min_pages: u64,
    /// The upper one.
    pub max_pages: u64,
    /// `sleep_millisecs`, unless the limit of CPU makes it longer.
    pub sleep_millisecs: u64,
    /// Part of the memory: with less available, memory is short.
    pub low_free: f64,
    /// Part of the memory: with more available, there is no hurry.
    pub ample_free: f64,
}

/// What happened in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Part of the memory that is available now.
    pub free: f64,
    /// Pages that ksmd scanned.
    pub scanned: u64,
    /// By how many pages the saving grew.
    pub merged: u64,
    /// CPU seconds that ksmd used.
    pub cpu_seconds: f64,
}

/// How much scanning is asked for: 0 nothing, 1 all that is allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// By the lack of memory.
    pub memory: f64,
    /// By what merging brings.
    pub profit: f64,
}

impl Demand {
    /// From what happened in an interval.
    #[must_use]
    pub fn new(limits: &Limits, figures: &Figures) -> Self {
        let span = (limits.ample_free - limits.low_free).max(f64::EPSILON);
        let part = if figures.scanned == 0 { 0.0 } else { figures.merged as f64 / figures.scanned as f64 };
        Self {
            memory: ((limits.ample_free - figures.free) / span).clamp(0.0, 1.0),
            profit: (part / PAYS).clamp(0.0, 1.0),
        }
    }

    /// The stronger of the two decides.
    #[must_use]
    pub fn strength(self) -> f64 {
        self.memory.max(self.profit)
    }

    /// Between `slow` and `fast`, at equal ratios for equal steps of demand.
    fn between(self, slow: f64, fast: f64) -> f64 {
        slow * (fast / slow).powf(self.strength())
    }
}

/// What a scanned page costs, by the intervals so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PageCost {
    pages: f64,
    seconds: f64,
}

impl PageCost {
    /// Takes an interval into account.
    pub fn observe(&mut self, figures: &Figures) {
        if figures.scanned > 0 {
            self.pages = self.pages * KEEP + figures.scanned as f64;
            self.seconds = self.seconds * KEEP + figures.cpu_seconds;
        }
    }

    /// CPU seconds per page.
    #[must_use]
    pub fn seconds_per_page(&self) -> f64 {
        // A clock of 10 ms may have shown nothing yet.
        if self.seconds > 0.0 { self.seconds / self.pages } else { UNMEASURED }
    }
}

/// Settings for ksmd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanRate {
    /// Pages ksmd looks at before it sleeps.
    pub pages_to_scan: u64,
    /// How long it then sleeps.
    pub sleep_millisecs: u64,
}

impl ScanRate {
    /// The settings that answer a demand within the limits, when a page costs
    /// `seconds_per_page`.
    #[must_use]
    pub fn new(limits: &Limits, demand: Demand, seconds_per_page: f64) -> Self {
        let sleep = limits.sleep_millisecs as f64 / 1000.0;
        let budget = |sleep: f64| limits.max_cpu * sleep / (1.0 - limits.max_cpu);
        let (least, most) = (limits.min_pages as f64, limits.max_pages as f64);
        let affordable = (budget(sleep) / seconds_per_page).floor();
        let top = most.min(affordable).max(least);
        let pages = demand.between(least, top).clamp(least, top).floor();
        let work = pages * seconds_per_page;
        // Even the fewest pages may be too many for so short a sleep.
        let sleep = if work > budget(sleep) { work * (1.0 - limits.max_cpu) / limits.max_cpu } else { sleep };
        Self { pages_to_scan: whole(pages), sleep_millisecs: whole((sleep * 1000.0).ceil()) }
    }

    /// Pages per second, when a page costs `seconds_per_page`.
    #[must_use]
    pub fn pages_per_second(&self, seconds_per_page: f64) -> f64 {
        let pages = self.pages_to_scan as f64;
        pages / (self.sleep_millisecs as f64 / 1000.0 + pages * seconds_per_page)
    }
}

/// The goal for the kernel's own advisor: seconds for a full scan, shorter as
/// more is asked for.
#[must_use]
pub fn target_scan_seconds(demand: Demand, slow: u64, fast: u64) -> u64 {
    whole(demand.between(slow as f64, fast as f64).round()).clamp(fast, slow)
}

/// A count; what does not fit is as large as can be.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        max_cpu: 0.2,
        min_pages: 64,
        max_pages: 20_000,
        sleep_millisecs: 20,
        low_free: 0.1,
        ample_free: 0.3,
    };

    fn rate(free: f64, scanned: u64, merged: u64, cost: f64) -> ScanRate {
        let figures = Figures { free, scanned, merged, cpu_seconds: 0.0 };
        ScanRate::new(&LIMITS, Demand::new(&LIMITS, &figures), cost)
    }

    #[test]
    fn slow_with_ample_memory_fast_when_it_is_short_or_merging_pays() {
        // At 1 µs a page, 20 % of a CPU are 5 ms of work per 20 ms of sleep.
        let slow = ScanRate { pages_to_scan: 64, sleep_millisecs: 20 };
        let fast = ScanRate { pages_to_scan: 5_000, sleep_millisecs: 20 };
        assert_eq!(rate(0.5, 1_000, 0, 1e-6), slow);
        assert_eq!(rate(0.05, 1_000, 0, 1e-6), fast);
        assert_eq!(rate(0.5, 1_000, 20, 1e-6), fast);
        assert_eq!(rate(0.5, 0, 20, 1e-6), slow, "what merged without a scan was not ksmd's work");
        let between = rate(0.2, 1_000, 0, 1e-6).pages_to_scan;
        assert_eq!(between, 565, "half way, by ratio: the square root of 64 x 5000");
    }

    #[test]
    fn where_the_fewest_pages_cost_too_much_ksmd_sleeps_longer() {
        let rate = rate(0.05, 0, 0, 1e-3);
        assert_eq!((rate.pages_to_scan, rate.sleep_millisecs), (64, 256));
    }

    #[test]
    fn cost_is_measured_and_assumed_high_before() {
        let mut cost = PageCost::default();
        assert!((cost.seconds_per_page() - UNMEASURED).abs() < f64::EPSILON);
        cost.observe(&Figures { scanned: 1_000, cpu_seconds: 0.002, ..Figures::default() });
        assert!((cost.seconds_per_page() - 2e-6).abs() < 1e-12);
        cost.observe(&Figures { scanned: 0, cpu_seconds: 9.0, ..Figures::default() });
        assert!((cost.seconds_per_page() - 2e-6).abs() < 1e-12, "no pages, no price");
        cost.observe(&Figures { scanned: 1_000, cpu_seconds: 0.005, ..Figures::default() });
        assert!((cost.seconds_per_page() - 4e-6).abs() < 1e-12, "the last interval counts double");
    }

    #[test]
    fn the_advisor_is_given_less_time_as_memory_gets_short() {
        let target = |memory| target_scan_seconds(Demand { memory, profit: 0.0 }, 200, 2);
        assert_eq!((target(0.0), target(0.5), target(1.0)), (200, 20, 2));
    }

    prop_compose! {
        fn limits()(
            max_cpu in 0.01..1.0, min_pages in 1_u64..2_000, more in 0_u64..100_000,
            sleep_millisecs in 1_u64..200, low_free in 0.0..0.9, span in 0.01..0.5,
        ) -> Limits {
            let (max_pages, ample_free) = (min_pages + more, low_free + span);
            Limits { max_cpu, min_pages, max_pages, sleep_millisecs, low_free, ample_free }
        }
    }

    proptest! {
        #[test]
        fn no_bound_is_ever_violated(
            limits in limits(), free in 0.0..1.0, scanned in 0_u64..1_000_000, merged in 0_u64..1_000_000,
            cost in 1e-8..1e-3
        ) {
            let figures = Figures { free, scanned, merged, cpu_seconds: 0.0 };
            let rate = ScanRate::new(&limits, Demand::new(&limits, &figures), cost);
            prop_assert!((limits.min_pages..=limits.max_pages).contains(&rate.pages_to_scan));
            prop_assert!(rate.sleep_millisecs >= limits.sleep_millisecs);
            let share = rate.pages_per_second(cost) * cost;
            prop_assert!(share <= limits.max_cpu * (1.0 + 1e-9), "{share} of a CPU");
        }

        #[test]
        fn less_free_memory_never_scans_slower(
            limits in limits(), free in 0.0..1.0, less in 0.0..1.0, scanned in 0_u64..1_000_000,
            merged in 0_u64..1_000_000, cost in 1e-8..1e-3
        ) {
            let at = |free: f64| {
                let figures = Figures { free, scanned, merged, cpu_seconds: 0.0 };
                let demand = Demand::new(&limits, &figures);
                (ScanRate::new(&limits, demand, cost), target_scan_seconds(demand, 200, 2))
            };
            let (rate, seconds) = at(free);
            let (pressed, pressed_seconds) = at(free * less);
            prop_assert!(pressed.pages_per_second(cost) >= rate.pages_per_second(cost));
            prop_assert!(pressed_seconds <= seconds);
        }
    }
}
