// SPDX-License-Identifier: GPL-2.0-only
//! `/sys/kernel/mm/page_idle/bitmap`: a bit per page frame, that nobody used it since it was
//! marked so (Documentation/admin-guide/mm/idle_page_tracking.rst).

use crate::Result;
use nuksm_sysroot::Root;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Frames in a word of the bitmap.
pub const FRAMES: u64 = 64;

/// The open file.
#[derive(Debug)]
pub struct IdlePages {
    file: File,
    path: PathBuf,
}

impl IdlePages {
    /// Opens the bitmap; `None` where this kernel has none.
    pub fn open(root: &Root) -> Result<Option<Self>> {
        let path = root.path("sys/kernel/mm/page_idle/bitmap");
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => Ok(Some(Self { file, path })),
            Err(source) if nuksm_sysroot::is_absent(&source) => Ok(None),
            Err(source) => Err(nuksm_sysroot::Error::Unreadable { path, source }.into()),
        }
    }

    /// Marks frames as idle, those with a bit in `words`, of which the first is that of
    /// frame `first * FRAMES`. Others stay as they are.
    ///
    /// The kernel passes over what it cannot mark, such as all of a huge page but its first
    /// frame.
    pub fn mark(&self, first: u64, words: &[u64]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut done = 0;
        while done < bytes.len() {
            match self.file.write_at(&bytes[done..], first * 8 + done as u64) {
                Ok(0) => break,
                Ok(written) => done += written,
                Err(error) if is_behind_the_last_frame(&error) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    let path = self.path.clone();
                    return Err(nuksm_sysroot::Error::Unwritable { path, source }.into());
                }
            }
        }
        Ok(())
    }

    /// Which frames are idle still, of so many words.
    pub fn idle(&self, first: u64, words: usize) -> Result<Vec<u64>> {
        let mut bytes = vec![0; words * 8];
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], first * 8 + done as u64) {
                // Behind the last frame nothing is idle.
                Ok(0) => break,
                Ok(got) => done += got,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    let path = self.path.clone();
                    return Err(nuksm_sysroot::Error::Unreadable { path, source }.into());
                }
            }
        }
        Ok(bytes.chunks_exact(8).map(crate::entries::word).collect())
    }
}

fn is_behind_the_last_frame(error: &io::Error) -> bool {
    const ENXIO: i32 = 6;
    error.raw_os_error() == Some(ENXIO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn words_are_where_the_kernel_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        assert!(IdlePages::open(&root).unwrap().is_none(), "a kernel without");
        let path = dir.path().join("sys/kernel/mm/page_idle");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("bitmap"), [0; 80]).unwrap();
        let pages = IdlePages::open(&root).unwrap().unwrap();
        pages.mark(3, &[1 << 63, 5]).unwrap();
        assert_eq!(pages.idle(2, 4).unwrap(), [0, 1 << 63, 5, 0]);
        assert_eq!(fs::read(path.join("bitmap")).unwrap()[24..32], (1_u64 << 63).to_ne_bytes());
        assert_eq!(pages.idle(9, 3).unwrap(), [0; 3], "there are ten words");
    }

    #[test]
    fn what_is_no_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sys/kernel/mm/page_idle/bitmap")).unwrap();
        let error = IdlePages::open(&Root::at(dir.path())).unwrap_err();
        assert!(error.to_string().ends_with("page_idle/bitmap"), "{error}");
    }
}
