// SPDX-License-Identifier: GPL-2.0-only
//! Waiting until a cgroup, or another directory, is made.

use nuksm_sysroot::{Error, Result, Root};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Says when a directory is made in one of those that it was told of.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Watches nothing yet.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?))
    }

    /// Watches a directory, if it is there. To do so again changes nothing.
    pub fn add(&self, root: &Root, dir: &str) -> Result<()> {
        let path = root.path(dir);
        match inotify::add_watch(&self.0, &path, inotify::WatchFlags::CREATE | inotify::WatchFlags::ONLYDIR) {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Error::Unreadable { path, source: error.into() }),
        }
    }

    /// Waits until something is made, at most for so long; true when it was.
    pub fn wait(&self, time: Duration) -> std::io::Result<bool> {
        let time = Timespec::try_from(time).map_err(std::io::Error::other)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&time)) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            ready => ready?,
        };
        // Which one it was does not matter, nor whether some were dropped.
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut space);
        loop {
            match events.next() {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_of_a_new_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let watch = Watch::new().unwrap();
        watch.add(&root, "a").unwrap();
        watch.add(&root, "a").unwrap();
        watch.add(&root, "gone").unwrap();
        assert!(!watch.wait(Duration::ZERO).unwrap());
        for name in ["a/b", "a/c"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert!(watch.wait(Duration::from_secs(600)).unwrap());
        assert!(!watch.wait(Duration::ZERO).unwrap(), "both were told of at once");
    }
}
