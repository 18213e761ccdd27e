// SPDX-License-Identifier: GPL-2.0-only
//! One at a time: whoever holds the lock on a file below /run.

use anyhow::{Context, Result, bail};
use nuksm_sysroot::Root;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::path::PathBuf;

/// A file that is locked as long as this lives. It stays when that ends: a lock
/// on a file that is removed would be none.
#[derive(Debug)]
pub struct Lock {
    /// Open for reading and writing.
    pub file: File,
    /// Where it is.
    pub path: PathBuf,
}

/// Gone at the next boot, as are the kernel's settings.
pub const DIR: &str = "run/nuksm";

impl Lock {
    /// Takes the lock on `name`; `work`, which is the name of a command and of a
    /// section of the daemon's configuration, says what it is for.
    pub fn take(root: &Root, name: &str, work: &str) -> Result<Self> {
        let path = root.path(DIR).join(name);
        let cannot = || format!("cannot lock {}: run as root", path.display());
        std::fs::create_dir_all(root.path(DIR)).with_context(cannot)?;
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(false).open(&path).with_context(cannot)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { file, path }),
            Err(rustix::io::Errno::WOULDBLOCK) => bail!(
                "another `nuksm {work}` (or `nuksm serve` with [{work}]) is at work: it holds {}",
                path.display()
            ),
            Err(error) => Err(error).with_context(cannot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_is_at_work_and_what_ended_holds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let first = Lock::take(&root, "place.lock", "place").unwrap();
        let message = Lock::take(&root, "place.lock", "place").unwrap_err().to_string();
        assert!(
            message.contains("another `nuksm place` (or `nuksm serve` with [place]) is at work"),
            "{message}"
        );
        Lock::take(&root, "tune.json", "tune").unwrap();
        drop(first);
        Lock::take(&root, "place.lock", "place").unwrap();
    }
}
