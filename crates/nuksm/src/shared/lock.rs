// SPDX-License-Identifier: GPL-2.0-only
//! One at a time: whoever holds the lock on a file below /run.

use anyhow::{Context, Result, bail};
use nuksm_sysroot::Root;
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, openat};
use rustix::process::geteuid;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::fs::{DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file that is locked as long as this lives. It stays when that ends: a lock
/// on a file that is removed would be none.
#[derive(Debug)]
pub struct Lock {
    /// Open for reading and writing.
    pub file: File,
    /// Where it is.
    pub path: PathBuf,
}

/// Somebody else has it.
#[derive(Debug)]
struct Held {
    holders: String,
    path: PathBuf,
}

impl Display for Held {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        write!(out, "another {} is at work: it holds {}", self.holders, self.path.display())
    }
}

impl Error for Held {}

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(10);

/// Gone at the next boot, as are the kernel's settings.
pub const DIR: &str = "run/nuksm";

impl Lock {
    /// Takes the lock on `name`, which nobody holds for long; waits `time` at most.
    pub fn take_within(root: &Root, name: &str, holders: &str, time: Duration) -> Result<Self> {
        let due = Instant::now() + time;
        loop {
            match Self::take(root, name, holders) {
                Err(error) if error.is::<Held>() && Instant::now() < due => std::thread::sleep(AGAIN),
                done => return done,
            }
        }
    }

    /// Takes the lock on `name`, which only `holders` take.
    pub fn take(root: &Root, name: &str, holders: &str) -> Result<Self> {
        let path = root.path(DIR).join(name);
        let cannot = || format!("cannot lock {}: run as root", path.display());
        let file = open(&root.path(DIR), name).with_context(cannot)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { file, path }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Held { holders: holders.to_owned(), path }.into()),
            Err(error) => Err(error).with_context(cannot),
        }
    }
}

/// Opens file `name` in `dir`, and makes what is missing of both. They are this
/// user's alone: whoever may read a file may lock it, and whoever may write to its
/// directory chooses which file it is.
fn open(dir: &Path, name: &str) -> Result<File> {
    let (no_link, mode) = (OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let dir = openat(CWD, dir, OFlags::DIRECTORY | no_link, Mode::empty())?;
    make_own(&dir, Mode::RWXU)?;
    let file = openat(&dir, name, OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK | no_link, mode)?;
    make_own(&file, mode)?;
    if !FileType::from_raw_mode(fstat(&file)?.st_mode).is_file() {
        bail!("it is no regular file");
    }
    Ok(file.into())
}

/// An older version let others read it, or a umask let others write to it.
fn make_own(file: &OwnedFd, mode: Mode) -> Result<()> {
    let owner = fstat(file)?.st_uid;
    if owner != geteuid().as_raw() {
        bail!("it belongs to user {owner}");
    }
    Ok(fchmod(file, mode)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn nobody_else_can_lock_it_or_say_which_file_it_is() {
        let root_dir = tempfile::tempdir().unwrap();
        let root = Root::at(root_dir.path());
        let dir = root.path(DIR);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let modes = || (mode(&dir), mode(&dir.join("tune.json")));
        drop(Lock::take(&root, "tune.json", "one").unwrap());
        assert_eq!(modes(), (0o700, 0o600));
        // As an older version left them, at a umask of 0.
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        fs::set_permissions(dir.join("tune.json"), Permissions::from_mode(0o666)).unwrap();
        drop(Lock::take(&root, "tune.json", "one").unwrap());
        assert_eq!(modes(), (0o700, 0o600));

        let victim = root_dir.path().join("victim");
        fs::write(&victim, "as it was").unwrap();
        symlink(&victim, dir.join("place.lock")).unwrap();
        Lock::take(&root, "place.lock", "one").unwrap_err();
        fs::rename(&dir, root_dir.path().join("elsewhere")).unwrap();
        symlink(root_dir.path().join("elsewhere"), &dir).unwrap();
        Lock::take(&root, "tune.json", "one").unwrap_err();
        if geteuid().is_root() {
            fs::remove_file(&dir).unwrap();
            fs::create_dir(&dir).unwrap();
            std::os::unix::fs::chown(&dir, Some(1), None).unwrap();
            let message = format!("{:#}", Lock::take(&root, "tune.json", "one").unwrap_err());
            assert!(message.ends_with("it belongs to user 1"), "{message}");
        }
    }

    #[test]
    fn the_second_is_told_who_is_at_work_and_what_ended_holds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let first = Lock::take(&root, "place.lock", "one").unwrap();
        let message = Lock::take(&root, "place.lock", "one").unwrap_err().to_string();
        assert!(
            message.starts_with("another one is at work: it holds ") && message.ends_with("/place.lock"),
            "{message}"
        );
        Lock::take(&root, "tune.json", "one").unwrap();
        drop(first);
        Lock::take(&root, "place.lock", "one").unwrap();
    }

    #[test]
    fn who_waits_gets_it_when_the_other_has_done() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let take = |time| Lock::take_within(&root, "short.lock", "one", time);
        let first = take(Duration::ZERO).unwrap();
        assert!(take(Duration::from_millis(30)).unwrap_err().to_string().starts_with("another one"));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| take(Duration::from_secs(600)));
            drop(first);
            second.join().unwrap().unwrap();
        });
    }
}
