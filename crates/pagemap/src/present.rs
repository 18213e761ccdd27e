// SPDX-License-Identifier: GPL-2.0-only
//! `PAGEMAP_SCAN` (Linux 6.7; Documentation/admin-guide/mm/pagemap.rst): where
//! a process has pages, without a look at each place where it has none.
//!
//! Anybody may map 16 TiB and touch a page of it; pagemap has a word for each
//! of the four thousand million pages that are not there.

use crate::{Area, page_size};
use linux_raw_sys::general::{PAGE_IS_FILE, PAGE_IS_PRESENT, page_region, pm_scan_arg};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u32 = rustix::ioctl::opcode::read_write::<pm_scan_arg>(b'f', 16);

/// Regions that one call tells of: what the kernel collects at once.
const REGIONS: usize = 512;

/// Absent pages between two regions that are read with them: as dear as another
/// call of the kernel.
const GAP: u64 = 64;

/// Finds the first anonymous pages of `area`, up to `pages` of them and, where
/// they lie close together, the gaps between them; and says up to which address
/// there are no others. `None` on kernels that cannot say.
pub fn present(pagemap: &File, area: Area, pages: u64) -> io::Result<Option<(Vec<Area>, u64)>> {
    let mut regions = [page_region { start: 0, end: 0, categories: 0 }; REGIONS];
    let anonymous = u64::from(PAGE_IS_PRESENT | PAGE_IS_FILE);
    let mut arg = pm_scan_arg {
        size: size_of::<pm_scan_arg>() as u64,
        flags: 0,
        start: area.start,
        end: area.end,
        walk_end: 0,
        vec: regions.as_mut_ptr() as u64,
        vec_len: REGIONS as u64,
        max_pages: pages,
        category_inverted: PAGE_IS_FILE.into(),
        category_mask: anonymous,
        category_anyof_mask: 0,
        return_mask: anonymous,
    };
    // SAFETY: the kernel reads and writes `arg`, which is as large as it says,
    // and writes up to `vec_len` regions to `vec`; both live on.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN.into(), &raw mut arg) };
    let Ok(found) = usize::try_from(found) else {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENOTTY) { Ok(None) } else { Err(error) };
    };
    Ok(Some((join(&regions[..found]), arg.walk_end)))
}

fn join(regions: &[page_region]) -> Vec<Area> {
    let mut areas = Vec::<Area>::new();
    for region in regions {
        match areas.last_mut().filter(|last| region.start - last.end <= GAP * page_size()) {
            Some(last) => last.end = region.end,
            None => areas.push(Area { start: region.start, end: region.end }),
        }
    }
    areas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_joined_over_small_gaps_only() {
        let page = page_size();
        let region = |(start, end)| page_region { start: start * page, end: end * page, categories: 0 };
        let regions = [(1, 2), (2, 3), (67, 68), (133, 140)].map(region);
        let areas = join(&regions);
        let pages: Vec<_> = areas.iter().map(|area| (area.start / page, area.end / page)).collect();
        assert_eq!(pages, [(1, 68), (133, 140)]);
    }
}
