// SPDX-License-Identifier: GPL-2.0-only
//! Work on many pages at a bounded rate.

use crate::shared::output;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Pages handed to the kernel at once: a few milliseconds of work, so that a
/// signal is answered at once and the rate is kept smoothly.
const BATCH: usize = 512;

/// How often progress is shown on a terminal.
const PROGRESS: Duration = Duration::from_secs(2);

/// Keeps to the rate, and shows progress on a terminal.
#[derive(Debug)]
pub struct Pace {
    started: Instant,
    shown: Instant,
    pages_per_second: u64,
    pages: usize,
}

impl Pace {
    /// Starts now.
    pub fn new(pages_per_second: u64) -> Self {
        let now = Instant::now();
        Self { started: now, shown: now, pages_per_second, pages: 0 }
    }

    /// Pages per batch: no more than a second's worth.
    pub fn batch(&self) -> usize {
        BATCH.min(usize::try_from(self.pages_per_second).unwrap_or(BATCH))
    }

    /// How long the next batch must wait until all before it had their time.
    pub fn delay(&self) -> Duration {
        let due = Duration::from_secs_f64(self.pages as f64 / self.pages_per_second as f64);
        due.saturating_sub(self.started.elapsed())
    }

    /// `pages` more were tried, of a turn's `all`.
    pub fn handled(&mut self, pages: usize, all: usize) {
        self.pages += pages;
        if self.shown.elapsed() >= PROGRESS && std::io::stderr().is_terminal() {
            output::progress(&format!("{} of {all} pages handled\n", self.pages));
            self.shown = Instant::now();
        }
    }
}
