// SPDX-License-Identifier: GPL-2.0-only
//! Fingerprints of pages: equal pages have equal ones, other pages other ones.
//!
//! A fingerprint is the 64-bit XXH3 of the page. Among all pages of a host with
//! 4 TiB, two different ones have the same fingerprint with a probability of
//! 3 %: nothing to merge by, but far below what matters when pages are counted.

mod error;
mod file;
mod page;
mod process;
mod table;

pub use error::{Error, Result};
pub use file::MemoryFile;
pub use page::{Page, fingerprint};
pub use process::Process;
pub use table::{Label, TableReader, TableWriter};
