// SPDX-License-Identifier: GPL-2.0-only
//! All places that map merged pages, in the order of page frames.

use crate::{Error, KpageFlags, Pagemap, Result, mergeable_areas, page_size};
use nuksm_sysroot::{Root, patiently, unless_stopped};
use std::cell::RefCell;

/// One place that maps a merged page: 16 bytes, because there are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Page frame number.
    pub pfn: u64,
    /// Tenant above, virtual page number below.
    place: u64,
}

/// Bits of a virtual page number: 57-bit addresses and 4 KiB pages.
const VPN_BITS: u32 = 45;

/// As many tenants as the other bits can tell apart.
const TENANTS: u32 = 1 << (u64::BITS - VPN_BITS);

impl Mapping {
    /// Tenant number `tenant` (below 2^19) maps frame `pfn` at address `addr`.
    #[must_use]
    pub fn new(pfn: u64, tenant: u32, addr: u64) -> Self {
        Self { pfn, place: (u64::from(tenant) << VPN_BITS) | (addr / page_size()) }
    }

    /// The number the caller gave the process.
    #[must_use]
    pub fn tenant(self) -> u32 {
        u32::try_from(self.place >> VPN_BITS).unwrap_or(u32::MAX)
    }

    /// Process and address in one: neighbours have neighbouring numbers.
    #[must_use]
    pub fn place(self) -> u64 {
        self.place
    }

    /// The virtual address in that process.
    #[must_use]
    pub fn addr(self) -> u64 {
        (self.place & ((1 << VPN_BITS) - 1)) * page_size()
    }
}

const TENANTS_EXPECTED: &str = "one of 524288 tenants at the most";

/// The result of looking through processes.
#[derive(Debug, Default)]
pub struct Scan {
    /// Ascending by page frame, then tenant, then address; every frame has
    /// two mappings at least.
    pub mappings: Vec<Mapping>,
    /// Pages of mergeable areas that were there and looked at.
    pub looked_at: u64,
    /// Tenants that could not be read to their end, and why.
    pub unread: Vec<(u32, nuksm_sysroot::Error)>,
}

/// What a look into one process found.
#[derive(Debug, Default)]
struct Look {
    mappings: Vec<Mapping>,
    looked_at: u64,
}

fn look_into(root: &Root, tenant: u32, pid: u32, stop: &dyn Fn() -> bool) -> Result<Look> {
    let mut look = Look::default();
    let Some(areas) = mergeable_areas(root, pid)? else {
        return Ok(look);
    };
    let Some(pagemap) = Pagemap::open(root, &pid.to_string())? else {
        return Ok(look);
    };
    for area in areas {
        let mut hidden = false;
        pagemap.walk(area, stop, |addr, entry| {
            look.looked_at += 1;
            if entry.is_shared_anonymous() {
                hidden |= entry.pfn() == 0;
                look.mappings.push(Mapping::new(entry.pfn(), tenant, addr));
            }
        })?;
        if hidden {
            return Err(Error::HiddenFrames);
        }
    }
    Ok(look)
}

/// Frames between two questions whether to stop: a read of kpageflags each, at
/// the most.
const FRAMES: u64 = 4096;

impl Scan {
    /// Looks through the mergeable areas of the processes `pids`; a process's
    /// place in that list is its tenant number. One that ended is passed over.
    ///
    /// `stop` is asked again and again, at least ten times a second; once it says
    /// true, the answer is [`Error::Stopped`].
    pub fn run(root: &Root, flags: &mut KpageFlags, pids: &[u32], stop: &dyn Fn() -> bool) -> Result<Self> {
        let mut scan = Self::default();
        let (mut next, mut in_order) = (0, true);
        let failed = RefCell::new(None);
        let jobs = (0_u32..).zip(pids).map(|(tenant, &pid)| (pid, (tenant, pid)));
        let there = root.clone();
        let looked = patiently(
            jobs,
            move |(tenant, pid), wanted| {
                if tenant >= TENANTS {
                    let found = format!("number {tenant}");
                    return Err(there.malformed(format!("proc/{pid}"), TENANTS_EXPECTED, &found).into());
                }
                look_into(&there, tenant, pid, &|| wanted.is_over())
            },
            &|| failed.borrow().is_some() || stop(),
            |number, look| {
                let look = look.unwrap_or_else(|| Err(root.unanswered(pids[number]).into()));
                match look {
                    Ok(look) => {
                        in_order &= number >= next;
                        next = number + 1;
                        scan.looked_at += look.looked_at;
                        scan.mappings.extend(look.mappings);
                    }
                    // None may keep the others from being seen.
                    Err(Error::File(error)) => {
                        scan.unread.push((u32::try_from(number).unwrap_or(u32::MAX), error));
                    }
                    Err(error) => *failed.borrow_mut() = Some(error),
                }
            },
        );
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        looked?;
        // By radix: a few sweeps, where comparing would take most of a pass's user
        // time. It is stable, so that of each frame they stay by tenant and address.
        let mut mappings = std::mem::take(&mut scan.mappings);
        let sort = move || {
            if !in_order {
                radsort::sort_by_key(&mut mappings, |mapping| mapping.place);
            }
            radsort::sort_by_key(&mut mappings, |mapping| mapping.pfn);
            mappings
        };
        scan.mappings = unless_stopped(sort, stop)?;
        scan.keep_merged(flags, stop)?;
        Ok(scan)
    }

    /// Drops frames that are not merged pages or have one known mapping only.
    fn keep_merged(&mut self, flags: &mut KpageFlags, stop: &dyn Fn() -> bool) -> Result<()> {
        let (mut kept, mut next, mut frames) = (0, 0, 0_u64);
        while next < self.mappings.len() {
            if frames % FRAMES == 0 && stop() {
                return Err(Error::Stopped);
            }
            frames += 1;
            let pfn = self.mappings[next].pfn;
            let end = next + self.mappings[next..].iter().take_while(|mapping| mapping.pfn == pfn).count();
            if end - next > 1 && flags.may_be_merged(pfn)? {
                self.mappings.copy_within(next..end, kept);
                kept += end - next;
            }
            next = end;
        }
        self.mappings.truncate(kept);
        Ok(())
    }

    /// The merged pages: the mappings of one frame each.
    pub fn pages(&self) -> impl Iterator<Item = &[Mapping]> {
        self.mappings.chunk_by(|left, right| left.pfn == right.pfn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_mapping_keeps_what_it_was_given() {
        let page = page_size();
        let mapping = Mapping::new(1 << 40, (1 << 19) - 1, ((1 << VPN_BITS) - 1) * page);
        assert_eq!(
            (mapping.pfn, mapping.tenant(), mapping.addr()),
            (1 << 40, (1 << 19) - 1, ((1 << 45) - 1) * page)
        );
        assert_eq!(size_of::<Mapping>(), 16);
    }

    /// Two processes of three pages each at page 0x10; frame 0 is this test's
    /// own page, which shows whether the KSM flag is reliable.
    fn machine(kpageflags: &[u64], words: [[u64; 3]; 2]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let page = page_size();
        fs::create_dir_all(dir.path().join("proc")).unwrap();
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        fs::write(dir.path().join("proc/kpageflags"), bytes(kpageflags)).unwrap();
        for (pid, words) in [7, 8].into_iter().zip(words) {
            let proc = dir.path().join(format!("proc/{pid}"));
            fs::create_dir(&proc).unwrap();
            let smaps = format!("{:x}-{:x} rw-p 0 00:00 0\nVmFlags: rd wr mg\n", 16 * page, 19 * page);
            fs::write(proc.join("smaps"), smaps).unwrap();
            fs::write(proc.join("pagemap"), bytes(&[&[0; 16], words.as_slice()].concat())).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    const PRESENT: u64 = 1 << 63;
    const EXCLUSIVE: u64 = 1 << 56;

    #[test]
    fn equal_frames_of_two_processes_are_found_and_strangers_are_not() {
        // Frame 1 is merged, 2 is mapped once, 3 is the zero page.
        let zero_page = 1 << 24;
        let (_dir, root) = machine(
            &[0, 0, 0, zero_page],
            [[PRESENT | 1, PRESENT | EXCLUSIVE | 2, PRESENT | 3], [PRESENT | 3, 0, PRESENT | 1]],
        );
        let mut flags = KpageFlags::for_tests(&root, false);
        let scan = Scan::run(&root, &mut flags, &[7, 8, 9], &|| false).unwrap();
        let page = page_size();
        assert_eq!(scan.looked_at, 5, "one is not there, and process 9 has ended");
        assert_eq!(scan.mappings, [Mapping::new(1, 0, 16 * page), Mapping::new(1, 1, 18 * page)]);
        assert_eq!(scan.pages().count(), 1);
    }

    #[test]
    fn one_process_that_cannot_be_read_hides_no_other() {
        let (dir, root) = machine(&[0; 4], [[PRESENT | 1; 3]; 2]);
        fs::create_dir_all(dir.path().join("proc/6/smaps")).unwrap();
        let mut flags = KpageFlags::for_tests(&root, false);
        let scan = Scan::run(&root, &mut flags, &[6, 7, 8], &|| false).unwrap();
        assert_eq!(scan.mappings.len(), 6);
        let [(0, error)] = scan.unread.as_slice() else { panic!("{:?}", scan.unread) };
        assert!(error.to_string().ends_with("/proc/6/smaps"), "{error}");
    }

    #[test]
    fn one_tenant_too_many_is_nobody_elses() {
        let (_dir, root) = machine(&[0; 4], [[PRESENT | 1; 3]; 2]);
        let mut flags = KpageFlags::for_tests(&root, false);
        let mut pids = vec![9; 1 << 19];
        (pids[0], pids[1]) = (7, 8);
        pids.push(7);
        let scan = Scan::run(&root, &mut flags, &pids, &|| false).unwrap();
        assert_eq!(scan.mappings.len(), 6);
        let [(0x8_0000, error)] = scan.unread.as_slice() else { panic!("{:?}", scan.unread) };
        assert!(
            error
                .to_string()
                .contains("proc/7: expected one of 524288 tenants at the most, found \"number 524288\""),
            "{error}"
        );
    }

    #[test]
    fn a_look_that_is_stopped_says_so() {
        let (_dir, root) = machine(&[0; 4], [[PRESENT | 1; 3]; 2]);
        let mut flags = KpageFlags::for_tests(&root, false);
        for times in 0..4 {
            // While the processes are looked into, and before the flags are read.
            let asked = std::cell::Cell::new(0);
            let stop = || asked.replace(asked.get() + 1) == times;
            assert!(matches!(Scan::run(&root, &mut flags, &[7, 8], &stop), Err(Error::Stopped)));
        }
    }

    #[test]
    fn who_does_not_answer_hides_no_other() {
        let (dir, root) = machine(&[0; 4], [[PRESENT | 1; 3]; 2]);
        let proc = dir.path().join("proc/6");
        fs::create_dir(&proc).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, proc.join("smaps"), rustix::fs::Mode::RUSR).unwrap();
        let mut flags = KpageFlags::for_tests(&root, false);
        let scan = Scan::run(&root, &mut flags, &[6, 7, 8], &|| false).unwrap();
        assert_eq!(scan.mappings.len(), 6);
        assert!(scan.mappings.is_sorted_by_key(|mapping| (mapping.pfn, mapping.place())));
        let [(0, error)] = scan.unread.as_slice() else { panic!("{:?}", scan.unread) };
        assert!(error.to_string().contains("/proc/6 does not answer"), "{error}");
        // Lets the thread that waits go.
        let _ = fs::OpenOptions::new().write(true).open(proc.join("smaps"));
    }

    #[test]
    fn hidden_frames_are_not_taken_for_frame_zero() {
        let (_dir, root) = machine(&[0], [[PRESENT; 3]; 2]);
        let mut flags = KpageFlags::for_tests(&root, false);
        assert!(matches!(Scan::run(&root, &mut flags, &[7, 8], &|| false), Err(Error::HiddenFrames)));
    }
}
