// SPDX-License-Identifier: GPL-2.0-only
//! `move_pages(2)`: moving pages with all their sharers, and asking where
//! pages are.

use std::io;

/// Why a page did not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// In use (pinned, under I/O, locked) each time it was tried.
    Busy,
    /// A capability or the cpuset of the process forbids it.
    Denied,
    /// The node had no free page.
    NoMemory,
    /// No page there any more, or not a merged one.
    Unmerged,
    /// The process ended.
    Exited,
    /// The process kept the kernel waiting: what became of the page is not known.
    NoAnswer,
}

impl Refusal {
    /// The word for it in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Denied => "denied",
            Self::NoMemory => "no_memory",
            Self::Unmerged => "unmerged",
            Self::Exited => "exited",
            Self::NoAnswer => "no_answer",
        }
    }

    fn from_errno(errno: i32) -> Self {
        match errno {
            libc::EACCES | libc::EPERM | libc::ENODEV => Self::Denied,
            libc::ENOMEM => Self::NoMemory,
            libc::ENOENT | libc::EFAULT => Self::Unmerged,
            libc::ESRCH => Self::Exited,
            _ => Self::Busy,
        }
    }
}

/// What became of one page.
pub type Outcome = Result<(), Refusal>;

/// Calls in a row that may achieve nothing before what is left counts as busy:
/// a page that is merely being looked at is free a moment later.
const PATIENCE: usize = 3;

/// Moves the pages of process `pid` at `addrs` to `node`, for all their sharers
/// (`MPOL_MF_MOVE_ALL`); one outcome per page.
///
/// A page that cannot be moved makes the kernel stop early and keep back the
/// status of pages it did move. So undone pages are looked for where they
/// should be, and those that are not there are handed over again.
#[must_use]
pub fn move_to_node(pid: u32, addrs: &[u64], node: u32) -> Vec<Outcome> {
    let mut outcomes = vec![Err(Refusal::Busy); addrs.len()];
    let mut open: Vec<usize> = (0..addrs.len()).collect();
    let mut patience = PATIENCE;
    while !open.is_empty() && patience > 0 {
        let pages: Vec<u64> = open.iter().map(|&index| addrs[index]).collect();
        for (&index, outcome) in open.iter().zip(move_once(pid, &pages, node)) {
            outcomes[index] = outcome;
        }
        let before = open.len();
        open.retain(|&index| outcomes[index] == Err(Refusal::Busy));
        if open.len() == before {
            patience -= 1;
        }
    }
    outcomes
}

/// One call, and a look at what it left undone.
fn move_once(pid: u32, addrs: &[u64], node: u32) -> Vec<Outcome> {
    let targets = vec![i32::try_from(node).unwrap_or(-1); addrs.len()];
    let mut status = vec![UNDONE; addrs.len()];
    if let Err(error) = move_pages(pid, addrs, Some(&targets), &mut status) {
        return vec![Err(Refusal::from_errno(error.raw_os_error().unwrap_or(0))); addrs.len()];
    }
    let undone: Vec<usize> = (0..addrs.len()).filter(|&index| status[index] == UNDONE).collect();
    if !undone.is_empty() {
        let pages: Vec<u64> = undone.iter().map(|&index| addrs[index]).collect();
        let mut now = vec![UNDONE; undone.len()];
        if move_pages(pid, &pages, None, &mut now).is_ok() {
            for (&index, &now) in undone.iter().zip(&now) {
                status[index] = now;
            }
        }
    }
    let outcome = |&status: &i32| match u32::try_from(status) {
        Ok(at) if at == node => Ok(()),
        Ok(_) => Err(Refusal::Busy),
        Err(_) if status == UNDONE => Err(Refusal::Busy),
        Err(_) => Err(Refusal::from_errno(-status)),
    };
    status.iter().map(outcome).collect()
}

/// The node of each page of process `pid` at `addrs`; `None` where there is no
/// page (any more).
#[must_use]
pub fn nodes_of(pid: u32, addrs: &[u64]) -> Vec<Option<u32>> {
    let mut status = vec![UNDONE; addrs.len()];
    match move_pages(pid, addrs, None, &mut status) {
        Ok(()) => status.into_iter().map(|node| u32::try_from(node).ok()).collect(),
        Err(_) => vec![None; addrs.len()],
    }
}

/// What no kernel writes as a status: neither a node nor an error.
const UNDONE: i32 = i32::MIN;

fn move_pages(pid: u32, addrs: &[u64], nodes: Option<&[i32]>, status: &mut [i32]) -> io::Result<()> {
    assert!(addrs.len() == status.len() && nodes.is_none_or(|nodes| nodes.len() == addrs.len()));
    let nodes = nodes.map_or(std::ptr::null(), <[i32]>::as_ptr);
    // SAFETY: the three arrays have `addrs.len()` elements each (checked
    // above; `nodes` may be null, which only asks), the kernel writes to
    // `status` alone, and addresses are those of the other process, which the
    // kernel checks.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            addrs.len(),
            addrs.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            MPOL_MF_MOVE_ALL,
        )
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// From the kernel's uapi header mempolicy.h.
const MPOL_MF_MOVE_ALL: libc::c_int = 1 << 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_told_from_a_busy_page() {
        // No process has this pid: it is above the kernel's largest.
        let outcomes = move_to_node(0x7fff_fff0, &[0x1000, 0x2000], 0);
        assert_eq!(outcomes, [Err(Refusal::Exited); 2]);
        assert_eq!(nodes_of(0x7fff_fff0, &[0x1000]), [None]);
    }

    #[test]
    fn errors_of_the_kernel_have_names() {
        let name = |errno| Refusal::from_errno(errno).as_str();
        assert_eq!(name(libc::EACCES), "denied");
        assert_eq!(name(libc::EBUSY), "busy");
        assert_eq!(name(libc::ENOENT), "unmerged");
        assert_eq!(name(libc::ENOMEM), "no_memory");
    }
}
