// SPDX-License-Identifier: GPL-2.0-only
//! What KSM can be told.

use nuksm_sysroot::{Result, Root};
use std::fmt::Display;

/// Where KSM has its files.
pub const DIR: &str = "sys/kernel/mm/ksm";

/// A file in which KSM takes orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// 0 stops, 1 merges, 2 un-merges everything.
    Run,
    /// Pages ksmd looks at before it sleeps.
    PagesToScan,
    /// How long it then sleeps.
    SleepMillisecs,
    /// `none` or `scan-time`.
    AdvisorMode,
    /// Percent of a CPU that the advisor lets ksmd use.
    AdvisorMaxCpu,
    /// Seconds that the advisor wants a full scan to take.
    AdvisorTargetScanTime,
}

impl Control {
    /// The name of its file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::PagesToScan => "pages_to_scan",
            Self::SleepMillisecs => "sleep_millisecs",
            Self::AdvisorMode => "advisor_mode",
            Self::AdvisorMaxCpu => "advisor_max_cpu",
            Self::AdvisorTargetScanTime => "advisor_target_scan_time",
        }
    }

    /// Writes `value`; an error when this kernel has no such file.
    pub fn write(self, root: &Root, value: impl Display) -> Result<()> {
        root.write(self.path(), &format!("{value}\n"))
    }

    pub(crate) fn path(self) -> String {
        format!("{DIR}/{}", self.name())
    }
}
