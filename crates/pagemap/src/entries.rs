// SPDX-License-Identifier: GPL-2.0-only
//! `/proc/PID/pagemap`: one 64-bit word per virtual page
//! (Documentation/admin-guide/mm/pagemap.rst).

use crate::{Area, Error, Result, page_size};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use sysroot::Root;

/// One word of pagemap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    const PRESENT: u64 = 1 << 63;
    const FILE_OR_SHARED: u64 = 1 << 61;
    const EXCLUSIVE: u64 = 1 << 56;
    const PFN: u64 = (1 << 55) - 1;

    /// Page frame number; 0 when absent or hidden from this user.
    #[must_use]
    pub fn pfn(self) -> u64 {
        if self.0 & Self::PRESENT == 0 { 0 } else { self.0 & Self::PFN }
    }

    /// Present and anonymous. The kernel's zero page looks so, too.
    #[must_use]
    pub fn is_anonymous(self) -> bool {
        self.0 & (Self::PRESENT | Self::FILE_OR_SHARED) == Self::PRESENT
    }

    /// Present, anonymous, and mapped at more than one place: what a merged
    /// page with several sharers looks like (as do the zero page and pages
    /// that a fork shares).
    #[must_use]
    pub fn is_shared_anonymous(self) -> bool {
        self.is_anonymous() && self.0 & Self::EXCLUSIVE == 0
    }
}

/// An open pagemap.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    path: PathBuf,
}

const WORD: u64 = 8;
/// Words per read: 32 KiB, small enough for any stack of buffers.
const CHUNK: u64 = 4096;

impl Pagemap {
    /// Opens the pagemap of process `pid`; `None` when it has ended.
    pub fn open(root: &Root, pid: &str) -> Result<Option<Self>> {
        let path = root.path(format!("proc/{pid}/pagemap"));
        match File::open(&path) {
            Ok(file) => Ok(Some(Self { file, path })),
            Err(source) if sysroot::is_absent(&source) => Ok(None),
            Err(source) => Err(sysroot::Error::Unreadable { path, source }.into()),
        }
    }

    /// Calls `visit` with the address and word of each page of `area`, and
    /// says how many there were: fewer than asked for when the process ended.
    pub fn walk(&self, area: Area, mut visit: impl FnMut(u64, Entry)) -> Result<u64> {
        let page = page_size();
        let (mut next, last) = (area.start / page, area.end / page);
        let mut visited = 0;
        let longest = last.saturating_sub(next).min(CHUNK);
        let mut buffer = vec![0_u8; usize::try_from(longest * WORD).unwrap_or(0)];
        while next < last {
            let wanted = usize::try_from((last - next).min(CHUNK) * WORD).unwrap_or(0);
            let got = match self.file.read_at(&mut buffer[..wanted], next * WORD) {
                Ok(got) => got,
                Err(source) if sysroot::is_absent(&source) => break,
                Err(source) => {
                    return Err(Error::File(sysroot::Error::Unreadable { path: self.path.clone(), source }));
                }
            };
            let words = buffer[..got].chunks_exact(8).map(word);
            if words.len() == 0 {
                break;
            }
            for entry in words {
                visit(next * page, Entry(entry));
                next += 1;
                visited += 1;
            }
        }
        Ok(visited)
    }

    /// The word of the page at `addr`; `None` when the process has ended.
    pub fn entry(&self, addr: u64) -> Result<Option<Entry>> {
        let page = page_size();
        let mut found = None;
        self.walk(Area { start: addr, end: addr + page }, |_, entry| found = Some(entry))?;
        Ok(found)
    }
}

/// The eight bytes of a chunk as a word.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn bits_as_the_kernel_documents_them() {
        let merged = Entry(Entry::PRESENT + 77);
        assert!(merged.is_shared_anonymous());
        assert_eq!(merged.pfn(), 77);
        assert!(!Entry(merged.0 | Entry::EXCLUSIVE).is_shared_anonymous());
        assert!(Entry(merged.0 | Entry::EXCLUSIVE).is_anonymous());
        assert!(!Entry(77).is_anonymous(), "not present");
        assert!(!Entry(merged.0 | Entry::FILE_OR_SHARED).is_shared_anonymous());
        assert_eq!(Entry(77).pfn(), 0, "not present");
    }

    #[test]
    fn a_walk_visits_each_page_once_and_stops_where_the_process_ended() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/7")).unwrap();
        let words: Vec<u8> = (0..6_000_u64).flat_map(u64::to_ne_bytes).collect();
        fs::write(dir.path().join("proc/7/pagemap"), words).unwrap();
        let root = Root::at(dir.path());
        let pagemap = Pagemap::open(&root, "7").unwrap().unwrap();
        let page = page_size();
        let mut seen = Vec::new();
        let area = Area { start: 10 * page, end: 9_000 * page };
        let visited = pagemap.walk(area, |addr, entry| seen.push((addr / page, entry.0))).unwrap();
        assert_eq!(visited, 5_990);
        assert!(seen.iter().copied().eq((10..6_000).map(|number| (number, number))));
        assert_eq!(pagemap.entry(5 * page).unwrap(), Some(Entry(5)));
        assert_eq!(pagemap.entry(6_000 * page).unwrap(), None);
        assert!(Pagemap::open(&root, "8").unwrap().is_none());
    }
}
