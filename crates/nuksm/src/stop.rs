// SPDX-License-Identifier: GPL-2.0-only
//! Ending on SIGINT and SIGTERM at a moment of our choice.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Has somebody asked this process to end?
#[derive(Debug)]
pub struct Stop {
    signals: Receiver<()>,
    requested: Cell<bool>,
}

impl Stop {
    /// From now on SIGINT and SIGTERM are requests instead of the end.
    pub fn on_signals() -> Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
        let (sender, receiver) = channel();
        std::thread::spawn(move || signals.forever().take_while(|_| sender.send(()).is_ok()).count());
        Ok(Self { signals: receiver, requested: Cell::new(false) })
    }

    /// Waits for `time`, or until asked to end; true when asked.
    pub fn wait(&self, time: Duration) -> bool {
        if !self.requested.get() {
            self.requested.set(self.signals.recv_timeout(time) != Err(RecvTimeoutError::Timeout));
        }
        self.requested.get()
    }
}
