// SPDX-License-Identifier: GPL-2.0-only
//! How long a page is.

use std::sync::OnceLock;

/// The machine's base page size in bytes.
#[must_use]
pub fn page_size() -> u64 {
    // Asked once per page elsewhere, so the answer is kept.
    static SIZE: OnceLock<u64> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: sysconf takes a constant and touches no memory of ours.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        // Linux always answers; 4096 is what it would answer on x86-64.
        u64::try_from(size).unwrap_or(4096)
    })
}
