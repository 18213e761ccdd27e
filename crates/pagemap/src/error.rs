// SPDX-License-Identifier: GPL-2.0-only
//! The errors of this crate.

/// What can go wrong when looking at other processes' pages.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of /proc cannot be read or understood.
    #[error(transparent)]
    File(#[from] nuksm_sysroot::Error),
    /// pagemap shows page frame numbers to privileged readers only.
    #[error("page frame numbers are hidden from this user (CAP_SYS_ADMIN is needed)")]
    HiddenFrames,
    /// Whoever asked for the look wants it no more.
    #[error("the look was stopped before its end")]
    Stopped,
}

impl From<nuksm_sysroot::Stopped> for Error {
    fn from(_: nuksm_sysroot::Stopped) -> Self {
        Self::Stopped
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
