// SPDX-License-Identifier: GPL-2.0-only
//! How long a page is.

/// The machine's base page size in bytes.
#[must_use]
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
