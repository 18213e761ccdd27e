// SPDX-License-Identifier: GPL-2.0-only
//! Recordings: what `nuksm record` writes, as `nuksm report` and `nuksm top` read it.

pub mod header;
pub mod read;

pub use header::Header;
pub use read::Recording;
