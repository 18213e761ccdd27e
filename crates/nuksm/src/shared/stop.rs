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
    /// From now on the first SIGINT or SIGTERM is a request instead of the end.
    pub fn on_signals() -> Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
        let (sender, requests) = channel();
        std::thread::spawn(move || obey(signals.forever(), &sender, exit));
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

fn exit(status: i32) {
    signal_hook::low_level::exit(status)
}

/// The first signal asks for an end, the second is one.
fn obey(mut signals: impl Iterator<Item = i32>, sender: &Sender<()>, exit: impl FnOnce(i32)) {
    if signals.next().is_some() {
        // Nobody may listen any more.
        let _ = sender.send(());
    }
    end(signals, exit);
}

fn end(mut signals: impl Iterator<Item = i32>, exit: impl FnOnce(i32)) {
    if let Some(signal) = signals.find(|signal| [SIGINT, SIGTERM].contains(signal)) {
        exit(128 + signal);
    }
}

/// From now on SIGINT or SIGTERM is the end: whoever sent one before, and sends another,
/// does not want to wait for what is under way.
pub fn end_on_the_next(mut signals: Signals) {
    std::thread::spawn(move || end(signals.forever(), exit));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_is_a_request_and_the_second_an_end() {
        let statuses = |signals: &[i32]| {
            let (sender, requests) = channel();
            let mut statuses = Vec::new();
            obey(signals.iter().copied(), &sender, |status| statuses.push(status));
            (requests.try_iter().count(), statuses)
        };
        assert_eq!(statuses(&[SIGTERM]), (1, vec![]));
        assert_eq!(statuses(&[SIGINT, SIGTERM]), (1, vec![143]));
    }

    #[test]
    fn dropping_the_stopper_is_a_request_that_lasts() {
        let (stopper, stop) = Stop::by_hand();
        assert!(!stop.wait(Duration::ZERO));
        drop(stopper);
        assert!(stop.wait(Duration::MAX) && stop.wait(Duration::ZERO));
    }
}
