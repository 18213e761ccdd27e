// SPDX-License-Identifier: GPL-2.0-only
//! The settings that were found at the start, kept where they outlive us.

use crate::shared::lock::{self, Lock};
use anyhow::{Context, Result};
use nuksm_ksmfs::ScanSettings;
use nuksm_sysroot::Root;
use std::io::{Read, Seek, Write};

const NAME: &str = "tune.json";

/// The file, locked: one daemon at a time.
#[derive(Debug)]
pub struct Original {
    lock: Lock,
    /// What was set before anything was tuned.
    pub settings: ScanSettings,
}

impl Original {
    /// Takes the lock. What a killed daemon left in the file is what was set
    /// before it came; else that is what is set `now`.
    pub fn keep(root: &Root, now: &ScanSettings) -> Result<Self> {
        let (lock, left) = lock(root)?;
        // What is there stays as it is: there is no moment at which it is lost.
        let is_new = left.is_none();
        let mut original = Self { settings: left.unwrap_or_else(|| now.clone()), lock };
        if is_new {
            original.replace(&serde_json::to_string(&original.settings)?)?;
        }
        Ok(original)
    }

    /// What a killed daemon left, if one did; takes the lock, too.
    pub fn left(root: &Root) -> Result<Option<Self>> {
        let path = root.path(lock::DIR).join(NAME);
        let is_there = path.try_exists();
        if !is_there.with_context(|| format!("cannot look for {}: run as root", path.display()))? {
            return Ok(None);
        }
        let (lock, left) = lock(root)?;
        Ok(left.map(|settings| Self { lock, settings }))
    }

    /// Gives the settings back to the kernel.
    pub fn restore(&mut self, root: &Root) -> Result<()> {
        self.settings.write(root).context("cannot restore the settings found at the start")?;
        self.replace("")
    }

    /// The file stays, empty.
    fn replace(&mut self, text: &str) -> Result<()> {
        let file = &mut self.lock.file;
        let written = file.rewind().and_then(|()| file.set_len(0));
        let written = written.and_then(|()| file.write_all(text.as_bytes()));
        written.with_context(|| format!("cannot write {}", self.lock.path.display()))
    }
}

/// The file, locked, and what it says.
fn lock(root: &Root) -> Result<(Lock, Option<ScanSettings>)> {
    let mut lock = Lock::take(root, NAME, "`nuksm tune` (or `nuksm serve` with [tune])")?;
    let mut text = String::new();
    lock.file.read_to_string(&mut text).with_context(|| format!("cannot read {}", lock.path.display()))?;
    if text.is_empty() {
        return Ok((lock, None));
    }
    let left = serde_json::from_str(&text).with_context(|| {
        format!(
            "{} should say which settings of ksmd a killed daemon found, and cannot be understood: set {} by hand, \
             then remove the file",
            lock.path.display(),
            "/sys/kernel/mm/ksm/pages_to_scan and sleep_millisecs"
        )
    })?;
    Ok((lock, Some(left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pages_to_scan: u64) -> ScanSettings {
        ScanSettings { pages_to_scan, sleep_millisecs: 20, advisor: None }
    }

    #[test]
    fn a_killed_daemon_s_successor_knows_what_was_set_before_both() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        drop(Original::keep(&root, &settings(100)).unwrap());
        let mut successor = Original::keep(&root, &settings(5_000)).unwrap();
        assert_eq!(successor.settings, settings(100));
        successor.replace("").unwrap();
        drop(successor);
        assert_eq!(Original::keep(&root, &settings(7)).unwrap().settings, settings(7));
    }

    #[test]
    fn what_cannot_be_understood_is_not_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        drop(Original::keep(&root, &settings(100)).unwrap());
        let path = root.path(lock::DIR).join(NAME);
        let whole = std::fs::read_to_string(&path).unwrap();
        for damaged in ["{", "null", &whole[..whole.len() - 1]] {
            std::fs::write(&path, damaged).unwrap();
            let message = Original::left(&root).unwrap_err().to_string();
            assert!(message.contains("tune.json") && message.contains("by hand"), "{message}");
            Original::keep(&root, &settings(5_000)).unwrap_err();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
        }
    }

    #[test]
    fn one_daemon_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let _first = Original::keep(&root, &settings(100)).unwrap();
        let message = Original::keep(&root, &settings(100)).unwrap_err().to_string();
        assert!(message.contains("another `nuksm tune`"), "{message}");
    }
}
