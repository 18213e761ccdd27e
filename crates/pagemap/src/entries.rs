// SPDX-License-Identifier: GPL-2.0-only
//! `/proc/PID/pagemap`: one 64-bit word per virtual page
//! (Documentation/admin-guide/mm/pagemap.rst).

use crate::present::present;
use crate::{Area, Error, Result, page_size};
use nuksm_sysroot::Root;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

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

/// Pages that one step visits at the most: 16 MiB of them.
const STEP: u64 = 4096;

impl Pagemap {
    /// Opens the pagemap of process `pid`; `None` when it has ended.
    pub fn open(root: &Root, pid: &str) -> Result<Option<Self>> {
        let path = root.path(format!("proc/{pid}/pagemap"));
        match File::open(&path) {
            Ok(file) => Ok(Some(Self { file, path })),
            Err(source) if nuksm_sysroot::is_absent(&source) => Ok(None),
            Err(source) => Err(nuksm_sysroot::Error::Unreadable { path, source }.into()),
        }
    }

    /// Calls `visit` with the address and word of each anonymous page of `area`
    /// that is there. Ends early when the process does, or with an error when
    /// `stop` says so.
    ///
    /// Where nothing is, that takes no time; before Linux 6.7, about 5 s for
    /// 4 TiB (there is a word for each page, and no other way to learn that it
    /// says nothing).
    pub fn walk(
        &self,
        mut area: Area,
        stop: &dyn Fn() -> bool,
        mut visit: impl FnMut(u64, Entry),
    ) -> Result<()> {
        while area.start < area.end {
            if stop() {
                return Err(Error::Stopped);
            }
            self.step(&mut area, &mut visit)?;
        }
        Ok(())
    }

    /// Visits the first pages of `area` as [`Pagemap::walk`] does, some thousands
    /// at the most, and takes them off it: all of it when the process has ended.
    pub fn step(&self, area: &mut Area, mut visit: impl FnMut(u64, Entry)) -> Result<()> {
        let found = match present(&self.file, *area, STEP) {
            Ok(found) => found,
            Err(source) if nuksm_sysroot::is_absent(&source) => Some((Vec::new(), area.end)),
            Err(source) => return Err(self.unreadable(source)),
        };
        let (runs, end) = found.unwrap_or_else(|| {
            let end = area.end.min(area.start + STEP * page_size());
            (vec![Area { start: area.start, end }], end)
        });
        area.start = end;
        for run in runs {
            if !self.read(run, &mut visit)? {
                area.start = area.end;
            }
        }
        Ok(())
    }

    /// The word of the page at `addr`; `None` when the process has ended.
    pub fn entry(&self, addr: u64) -> Result<Option<Entry>> {
        let mut bytes = [0; 8];
        let got = self.words_at(addr, &mut bytes)?;
        Ok((got == bytes.len()).then(|| Entry(word(&bytes))))
    }

    /// Visits the anonymous pages of `run`; false when the process has ended.
    fn read(&self, run: Area, visit: &mut impl FnMut(u64, Entry)) -> Result<bool> {
        let pages = (run.end - run.start) / page_size();
        let mut buffer = vec![0_u8; usize::try_from(pages * WORD).unwrap_or(0)];
        let mut addr = run.start;
        while addr < run.end {
            let left = usize::try_from((run.end - addr) / page_size() * WORD).unwrap_or(0);
            let got = self.words_at(addr, &mut buffer[..left])?;
            let words = buffer[..got].chunks_exact(8);
            if words.len() == 0 {
                return Ok(false);
            }
            for entry in words.map(|bytes| Entry(word(bytes))) {
                if entry.is_anonymous() {
                    visit(addr, entry);
                }
                addr += page_size();
            }
        }
        Ok(true)
    }

    /// Reads the words from that of the page at `addr` on; says how many bytes.
    fn words_at(&self, addr: u64, buffer: &mut [u8]) -> Result<usize> {
        match self.file.read_at(buffer, addr / page_size() * WORD) {
            Ok(got) => Ok(got),
            Err(source) if nuksm_sysroot::is_absent(&source) => Ok(0),
            Err(source) => Err(self.unreadable(source)),
        }
    }

    fn unreadable(&self, source: std::io::Error) -> Error {
        Error::File(nuksm_sysroot::Error::Unreadable { path: self.path.clone(), source })
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
    fn a_walk_visits_each_page_that_is_there_once_and_stops_where_the_process_ended() {
        // A file of a test knows no PAGEMAP_SCAN: it is read as before Linux 6.7.
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/7")).unwrap();
        let is_there = |number: &u64| number % 3 != 0;
        let entry = |number| Entry::PRESENT * u64::from(is_there(&number)) + number;
        let words: Vec<u8> = (0..6_000).flat_map(|number| entry(number).to_ne_bytes()).collect();
        fs::write(dir.path().join("proc/7/pagemap"), words).unwrap();
        let root = Root::at(dir.path());
        let pagemap = Pagemap::open(&root, "7").unwrap().unwrap();
        let page = page_size();
        let mut seen = Vec::new();
        let area = Area { start: 10 * page, end: 9_000 * page };
        pagemap.walk(area, &|| false, |addr, entry| seen.push((addr / page, entry.pfn()))).unwrap();
        let expected = (10..6_000).filter(is_there).map(|number| (number, number));
        assert!(seen.iter().copied().eq(expected));
        assert_eq!(pagemap.entry(5 * page).unwrap(), Some(Entry(Entry::PRESENT + 5)));
        assert_eq!(pagemap.entry(6_000 * page).unwrap(), None);
        assert!(Pagemap::open(&root, "8").unwrap().is_none());
    }

    /// 16 TiB of this process, of which nothing is there yet.
    struct Sparse(*mut u8);

    const SPARSE: usize = 1 << 44;

    impl Sparse {
        fn new() -> Self {
            let (protection, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            );
            // SAFETY: a new mapping, at an address the kernel chooses.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), SPARSE, protection, flags, -1, 0) };
            assert_ne!(start, libc::MAP_FAILED);
            Self(start.cast())
        }

        fn touch(&mut self, page: usize) {
            let offset = page * usize::try_from(page_size()).unwrap();
            assert!(offset < SPARSE);
            // SAFETY: inside the mapping (checked).
            unsafe { self.0.add(offset).write(1) };
        }
    }

    impl Drop for Sparse {
        fn drop(&mut self) {
            // SAFETY: the mapping is ours and not used any more.
            unsafe { libc::munmap(self.0.cast(), SPARSE) };
        }
    }

    #[test]
    fn holes_take_no_steps() {
        let mut memory = Sparse::new();
        let pages = [0, 1, 3, 300, 1 << 20, (1 << 20) + 100, (1 << 32) - 1];
        for &page in &pages {
            memory.touch(page);
        }
        let start = memory.0 as u64;
        let pagemap = Pagemap::open(&Root::default(), "self").unwrap().unwrap();
        let mut area = Area { start, end: start + SPARSE as u64 };
        let first = Area { start, end: start + page_size() };
        if present(&pagemap.file, first, 1).unwrap().is_none() {
            return; // Before Linux 6.7.
        }
        let (mut steps, mut seen) = (0, Vec::new());
        while area.start < area.end && steps < 10 {
            steps += 1;
            let visit = |addr, _| seen.push(usize::try_from((addr - start) / page_size()).unwrap());
            pagemap.step(&mut area, visit).unwrap();
        }
        assert_eq!((seen.as_slice(), steps), (pages.as_slice(), 1));
    }

    #[test]
    fn more_pages_than_one_step_takes_are_all_visited() {
        let mut memory = Sparse::new();
        // Every third, then in a row: more regions than one call tells, and more
        // pages.
        let pages: Vec<usize> = (0..2_000).map(|page| page * 3).chain(10_000..16_000).collect();
        for &page in &pages {
            memory.touch(page);
        }
        let start = memory.0 as u64;
        let pagemap = Pagemap::open(&Root::default(), "self").unwrap().unwrap();
        let mut seen = Vec::new();
        let area = Area { start, end: start + 20_000 * page_size() };
        let visit = |addr, _| seen.push(usize::try_from((addr - start) / page_size()).unwrap());
        pagemap.walk(area, &|| false, visit).unwrap();
        // Memory may have come in huge pages.
        seen.retain(|page| pages.binary_search(page).is_ok());
        assert_eq!(seen, pages);
    }

    #[test]
    fn a_walk_ends_at_the_next_step_when_told_so() {
        let memory = Sparse::new();
        let start = memory.0 as u64;
        let pagemap = Pagemap::open(&Root::default(), "self").unwrap().unwrap();
        let area = Area { start, end: start + SPARSE as u64 };
        let stopped = pagemap.walk(area, &|| true, |_, _| ());
        assert!(matches!(stopped, Err(Error::Stopped)));
    }
}
