// SPDX-License-Identifier: GPL-2.0-only
//! A page, and its fingerprint.

use nuksm_pagemap::page_size;
use twox_hash::XxHash3_64;

/// Pages read at once: 2 MiB on x86-64, which fits into the second-level cache
/// of many processors and makes system calls rare.
pub const BATCH: usize = 512;

/// A page that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Its address in the process, the guest or the image.
    pub address: u64,
    /// Of its content.
    pub fingerprint: u64,
    /// All bytes are zero.
    pub is_zero: bool,
    /// The page frame, when this user may see it.
    pub frame: Option<u64>,
    /// Several places map it.
    pub is_shared: bool,
}

/// The fingerprint of any bytes.
#[must_use]
pub fn fingerprint(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The page at `address` with the content `bytes`.
pub fn page(address: u64, bytes: &[u8]) -> Page {
    Page { address, fingerprint: fingerprint(bytes), is_zero: is_zero(bytes), frame: None, is_shared: false }
}

/// Ends at the first piece that is not zero; that is the first one, mostly.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Bytes of a page, as an index.
pub fn page_bytes() -> usize {
    // A page always fits into the address space.
    usize::try_from(page_size()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_anywhere_makes_another_page() {
        let zero = vec![0; page_bytes()];
        assert!(page(0, &zero).is_zero);
        for place in [0, 1, 63, 64, 2047, page_bytes() - 1] {
            let mut other = zero.clone();
            other[place] = 1;
            let other = page(0, &other);
            assert!(!other.is_zero && other.fingerprint != fingerprint(&zero), "byte {place}");
        }
    }

    #[test]
    fn fingerprints_mean_the_same_on_every_machine() {
        // XXH3 of nothing with seed 0, as its specification has it.
        assert_eq!(fingerprint(b""), 0x2d06_8005_38d3_94c2);
    }
}
