// SPDX-License-Identifier: GPL-2.0-only
//! What the operator asks for: on the command line, or in a file.

use crate::shared::options::{Percent, Seconds};
use anyhow::{Result, bail};
use clap::Args;
use nuksm_model::Limits;
use serde::Deserialize;

/// The least that the kernel's advisor lets ksmd use, in percent of a CPU.
const ADVISOR_LEAST_CPU: f64 = 10.0;

/// How ksmd's speed is to be chosen.
#[derive(Debug, Clone, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rule {
    /// Time between two looks; each can change the settings at once.
    #[arg(long, value_name = "TIME", default_value_t = Self::default().interval)]
    pub interval: Seconds,
    /// What ksmd may use of one CPU, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = Self::default().max_cpu)]
    pub max_cpu: Percent,
    /// `pages_to_scan` when nothing asks for more.
    #[arg(long, value_name = "PAGES", default_value_t = Self::default().min_pages)]
    pub min_pages: u64,
    /// `pages_to_scan` at the most, if --max-cpu allows it.
    #[arg(long, value_name = "PAGES", default_value_t = Self::default().max_pages)]
    pub max_pages: u64,
    /// Memory is short when less than so much of it is available.
    #[arg(long, value_name = "PERCENT", default_value_t = Self::default().low_free)]
    pub low_free: Percent,
    /// There is no hurry when more than so much of it is available.
    #[arg(long, value_name = "PERCENT", default_value_t = Self::default().ample_free)]
    pub ample_free: Percent,
    /// Steer the kernel's own advisor (Linux 6.8) instead of `pages_to_scan`: it
    /// is given more or less time for a full scan.
    ///
    /// It serves where a full scan takes less than an interval: it follows
    /// changes of cost and of memory from scan to scan, but reacts at the end of
    /// a scan only, and never uses less than 10 % of a CPU.
    #[arg(long)]
    pub advisor: bool,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            interval: Seconds(10),
            max_cpu: Percent(20.0),
            min_pages: 64,
            max_pages: 20_000,
            low_free: Percent(10.0),
            ample_free: Percent(30.0),
            advisor: false,
        }
    }
}

impl Rule {
    /// Says what contradicts itself.
    pub fn check(&self) -> Result<()> {
        if self.max_cpu.0 <= 0.0 {
            bail!("max-cpu is 0: ksmd cannot work for nothing (to stop it: echo 0 > /sys/kernel/mm/ksm/run)");
        }
        if self.min_pages == 0 || self.min_pages > self.max_pages {
            bail!(
                "min-pages is {} and max-pages {}: the former must be above 0 and not above the latter",
                self.min_pages,
                self.max_pages
            );
        }
        if self.max_pages > u32::MAX.into() {
            bail!("max-pages is {}: the kernel takes {} at the most", self.max_pages, u32::MAX);
        }
        if self.low_free.0 >= self.ample_free.0 {
            bail!(
                "low-free is {} and ample-free {}: the former must be less",
                self.low_free,
                self.ample_free
            );
        }
        if self.advisor && self.max_cpu.0 < ADVISOR_LEAST_CPU {
            bail!(
                "the kernel's advisor never uses less than {ADVISOR_LEAST_CPU} % of a CPU: raise max-cpu, or leave \
                 the advisor off"
            );
        }
        Ok(())
    }

    /// The same for the model.
    pub fn limits(&self) -> Limits {
        Limits {
            // All of a CPU would leave no time to sleep.
            max_cpu: (self.max_cpu.0 / 100.0).min(0.99),
            min_pages: self.min_pages,
            max_pages: self.max_pages,
            sleep_millisecs: 20,
            low_free: self.low_free.0 / 100.0,
            ample_free: self.ample_free.0 / 100.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_named() {
        assert!(Rule::default().check().is_ok());
        for (rule, word) in [
            (Rule { max_cpu: Percent(0.0), ..Rule::default() }, "max-cpu"),
            (Rule { min_pages: 0, ..Rule::default() }, "min-pages"),
            (Rule { min_pages: 9, max_pages: 8, ..Rule::default() }, "min-pages is 9 and max-pages 8"),
            (Rule { max_pages: 1 << 32, ..Rule::default() }, "4294967295"),
            (Rule { min_pages: 1 << 32, max_pages: 1 << 33, ..Rule::default() }, "4294967295"),
            (Rule { low_free: Percent(30.0), ..Rule::default() }, "low-free is 30 and ample-free 30"),
            (Rule { advisor: true, max_cpu: Percent(5.0), ..Rule::default() }, "advisor"),
        ] {
            let message = rule.check().unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }
}
