// SPDX-License-Identifier: GPL-2.0-only
//! Who maps which merged page (`/proc/PID/smaps`, `/proc/PID/pagemap`,
//! `/proc/kpageflags`), moving pages to other nodes (`move_pages(2)`), and
//! un-merging them.

mod areas;
mod entries;
mod flags;
mod mover;
mod scan;
mod unshare;

use std::sync::OnceLock;

pub use areas::{Area, anonymous_areas, mergeable_areas};
pub use entries::{Entry, Pagemap};
pub use flags::KpageFlags;
pub use mover::{Outcome, Refusal, move_to_node, nodes_of};
pub use scan::{Mapping, Scan};
pub use unshare::{prefer_nodes, unshare};

/// What can go wrong when looking at other processes' pages.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of /proc cannot be read or understood.
    #[error(transparent)]
    File(#[from] sysroot::Error),
    /// pagemap shows page frame numbers to privileged readers only.
    #[error("page frame numbers are hidden from this user (CAP_SYS_ADMIN is needed)")]
    HiddenFrames,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

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
