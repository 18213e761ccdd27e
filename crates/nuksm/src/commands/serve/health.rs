// SPDX-License-Identifier: GPL-2.0-only
//! Which of the daemon's parts do not do their work, and why.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Parts in trouble, each with the reason.
#[derive(Debug, Default)]
pub struct Health(Mutex<BTreeMap<&'static str, String>>);

impl Health {
    /// This part does not work.
    pub fn failing(&self, part: &'static str, why: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(part, why.into());
    }

    /// It works, or is not wanted any more.
    pub fn well(&self, part: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(part);
    }

    /// What to tell whoever asks; `None` when all works.
    pub fn trouble(&self) -> Option<String> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<String> = parts.iter().map(|(part, why)| format!("{part}: {why}")).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// For a thread to keep: when it dies of a panic, its part does not work.
    pub fn watch(self: &Arc<Self>, part: &'static str) -> Watch {
        Watch { health: Arc::clone(self), part }
    }
}

/// Notices a panic of the thread that has it.
#[derive(Debug)]
pub struct Watch {
    health: Arc<Health>,
    part: &'static str,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.health.failing(self.part, "its thread failed; restart the daemon");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_reason_until_it_works_again() {
        let health = Arc::new(Health::default());
        assert_eq!(health.trouble(), None);
        health.failing("[tune]", "x");
        health.failing("[place]", "y");
        health.failing("[place]", "z");
        assert_eq!(health.trouble().unwrap(), "[place]: z\n[tune]: x");
        health.well("[place]");
        health.well("[tune]");
        assert_eq!(health.trouble(), None);
    }

    #[test]
    fn a_thread_that_dies_is_trouble_and_one_that_ends_is_none() {
        let health = Arc::new(Health::default());
        let watch = health.watch("[place]");
        std::thread::spawn(move || drop(watch)).join().unwrap();
        assert_eq!(health.trouble(), None);
        let watch = health.watch("[place]");
        let died = std::thread::spawn(move || {
            let _watch = watch;
            panic!("for this test");
        });
        assert!(died.join().is_err());
        assert!(health.trouble().unwrap().starts_with("[place]: its thread failed"));
    }
}
