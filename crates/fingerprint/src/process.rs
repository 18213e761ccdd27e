// SPDX-License-Identifier: GPL-2.0-only
//! The anonymous pages of a running process, which runs on meanwhile.
//!
//! Content is read by `/proc/PID/mem`. `process_vm_readv(2)` would copy once
//! less, but it pins pages, and the kernel gives whoever pins a shared page a
//! copy of its own first: reading would un-merge what is merged.

use crate::page::{BATCH, Page, page, page_bytes};
use crate::{Error, Result};
use nuksm_pagemap::{Area, Entry, Pagemap, anonymous_areas, page_size};
use nuksm_sysroot::Root;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

/// A process that is being read.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    memory: File,
    pagemap: Pagemap,
    areas: std::vec::IntoIter<Area>,
    /// What is left of the present area.
    area: Area,
    /// Pages seen in pagemap and not read yet, the last one first.
    pending: Vec<(u64, Entry)>,
    buffer: Vec<u8>,
    vanished: u64,
    zero_already: u64,
}

impl Process {
    /// May this user read the memory of process `pid`, if there is one? An error says
    /// why not.
    pub fn check(root: &Root, pid: u32) -> Result<()> {
        memory(root, pid).map(drop)
    }

    /// Opens the memory of process `pid`.
    pub fn open(root: &Root, pid: u32) -> Result<Self> {
        let memory = memory(root, pid)?;
        let pagemap = Pagemap::open(root, &pid.to_string()).map_err(|error| explain(pid, error))?;
        let areas = anonymous_areas(root, pid).map_err(|error| explain(pid, error.into()))?;
        let (Some(pagemap), Some(areas)) = (pagemap, areas) else {
            return Err(Error::NoProcess(pid));
        };
        Ok(Self {
            pid,
            memory,
            pagemap,
            areas: areas.into_iter(),
            area: Area { start: 0, end: 0 },
            pending: Vec::new(),
            buffer: vec![0; BATCH * page_bytes()],
            vanished: 0,
            zero_already: 0,
        })
    }

    /// The task by which its memory is seen.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Reads the next pages into `pages`, which may be none; false at the end.
    pub fn next_batch(&mut self, pages: &mut Vec<Page>) -> Result<bool> {
        pages.clear();
        if self.pending.is_empty() && !self.look_ahead()? {
            return Ok(false);
        }
        let batch = self.pending.split_off(self.pending.len().saturating_sub(BATCH));
        let batch: Vec<(u64, Entry)> = batch.into_iter().rev().collect();
        for run in batch.chunk_by(|left, right| left.0 + page_size() == right.0) {
            self.read_run(run, pages)?;
        }
        Ok(true)
    }

    /// Pages that were there in pagemap and could not be read a moment later.
    #[must_use]
    pub fn vanished(&self) -> u64 {
        self.vanished
    }

    /// Pages of zeroes that take no memory of their own: the kernel's zero page,
    /// or one that several places share. There is nothing to save.
    #[must_use]
    pub fn zero_already(&self) -> u64 {
        self.zero_already
    }

    /// Finds pages to read; false when there are no more areas.
    fn look_ahead(&mut self) -> Result<bool> {
        while self.area.start >= self.area.end {
            match self.areas.next() {
                Some(area) => self.area = area,
                None => return Ok(false),
            }
        }
        let visit = |address, entry| self.pending.push((address, entry));
        self.pagemap.step(&mut self.area, visit).map_err(|error| explain(self.pid, error))?;
        self.pending.reverse();
        Ok(true)
    }

    /// Reads pages that follow each other, passing over those that are gone.
    fn read_run(&mut self, run: &[(u64, Entry)], pages: &mut Vec<Page>) -> Result<()> {
        let mut rest = run;
        while let Some(&(address, _)) = rest.first() {
            let buffer = &mut self.buffer[..rest.len() * page_bytes()];
            let got = match self.memory.read_at(buffer, address) {
                Ok(got) => got,
                Err(error) if is_gone(&error) => 0,
                Err(source) => {
                    let path = format!("/proc/{}/mem", self.pid).into();
                    return Err(Error::Unreadable { path, source });
                }
            };
            let whole = got / page_bytes();
            for (&(address, entry), bytes) in rest[..whole].iter().zip(buffer.chunks_exact(page_bytes())) {
                let page = page(address, bytes);
                let is_shared = entry.is_shared_anonymous();
                if page.is_zero && is_shared {
                    self.zero_already += 1;
                } else {
                    let frame = Some(entry.pfn()).filter(|&frame| frame > 0);
                    pages.push(Page { frame, is_shared, ..page });
                }
            }
            rest = &rest[whole..];
            if !rest.is_empty() && whole == 0 {
                self.vanished += 1;
                rest = &rest[1..];
            }
        }
        Ok(())
    }
}

fn memory(root: &Root, pid: u32) -> Result<File> {
    let path = root.path(format!("proc/{pid}/mem"));
    File::open(&path).map_err(|source| match source.kind() {
        ErrorKind::PermissionDenied => Error::NotAllowed(pid),
        _ if nuksm_sysroot::is_absent(&source) => Error::NoProcess(pid),
        _ => Error::Unreadable { path, source },
    })
}

/// What the kernel answers where there is no page, or no process, any more.
fn is_gone(error: &std::io::Error) -> bool {
    const EIO: i32 = 5;
    const EFAULT: i32 = 14;
    nuksm_sysroot::is_absent(error) || matches!(error.raw_os_error(), Some(EIO | EFAULT))
}

fn explain(pid: u32, error: nuksm_pagemap::Error) -> Error {
    match error {
        nuksm_pagemap::Error::File(error) if error.is_permission() => Error::NotAllowed(pid),
        nuksm_pagemap::Error::File(error) => Error::Proc(error),
        // Only a scan for merged pages needs frames or can be stopped; nothing
        // here asks for one.
        nuksm_pagemap::Error::HiddenFrames | nuksm_pagemap::Error::Stopped => Error::NotAllowed(pid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// An anonymous mapping of this process.
    struct Memory {
        start: *mut libc::c_void,
        bytes: usize,
    }

    impl Memory {
        fn new(pages: usize, flags: libc::c_int) -> Self {
            let bytes = pages * page_bytes();
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping, at an address the kernel chooses.
            let start = unsafe {
                libc::mmap(std::ptr::null_mut(), bytes, protection, flags | libc::MAP_ANONYMOUS, -1, 0)
            };
            assert_ne!(start, libc::MAP_FAILED);
            Self { start, bytes }
        }

        fn address(&self, page: usize) -> u64 {
            self.start as u64 + (page * page_bytes()) as u64
        }

        fn bytes(&mut self, page: usize) -> &mut [u8] {
            assert!((page + 1) * page_bytes() <= self.bytes);
            // SAFETY: inside the mapping (checked), which lives as long as
            // `self` and is borrowed for as long as the slice.
            unsafe {
                std::slice::from_raw_parts_mut(self.start.cast::<u8>().add(page * page_bytes()), page_bytes())
            }
        }

        fn drop_pages(&mut self, first: usize, pages: usize) {
            let start = self.bytes(first).as_mut_ptr().cast();
            // SAFETY: gives back pages of our own mapping; nobody holds a
            // reference to them.
            let answer = unsafe { libc::madvise(start, pages * page_bytes(), libc::MADV_DONTNEED) };
            assert_eq!(answer, 0);
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: the mapping is ours and not used any more.
            unsafe { libc::munmap(self.start, self.bytes) };
        }
    }

    fn read(process: &mut Process) -> BTreeMap<u64, Page> {
        let (mut pages, mut all) = (Vec::new(), BTreeMap::new());
        while process.next_batch(&mut pages).unwrap() {
            all.extend(pages.iter().map(|page| (page.address, *page)));
        }
        all
    }

    #[test]
    fn anonymous_present_pages_are_read_and_no_others() {
        let mut own = Memory::new(2000, libc::MAP_PRIVATE);
        for page in 0..1500 {
            own.bytes(page).fill(u8::try_from(page % 7).unwrap());
        }
        own.drop_pages(3, 1);
        // Reading a page that was never written maps the kernel's zero page.
        let untouched = std::hint::black_box(own.bytes(1600)[0]);
        let mut shared = Memory::new(1, libc::MAP_SHARED);
        shared.bytes(0).fill(9);

        let mut process = Process::open(&Root::default(), std::process::id()).unwrap();
        let pages = read(&mut process);
        let seen = |page| pages.get(&own.address(page));
        for page in (0..1500).filter(|page| *page != 3) {
            let found = seen(page).unwrap_or_else(|| panic!("page {page} was not seen"));
            assert_eq!(found.is_zero, page % 7 == 0, "page {page}");
            assert_eq!(found.fingerprint, seen(page % 7 + 7).unwrap().fingerprint, "page {page}");
        }
        assert_ne!(seen(1).unwrap().fingerprint, seen(2).unwrap().fingerprint);
        assert_eq!((seen(3), seen(1600), seen(1999)), (None, None, None));
        assert!(process.zero_already() > 0, "a zero page of {untouched}");
        assert!(!pages.contains_key(&shared.address(0)), "shared memory is not merged");
    }

    #[test]
    fn a_page_that_vanishes_is_passed_over() {
        let mut own = Memory::new(10, libc::MAP_PRIVATE);
        for page in 0..10 {
            own.bytes(page).fill(1);
        }
        let mut process = Process::open(&Root::default(), std::process::id()).unwrap();
        let all: Vec<(u64, Entry)> = (0..10).map(|page| (own.address(page), Entry(u64::MAX))).collect();
        // SAFETY: our own mapping; page 4 is not used from here on.
        unsafe { libc::munmap(own.bytes(4).as_mut_ptr().cast(), page_bytes()) };
        let mut pages = Vec::new();
        process.read_run(&all, &mut pages).unwrap();
        assert_eq!((pages.len(), process.vanished()), (9, 1));
        assert!(pages.iter().all(|page| page.address != own.address(4)));
    }

    #[test]
    fn a_process_that_ends_meanwhile_has_no_more_pages() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let mut process = Process::open(&Root::default(), child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(read(&mut process).is_empty());
        let error = Process::open(&Root::default(), child.id()).unwrap_err().to_string();
        assert_eq!(error, format!("there is no process {}", child.id()));
    }
}
