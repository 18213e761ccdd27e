// SPDX-License-Identifier: GPL-2.0-only
//! Cgroups (version 2): which there are, and which merge domain each was given.
//!
//! The kernel keeps a domain's number. Its name, and who chose it, are in an extended
//! attribute beside it that only who administers the machine can write: both are gone with
//! the cgroup, and no file of ours can say something else.

mod watch;

pub use watch::Watch;

use nuksm_sysroot::{Error, Result, Root, is_absent};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::str::FromStr;

const DIR: &str = "sys/fs/cgroup";
const FILE: &str = "memory.ksm_domain";
const DEFAULT: &str = "sys/kernel/mm/ksm/default_domain";
const ATTRIBUTE: &str = "trusted.nuksm.domain";

/// Bytes that are written beside a cgroup at the most: longer ones are not ours.
pub const LONGEST_LABEL: usize = 1024;

/// What a cgroup was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// Nothing: it belongs where the one above it does.
    Inherit,
    /// A domain that is nobody else's.
    Own,
    /// A domain by its number; 0 is that of all who were given none.
    Number(u32),
}

/// The domain of all who were given none, unless each cgroup then has its own.
pub const SHARED: u32 = 0;

/// The greatest number that can be given.
pub const GREATEST: u32 = i32::MAX as u32;

impl FromStr for Given {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        match text {
            "inherit" => Ok(Self::Inherit),
            "own" => Ok(Self::Own),
            number => number.parse().map(Self::Number).map_err(|_| ()),
        }
    }
}

impl Display for Given {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        match self {
            Self::Inherit => write!(out, "inherit"),
            Self::Own => write!(out, "own"),
            Self::Number(number) => write!(out, "{number}"),
        }
    }
}

/// The domain of cgroups that were given none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// They have [`SHARED`] together.
    Shared,
    /// Each has its own.
    Own,
}

impl Default {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Own => "own",
        }
    }

    /// Reads it; `None` when this kernel has no merge domains.
    pub fn read(root: &Root) -> Result<Option<Self>> {
        let Some(text) = root.text(DEFAULT)? else {
            return Ok(None);
        };
        match text.trim() {
            "[shared] own" => Ok(Some(Self::Shared)),
            "shared [own]" => Ok(Some(Self::Own)),
            _ => Err(root.malformed(DEFAULT, "shared and own, one of them in [brackets]", &text)),
        }
    }

    /// Sets it.
    pub fn write(self, root: &Root) -> Result<()> {
        root.write(DEFAULT, &format!("{}\n", self.as_str()))
    }
}

/// The cgroups right below one; `path` has no slash at either end, and is empty for the
/// first one. None when it is gone.
pub fn children(root: &Root, path: &str) -> Result<Vec<String>> {
    let dir = root.path(DIR).join(path);
    let unreadable = |source| Error::Unreadable { path: dir.clone(), source };
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(source) if is_absent(&source) => return Ok(Vec::new()),
        Err(source) => return Err(unreadable(source)),
    };
    let mut children = Vec::new();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(source) if is_absent(&source) || is_gone(&source) => break,
            Err(source) => return Err(unreadable(source)),
        };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // Who may make cgroups may call them anything; nobody's pattern means such a name.
        if let Ok(name) = entry.file_name().into_string() {
            children.push(if path.is_empty() { name } else { format!("{path}/{name}") });
        }
    }
    children.sort_unstable();
    Ok(children)
}

/// Has `watch` say when a cgroup is made right below this one.
pub fn watch(watch: &Watch, root: &Root, path: &str) -> Result<()> {
    watch.add(root, &format!("{DIR}/{path}"))
}

/// What a cgroup was given; `None` when it is gone, or counts no memory, or this kernel has
/// no merge domains.
pub fn given(root: &Root, path: &str) -> Result<Option<Given>> {
    match root.value(format!("{DIR}/{path}/{FILE}"), "inherit, own or a number") {
        // Removed since the file was opened.
        Err(Error::Unreadable { source, .. }) if is_gone(&source) => Ok(None),
        given => given,
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// Gives it one.
pub fn give(root: &Root, path: &str, given: Given) -> Result<()> {
    root.write(format!("{DIR}/{path}/{FILE}"), &format!("{given}\n"))
}

/// What is written beside it; `None` when nothing is, it is gone, or this user may not
/// know.
pub fn label(root: &Root, path: &str) -> Result<Option<String>> {
    let dir = root.path(DIR).join(path);
    let mut bytes = vec![0; LONGEST_LABEL];
    match getxattr(&dir, ATTRIBUTE, &mut bytes[..]) {
        Ok(length) => Ok(String::from_utf8(bytes[..length].to_vec()).ok()),
        Err(Errno::NODATA | Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
        Err(error) => Err(Error::Unreadable { path: dir, source: error.into() }),
    }
}

/// Writes it.
pub fn set_label(root: &Root, path: &str, label: &str) -> Result<()> {
    let dir = root.path(DIR).join(path);
    setxattr(&dir, ATTRIBUTE, label.as_bytes(), XattrFlags::empty())
        .map_err(|error| Error::Unwritable { path: dir, source: error.into() })
}

/// Takes it away, if there is one.
pub fn remove_label(root: &Root, path: &str) -> Result<()> {
    let dir = root.path(DIR).join(path);
    match removexattr(&dir, ATTRIBUTE) {
        Ok(()) | Err(Errno::NODATA | Errno::NOENT) => Ok(()),
        Err(error) => Err(Error::Unwritable { path: dir, source: error.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn what_a_cgroup_was_given() {
        let file = |cgroup: &str| format!("{DIR}/{cgroup}/{FILE}");
        let (_dir, root) = tree(&[
            (&file("a"), "inherit\n"),
            (&file("a/b"), "own\n"),
            (&file("c"), "2147483647\n"),
            (&file("bad"), "-1\n"),
            (&format!("{DIR}/d/cgroup.procs"), ""),
        ]);
        assert_eq!(children(&root, "").unwrap(), ["a", "bad", "c", "d"]);
        assert_eq!(children(&root, "a").unwrap(), ["a/b"]);
        assert!(children(&root, "gone").unwrap().is_empty());
        let of = |path| given(&root, path).unwrap();
        assert_eq!(
            ["a", "a/b", "c"].map(of),
            [Some(Given::Inherit), Some(Given::Own), Some(Given::Number(GREATEST))]
        );
        assert_eq!(["d", "gone"].map(of), [None, None], "absent is not inherit");
        assert!(given(&root, "bad").unwrap_err().to_string().contains("expected inherit, own or a number"));
        give(&root, "a", Given::Number(7)).unwrap();
        assert_eq!(of("a"), Some(Given::Number(7)));
        assert!(give(&root, "d", Given::Own).is_err(), "nothing is created");
    }

    #[test]
    fn who_was_given_none() {
        let (_dir, root) = tree(&[(DEFAULT, "[shared] own\n")]);
        assert_eq!(Default::read(&root).unwrap(), Some(Default::Shared));
        Default::Own.write(&root).unwrap();
        assert!(Default::read(&root).unwrap_err().to_string().contains("one of them in [brackets]"));
        let (_dir, root) = tree(&[(DEFAULT, "shared [own]\n")]);
        assert_eq!(Default::read(&root).unwrap(), Some(Default::Own));
        let (_dir, root) = tree(&[]);
        assert_eq!(Default::read(&root).unwrap(), None, "a stock kernel");
    }

    #[test]
    fn a_label_is_kept_beside_it_for_root_alone() {
        let (_dir, root) = tree(&[(&format!("{DIR}/a/cgroup.procs"), "")]);
        assert_eq!(label(&root, "a").unwrap(), None);
        assert_eq!(label(&root, "gone").unwrap(), None);
        remove_label(&root, "a").unwrap();
        if let Err(error) = set_label(&root, "a", "rule acme") {
            // A plain user may not.
            assert!(error.to_string().starts_with("cannot write "), "{error}");
            return;
        }
        assert_eq!(label(&root, "a").unwrap().as_deref(), Some("rule acme"));
        remove_label(&root, "a").unwrap();
        assert_eq!(label(&root, "a").unwrap(), None);
    }
}
