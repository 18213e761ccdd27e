// SPDX-License-Identifier: GPL-2.0-only
//! Ending at a moment of our choice: on SIGINT and SIGTERM, or on another
//! thread's word.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Has somebody asked for an end?
#[derive(Debug)]
pub struct Stop {
    requests: Receiver<()>,
    requested: Cell<bool>,
}

/// Asks for an end when it is dropped.
#[derive(Debug)]
pub struct Stopper {
    _requests: Sender<()>,
}

impl Stop {
    /// From now on SIGINT and SIGTERM are requests instead of the end.
    pub fn on_signals() -> Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
        let (sender, requests) = channel();
        std::thread::spawn(move || signals.forever().take_while(|_| sender.send(()).is_ok()).count());
        Ok(Self { requests, requested: Cell::new(false) })
    }

    /// The request comes from whoever has the other half.
    pub fn by_hand() -> (Stopper, Self) {
        let (sender, requests) = channel();
        (Stopper { _requests: sender }, Self { requests, requested: Cell::new(false) })
    }

    /// Waits for `time`, or until asked to end; true when asked.
    pub fn wait(&self, time: Duration) -> bool {
        if !self.requested.get() {
            self.requested.set(self.requests.recv_timeout(time) != Err(RecvTimeoutError::Timeout));
        }
        self.requested.get()
    }

    /// Was an end asked for?
    pub fn is_requested(&self) -> bool {
        self.wait(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_the_stopper_is_a_request_that_lasts() {
        let (stopper, stop) = Stop::by_hand();
        assert!(!stop.wait(Duration::ZERO));
        drop(stopper);
        assert!(stop.wait(Duration::MAX) && stop.wait(Duration::ZERO));
    }
}
