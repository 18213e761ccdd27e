// SPDX-License-Identifier: GPL-2.0-only
//! Un-merging pages of another process, without writing to them.
//!
//! `process_vm_readv(2)` pins each page it reads from, and the kernel pins no
//! anonymous page that others share: it first gives this process a copy of its
//! own (`gup_must_unshare`, Linux 5.19), under the locks that any fault takes.
//! See docs/decisions/0007.

use crate::{Outcome, Refusal};
use std::io;

/// What one call of the kernel takes at the most.
const IOV_MAX: usize = 1024;

/// Reads a byte of each page of process `pid` at `addrs`, so that the kernel
/// gives it pages of its own where it shares them; one outcome per page.
///
/// `Ok` says that the page was read. Whether the kernel un-merged it is seen in
/// pagemap: kernels before 5.19 do not. Pages that are not there any more are
/// refusals, as is memory without the right to read.
#[must_use]
pub fn unshare(pid: u32, addrs: &[u64]) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(addrs.len());
    while outcomes.len() < addrs.len() {
        let open = &addrs[outcomes.len()..];
        match read_bytes(pid, &open[..open.len().min(IOV_MAX)]) {
            // Reading ends at the first page that cannot be read: it fails
            // itself when it is the first of the next call.
            Ok(read @ 1..) => outcomes.extend(std::iter::repeat_n(Ok(()), read)),
            Ok(0) => outcomes.push(Err(Refusal::Unmerged)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EFAULT) => outcomes.push(Err(Refusal::Unmerged)),
                Some(libc::ESRCH) => outcomes.resize(addrs.len(), Err(Refusal::Exited)),
                Some(libc::EPERM) => outcomes.resize(addrs.len(), Err(Refusal::Denied)),
                Some(libc::ENOMEM) => outcomes.push(Err(Refusal::NoMemory)),
                _ => outcomes.push(Err(Refusal::Busy)),
            },
        }
    }
    outcomes
}

/// Reads a byte at each address; says at how many of them, in order.
fn read_bytes(pid: u32, addrs: &[u64]) -> io::Result<usize> {
    let mut bytes = vec![0_u8; addrs.len()];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote: Vec<libc::iovec> = addrs
        .iter()
        .map(|&addr| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(usize::try_from(addr).unwrap_or(0)),
            iov_len: 1,
        })
        .collect();
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let count = libc::c_ulong::try_from(remote.len()).unwrap_or(0);
    // SAFETY: the kernel writes to `bytes` alone, which is as long as `local`
    // says; the remote addresses are of the other process, which the kernel
    // checks, and are only read.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), count, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// On which node this thread's new pages should be, unless the memory they are
/// for has a policy of its own: `nodes` in turn, the only one, or (when there
/// are none) where the thread runs. A node without room is not insisted on.
pub fn prefer_nodes(nodes: &[u32]) -> io::Result<()> {
    const BITS: u32 = u64::BITS;
    let mode = match nodes {
        [] => libc::MPOL_DEFAULT,
        [_] => libc::MPOL_PREFERRED,
        _ => libc::MPOL_INTERLEAVE,
    };
    let words = nodes.iter().max().map_or(0, |&last| last / BITS + 1);
    let mut mask = vec![0_u64; usize::try_from(words).unwrap_or(0)];
    for &node in nodes {
        mask[usize::try_from(node / BITS).unwrap_or(0)] |= 1 << (node % BITS);
    }
    // The kernel reads one bit less than it is told there are.
    let bits = if mask.is_empty() { 0 } else { words * BITS + 1 };
    let mask = if mask.is_empty() { std::ptr::null() } else { mask.as_ptr() };
    // SAFETY: the kernel reads `bits` - 1 bits of `mask`, which has as many.
    let answer = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, libc::c_ulong::from(bits)) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_there_stops_none_behind_it() {
        let byte = 7_u8;
        let here = (&raw const byte) as u64;
        let outcomes = unshare(std::process::id(), &[here, 0, here]);
        assert_eq!(outcomes, [Ok(()), Err(Refusal::Unmerged), Ok(())]);
    }

    #[test]
    fn more_pages_than_one_call_takes() {
        let byte = 7_u8;
        let addrs = vec![(&raw const byte) as u64; 2 * IOV_MAX + 1];
        assert_eq!(unshare(std::process::id(), &addrs), vec![Ok(()); 2 * IOV_MAX + 1]);
    }

    #[test]
    fn a_process_that_ended_is_told_from_a_page_that_is_gone() {
        assert_eq!(unshare(0x7fff_fff0, &[0x1000, 0x2000]), [Err(Refusal::Exited); 2]);
    }
}
