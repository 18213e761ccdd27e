// SPDX-License-Identifier: GPL-2.0-only
//! How far the reading is, for whoever waits at a terminal.

use crate::shared::output::{self, bytes};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Time between two lines.
const INTERVAL: Duration = Duration::from_millis(500);

/// Counts pages, and says so on standard error.
pub struct Progress {
    at_terminal: bool,
    started: Instant,
    shown: Instant,
    expected: u64,
    pages: u64,
}

impl Progress {
    /// Of `expected` pages, roughly.
    pub fn new(expected: u64) -> Self {
        let now = Instant::now();
        let at_terminal = std::io::stderr().is_terminal();
        Self { at_terminal, started: now, shown: now, expected, pages: 0 }
    }

    /// `pages` more, of `tenant`.
    pub fn add(&mut self, pages: usize, tenant: &str) {
        self.pages += pages as u64;
        if self.at_terminal && self.shown.elapsed() >= INTERVAL {
            self.shown = Instant::now();
            // Back to the line's beginning, and clear it behind the text.
            let all = size(self.expected.max(self.pages));
            output::progress(&format!("\r{} of {all}, {tenant}\x1b[K", size(self.pages)));
        }
    }

    /// Says what was done.
    pub fn finish(&self) {
        let seconds = self.started.elapsed().as_secs_f64();
        let start = if self.at_terminal { "\r" } else { "" };
        let end = if self.at_terminal { "\x1b[K" } else { "" };
        let rate =
            self.pages as f64 * nuksm_pagemap::page_size() as f64 / seconds.max(1e-9) / f64::from(1 << 30);
        output::progress(&format!(
            "{start}looked at {} in {seconds:.1} s ({rate:.1} GiB/s){end}\n",
            size(self.pages)
        ));
    }
}

/// Says something on standard error, if that is a terminal, until the next is said.
pub fn say(text: &str) {
    if std::io::stderr().is_terminal() {
        output::progress(&format!("\r{text}\x1b[K"));
    }
}

fn size(pages: u64) -> String {
    bytes(i64::try_from(pages * nuksm_pagemap::page_size()).unwrap_or(i64::MAX))
}
