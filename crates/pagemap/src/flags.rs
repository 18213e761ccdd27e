// SPDX-License-Identifier: GPL-2.0-only
//! `/proc/kpageflags`: one 64-bit word per page frame
//! (Documentation/admin-guide/mm/pagemap.rst).

use crate::entries::word;
use crate::{Error, Pagemap, Result, page_size};
use nuksm_sysroot::Root;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const HUGE: u64 = 1 << 17;
const NOPAGE: u64 = 1 << 20;
const KSM: u64 = 1 << 21;
const THP: u64 = 1 << 22;
const ZERO_PAGE: u64 = 1 << 24;

/// Words read at once: enough to make a dense run cheap, few enough that
/// scattered frames do not make the kernel look at many that nobody asked for.
const WINDOW: usize = 64;

/// The open file, a window of it, and whether its KSM flag can be believed.
#[derive(Debug)]
pub struct KpageFlags {
    file: File,
    path: PathBuf,
    window_start: u64,
    window: Vec<u64>,
    ksm_flag_reliable: bool,
}

impl KpageFlags {
    /// Opens the file and tries the KSM flag on a page of our own, written a
    /// moment ago: it cannot be merged yet, so a flag there is a lie.
    pub fn open(root: &Root) -> Result<Self> {
        let mut flags = Self::with(root, true)?;
        let own = flags.word(own_page_frame(root)?)?;
        flags.ksm_flag_reliable = own & KSM == 0;
        Ok(flags)
    }

    fn with(root: &Root, ksm_flag_reliable: bool) -> Result<Self> {
        let path = root.path("proc/kpageflags");
        let file = File::open(&path)
            .map_err(|source| nuksm_sysroot::Error::Unreadable { path: path.clone(), source })?;
        Ok(Self { file, path, window_start: 0, window: Vec::new(), ksm_flag_reliable })
    }

    /// A fake tree has no page of this process to try the flag on.
    #[cfg(test)]
    pub(crate) fn for_tests(root: &Root, ksm_flag_reliable: bool) -> Self {
        Self::with(root, ksm_flag_reliable).unwrap()
    }

    /// False on kernels (6.12 among them) that set the KSM flag on every
    /// anonymous page.
    #[must_use]
    pub fn ksm_flag_reliable(&self) -> bool {
        self.ksm_flag_reliable
    }

    /// Can the page in frame `pfn`, mapped at several places, be a merged one?
    ///
    /// Exact where the KSM flag is reliable. Elsewhere pages that a fork
    /// shares pass as well. Ask in ascending order: that makes it cheap.
    pub fn may_be_merged(&mut self, pfn: u64) -> Result<bool> {
        let wanted = if self.ksm_flag_reliable { KSM } else { 0 };
        Ok(self.word(pfn)? & (KSM & wanted | HUGE | NOPAGE | THP | ZERO_PAGE) == wanted)
    }

    fn word(&mut self, pfn: u64) -> Result<u64> {
        let index = |start: u64| usize::try_from(pfn.wrapping_sub(start)).unwrap_or(usize::MAX);
        if index(self.window_start) >= self.window.len() {
            let mut bytes = [0; WINDOW * 8];
            let got = self.file.read_at(&mut bytes, pfn * 8).map_err(|source| {
                Error::File(nuksm_sysroot::Error::Unreadable { path: self.path.clone(), source })
            })?;
            self.window_start = pfn;
            self.window.clear();
            self.window.extend(bytes[..got].chunks_exact(8).map(word));
        }
        // Behind the last page frame there is no page.
        Ok(self.window.get(index(self.window_start)).copied().unwrap_or(NOPAGE))
    }
}

/// The frame of a private page of this process.
fn own_page_frame(root: &Root) -> Result<u64> {
    let page = page_size();
    let memory = vec![1_u8; usize::try_from(2 * page).unwrap_or(0)];
    let addr = (memory.as_ptr() as u64).next_multiple_of(page);
    let pagemap = Pagemap::open(root, "self")?;
    let entry = pagemap.map(|pagemap| pagemap.entry(addr)).transpose()?.flatten();
    // Keep the page mapped (and written) until it has been looked up.
    std::hint::black_box(&memory);
    match entry.map_or(0, crate::Entry::pfn) {
        0 => Err(Error::HiddenFrames),
        pfn => Ok(pfn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn flags(words: &[u64], ksm_flag_reliable: bool) -> (tempfile::TempDir, KpageFlags) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        fs::write(dir.path().join("proc/kpageflags"), bytes).unwrap();
        let flags = KpageFlags::for_tests(&Root::at(dir.path()), ksm_flag_reliable);
        (dir, flags)
    }

    #[test]
    fn a_reliable_flag_decides() {
        let mut words = vec![0; 300];
        words[3] = KSM;
        words[200] = KSM;
        words[201] = KSM | ZERO_PAGE;
        let (_dir, mut flags) = flags(&words, true);
        let merged: Vec<u64> = (0..400).filter(|&pfn| flags.may_be_merged(pfn).unwrap()).collect();
        assert_eq!(merged, [3, 200]);
        assert!(flags.may_be_merged(3).unwrap(), "going back works, too");
    }

    #[test]
    fn an_unreliable_flag_is_not_looked_at() {
        let (_dir, mut flags) = flags(&[0, KSM, KSM | THP, HUGE, ZERO_PAGE, NOPAGE], false);
        let merged: Vec<u64> = (0..10).filter(|&pfn| flags.may_be_merged(pfn).unwrap()).collect();
        assert_eq!(merged, [0, 1]);
    }

    #[test]
    fn hidden_frames_are_an_error_that_says_so() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        fs::write(dir.path().join("proc/kpageflags"), [0; 64]).unwrap();
        fs::write(dir.path().join("proc/self/pagemap"), []).unwrap();
        let error = KpageFlags::open(&Root::at(dir.path())).unwrap_err();
        assert!(error.to_string().contains("CAP_SYS_ADMIN"), "{error}");
    }
}
