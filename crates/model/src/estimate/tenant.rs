// SPDX-License-Identifier: GPL-2.0-only
//! Whose pages were looked at, and how KSM is set.

/// A tenant whose pages were looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tenant {
    /// The node it belongs to; `None` when nobody knows.
    pub node: Option<u32>,
    /// Nice value.
    pub nice: i32,
    /// Pages that are not all zeroes.
    pub pages: u64,
    /// Pages that are.
    pub zero_pages: u64,
}

/// The settings of KSM that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Places that may use one merged page.
    pub max_page_sharing: u64,
    /// Do pages of zeroes become the kernel's zero page?
    pub use_zero_pages: bool,
    /// Bytes of a page.
    pub page_size: u64,
}
