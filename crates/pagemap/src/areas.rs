// SPDX-License-Identifier: GPL-2.0-only
//! Areas of a process that KSM may merge (`mg` among the `VmFlags` of smaps), or
//! could if they were marked.

use nuksm_sysroot::{Result, Root};

/// A range of virtual addresses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
}

/// The areas of process `pid` that are marked mergeable and in which the
/// kernel counts KSM pages (kernels before 6.7 do not count those: in which there
/// are anonymous pages at all).
///
/// `None` when the process has ended.
pub fn mergeable_areas(root: &Root, pid: u32) -> Result<Option<Vec<Area>>> {
    areas_that(root, pid, |area| area.has_ksm_pages && area.has_anonymous_pages && area.has_flag("mg"))
}

/// Flags of areas that KSM never merges, marked or not: shared, device memory,
/// made by drivers, of huge pages, or not to be kept.
const UNMERGEABLE: [&str; 8] = ["sh", "ms", "io", "pf", "de", "ht", "mm", "dp"];

/// The areas of process `pid` that have anonymous pages and that could be
/// merged: those that are marked mergeable, or all when it marks none.
///
/// `None` when the process has ended.
pub fn anonymous_areas(root: &Root, pid: u32) -> Result<Option<Vec<Area>>> {
    let mut marked = Vec::new();
    let areas = areas_that(root, pid, |area| {
        let wanted = area.has_anonymous_pages && !UNMERGEABLE.iter().any(|flag| area.has_flag(flag));
        if wanted {
            marked.push(area.has_flag("mg"));
        }
        wanted
    })?;
    let all = !marked.contains(&true);
    Ok(areas.map(|areas| {
        areas.into_iter().zip(marked).filter(|(_, is)| all || *is).map(|(area, _)| area).collect()
    }))
}

/// What smaps says of one area.
struct Details<'a> {
    has_ksm_pages: bool,
    has_anonymous_pages: bool,
    flags: &'a str,
}

impl Details<'_> {
    fn has_flag(&self, wanted: &str) -> bool {
        self.flags.split_whitespace().any(|flag| flag == wanted)
    }
}

fn areas_that(root: &Root, pid: u32, mut wanted: impl FnMut(&Details) -> bool) -> Result<Option<Vec<Area>>> {
    let path = format!("proc/{pid}/smaps");
    let mut areas = Vec::new();
    let mut current = None;
    let (mut has_ksm_pages, mut has_anonymous_pages) = (true, true);
    let is_there = root.lines(&path, |line| {
        let Some((key, value)) = line.split_once(' ') else {
            return Ok(());
        };
        if let Some(area) = parse_range(key) {
            current = Some(area);
            (has_ksm_pages, has_anonymous_pages) = (true, true);
        } else if key == "KSM:" {
            has_ksm_pages = value.trim() != "0 kB";
        } else if key == "Anonymous:" {
            has_anonymous_pages = value.trim() != "0 kB";
        } else if key == "VmFlags:" && wanted(&Details { has_ksm_pages, has_anonymous_pages, flags: value }) {
            let area = current.take();
            areas.push(area.ok_or_else(|| root.malformed(&path, "an address range before VmFlags", line))?);
        }
        Ok(())
    })?;
    Ok(is_there.then_some(areas))
}

/// `START-END` in hexadecimal, as an area's first line begins.
fn parse_range(word: &str) -> Option<Area> {
    let (start, end) = word.split_once('-')?;
    Some(Area { start: u64::from_str_radix(start, 16).ok()?, end: u64::from_str_radix(end, 16).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn areas(smaps: &str) -> Result<Option<Vec<Area>>> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/7")).unwrap();
        fs::write(dir.path().join("proc/7/smaps"), smaps).unwrap();
        mergeable_areas(&Root::at(dir.path()), 7)
    }

    #[test]
    fn only_mergeable_areas_with_ksm_pages_count() {
        let smaps = "\
1000-3000 rw-p 00000000 00:00 0      [heap]
Rss:                   8 kB
KSM:                   4 kB
VmFlags: rd wr mr mw me ac mg
3000-4000 rw-p 00000000 00:00 0
KSM:                   0 kB
VmFlags: rd wr mg
4000-5000 rw-p 00000000 00:00 0
KSM:                   4 kB
VmFlags: rd wr
7f00-8f00 rw-p 00000000 00:00 0
VmFlags: rd mg wr
8f00-ffff8f00 rw-p 00000000 00:00 0
Anonymous:             0 kB
VmFlags: rd mg wr
";
        let expected = [Area { start: 0x1000, end: 0x3000 }, Area { start: 0x7f00, end: 0x8f00 }];
        assert_eq!(
            areas(smaps).unwrap().unwrap(),
            expected,
            "the last two are an older kernel's: no KSM line"
        );
    }

    #[test]
    fn anonymous_areas_need_no_mark_but_must_be_private() {
        let smaps = "\
1000-3000 rw-p 00000000 00:00 0      [heap]
Anonymous:             4 kB
VmFlags: rd wr mr mw me ac
3000-4000 r--p 00000000 00:00 0      /usr/lib/library
Anonymous:             0 kB
VmFlags: rd mr mw me
4000-5000 rw-s 00000000 00:00 0
Anonymous:             4 kB
VmFlags: rd wr sh mr mw me ms
5000-6000 rw-p 00000000 00:00 0      /anon_hugepage
Anonymous:             4 kB
VmFlags: rd wr mr mw me de ht
6000-7000 rw-p 00000000 00:00 0
VmFlags: rd wr
";
        assert_eq!(anonymous_starts(smaps), [0x1000, 0x6000]);
    }

    #[test]
    fn who_marks_some_memory_means_that() {
        let smaps = "\
1000-3000 rw-p 00000000 00:00 0      [heap]
Anonymous:             4 kB
VmFlags: rd wr mr mw me ac
6000-7000 rw-p 00000000 00:00 0
Anonymous:             4 kB
VmFlags: rd wr mg
";
        assert_eq!(anonymous_starts(smaps), [0x6000]);
    }

    fn anonymous_starts(smaps: &str) -> Vec<u64> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/7")).unwrap();
        fs::write(dir.path().join("proc/7/smaps"), smaps).unwrap();
        let areas = anonymous_areas(&Root::at(dir.path()), 7).unwrap().unwrap();
        areas.iter().map(|area| area.start).collect()
    }

    #[test]
    fn an_ended_process_is_none_and_bad_content_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(mergeable_areas(&Root::at(dir.path()), 7).unwrap(), None);
        assert!(areas("VmFlags: rd mg\n").unwrap_err().to_string().contains("proc/7/smaps"));
    }
}
