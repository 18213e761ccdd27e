// SPDX-License-Identifier: GPL-2.0-only
//! Text files of `/sys` and `/proc`, read and written below a root directory.
//!
//! Everything the kernel may or may not offer is `Option`: a file that does
//! not exist is `None`, a file that exists but cannot be read or understood is
//! an error that names it. Neither is ever zero.

mod patience;

pub use patience::{Stopped, Wanted, ask, borrowed_cpu_time, patiently, unless_stopped};

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What can be wrong with a file of `/sys` or `/proc`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is there and the kernel refused to give its content.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file, root directory included.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The file is not there, or the kernel refused to take what was written.
    #[error("cannot write {path}")]
    Unwritable {
        /// The file, root directory included.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// Who it is about keeps us from reading it: see [`patiently`].
    #[error("{path} does not answer: its memory is locked")]
    Unanswered {
        /// The directory of the process, root directory included.
        path: PathBuf,
    },
    /// The content is not what this kind of file holds.
    #[error("{path}: expected {expected}, found {found:?}")]
    Malformed {
        /// The file, root directory included.
        path: PathBuf,
        /// What should have been there.
        expected: &'static str,
        /// What was there, cut to a readable length.
        found: String,
    },
}

impl Error {
    /// True when the kernel said that the caller lacks a privilege.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        self.kind() == Some(ErrorKind::PermissionDenied)
    }

    /// True when the kernel said that this cannot change in its present state.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.kind() == Some(ErrorKind::ResourceBusy)
    }

    fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Unreadable { source, .. } | Self::Unwritable { source, .. } => Some(source.kind()),
            Self::Malformed { .. } | Self::Unanswered { .. } => None,
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The directory that stands for `/`: the real one, or a test's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

/// `ESRCH`: a file of `/proc/PID` answers so once the process has ended.
const ESRCH: i32 = 3;

impl Root {
    /// A root at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Is it the machine's own? Elsewhere no number of a process is that of a real one.
    #[must_use]
    pub fn is_real(&self) -> bool {
        *self == Self::default()
    }

    /// Where `path` (relative to the root) really is.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// The whole file, or `None` when it (or its process) does not exist.
    pub fn text(&self, path: impl AsRef<Path>) -> Result<Option<String>> {
        self.text_up_to(path, u64::MAX)
    }

    /// As many bytes of the file from its beginning at the most: for files whose
    /// length is their process's choice, such as its command line.
    pub fn text_up_to(&self, path: impl AsRef<Path>, bytes: u64) -> Result<Option<String>> {
        let path = self.path(path);
        match read(&path, bytes) {
            // Names of processes need not be UTF-8.
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(source) if is_absent(&source) => Ok(None),
            Err(source) => Err(Error::Unreadable { path, source }),
        }
    }

    /// Calls `visit` with each line of the file; false when it (or its process) does
    /// not exist. For files with as many lines as their process wants.
    pub fn lines(&self, path: impl AsRef<Path>, mut visit: impl FnMut(&str) -> Result<()>) -> Result<bool> {
        let path = self.path(path);
        let unreadable = |source| Error::Unreadable { path: path.clone(), source };
        let mut file = match File::open(&path) {
            Ok(file) => BufReader::new(file),
            Err(source) if is_absent(&source) => return Ok(false),
            Err(source) => return Err(unreadable(source)),
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            match file.read_until(b'\n', &mut line) {
                Ok(0) => return Ok(true),
                Ok(_) => visit(String::from_utf8_lossy(&line).trim_end_matches('\n'))?,
                Err(source) if is_absent(&source) => return Ok(false),
                Err(source) => return Err(unreadable(source)),
            }
        }
    }

    /// The file's only word as a `T`, or `None` when the file does not exist.
    pub fn value<T: FromStr>(&self, path: impl AsRef<Path>, expected: &'static str) -> Result<Option<T>> {
        let path = path.as_ref();
        let Some(text) = self.text(path)? else {
            return Ok(None);
        };
        match text.trim().parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(self.malformed(path, expected, &text)),
        }
    }

    /// Writes `text` to a file that exists, in one go as sysfs wants it.
    pub fn write(&self, path: impl AsRef<Path>, text: &str) -> Result<()> {
        let path = self.path(path);
        let file = OpenOptions::new().write(true).truncate(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|source| Error::Unwritable { path, source })
    }

    /// The numbers N of the entries `prefixN` of a directory, ascending;
    /// empty when there is no such directory.
    pub fn numbered(&self, dir: impl AsRef<Path>, prefix: &str) -> Result<Vec<u32>> {
        let path = self.path(dir);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(source) if is_absent(&source) => return Ok(Vec::new()),
            Err(source) => return Err(Error::Unreadable { path, source }),
        };
        let mut numbers: Vec<u32> = entries
            .filter_map(std::result::Result::ok)
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The error for a process that did not answer.
    #[must_use]
    pub fn unanswered(&self, pid: u32) -> Error {
        Error::Unanswered { path: self.path(format!("proc/{pid}")) }
    }

    /// The error for a file whose content is not what it should be.
    pub fn malformed(&self, path: impl AsRef<Path>, expected: &'static str, found: &str) -> Error {
        Error::Malformed { path: self.path(path), expected, found: found.trim().chars().take(60).collect() }
    }
}

/// All bytes of a file. Those of `/sys` and `/proc` are small and claim to be
/// empty: asking for their length first, as `fs::read` does, is in vain.
fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Does this error of opening or reading a file of `/proc` mean that the file,
/// or its process, is not there (any more)?
#[must_use]
pub fn is_absent(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

/// Text that somebody else chose, such as a process its name, fit for a terminal,
/// a table or a picture: what would steer those is shown as U+FFFD instead.
#[must_use]
pub fn printable(text: &str) -> String {
    // What turns the direction of writing, and what no XML may hold.
    let turns =
        |char| matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_good = |char: char| {
        !char.is_control()
            && !turns(char)
            && !matches!(char, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|char| if is_good(char) { char } else { char::REPLACEMENT_CHARACTER }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_unreadable_and_malformed_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("good"), "42\n").unwrap();
        fs::write(dir.path().join("bad"), "forty-two\n").unwrap();
        fs::create_dir(dir.path().join("unreadable")).unwrap();
        let root = Root::at(dir.path());

        assert_eq!(root.value::<u64>("good", "a number").unwrap(), Some(42));
        assert_eq!(root.text_up_to("good", 1).unwrap().as_deref(), Some("4"));
        assert_eq!(root.text_up_to("absent", 1).unwrap(), None);
        assert_eq!(root.value::<u64>("absent", "a number").unwrap(), None);
        let bad = root.value::<u64>("bad", "a number").unwrap_err().to_string();
        assert!(bad.contains("bad: expected a number, found \"forty-two\""), "{bad}");
        let unreadable = root.text("unreadable").unwrap_err();
        assert!(unreadable.to_string().starts_with("cannot read "), "{unreadable}");
        assert!(!unreadable.is_permission());
    }

    #[test]
    fn lines_come_one_by_one_and_end_with_the_first_that_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("maps"), b"one\n\n\xff\nlast").unwrap();
        fs::create_dir(dir.path().join("unreadable")).unwrap();
        let root = Root::at(dir.path());
        let mut seen = Vec::new();
        let mut visit = |line: &str| {
            seen.push(line.to_owned());
            if line.is_empty() { Err(root.malformed("maps", "words", line)) } else { Ok(()) }
        };
        assert!(root.lines("maps", &mut visit).is_err());
        assert_eq!((root.lines("absent", &mut visit).unwrap(), seen.len()), (false, 2));
        let mut seen = Vec::new();
        assert!(
            root.lines("maps", |line| {
                seen.push(line.to_owned());
                Ok(())
            })
            .unwrap()
        );
        assert_eq!(seen, ["one", "", "\u{fffd}", "last"]);
        assert!(root.lines("unreadable", |_| Ok(())).unwrap_err().to_string().starts_with("cannot read "));
    }

    #[test]
    fn what_is_written_replaces_what_was_there_and_nothing_is_created() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("setting"), "a longer one\n").unwrap();
        let root = Root::at(dir.path());
        root.write("setting", "short\n").unwrap();
        assert_eq!(root.text("setting").unwrap().as_deref(), Some("short\n"));

        let absent = root.write("absent", "1\n").unwrap_err();
        assert!(absent.to_string().starts_with("cannot write "), "{absent}");
        assert!(absent.to_string().ends_with("/absent"), "{absent}");
        assert_eq!(root.text("absent").unwrap(), None);
    }

    #[test]
    fn what_the_kernel_answers_can_be_asked() {
        let (eacces, ebusy) = (13, 16);
        let answer = |errno| Error::Unwritable {
            path: PathBuf::from("setting"),
            source: std::io::Error::from_raw_os_error(errno),
        };
        assert_eq!((answer(eacces).is_permission(), answer(eacces).is_busy()), (true, false));
        assert_eq!((answer(ebusy).is_permission(), answer(ebusy).is_busy()), (false, true));
    }

    #[test]
    fn what_steers_a_terminal_is_shown_and_not_obeyed() {
        assert_eq!(
            printable("\u{1b}[2Jdb\n\u{7f}\u{9b}31m\u{202e}"),
            "\u{fffd}[2Jdb\u{fffd}\u{fffd}\u{fffd}31m\u{fffd}"
        );
        assert_eq!(printable("Größe 数据 🐘"), "Größe 数据 🐘");
    }

    #[test]
    fn numbered_entries_come_sorted_and_without_strangers() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["node10", "node2", "nodes", "online", "node2x"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let root = Root::at(dir.path());
        assert_eq!(root.numbered("", "node").unwrap(), [2, 10]);
        assert!(root.numbered("absent", "node").unwrap().is_empty());
    }
}
