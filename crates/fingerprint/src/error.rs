// SPDX-License-Identifier: GPL-2.0-only
//! The errors of this crate.

use std::path::PathBuf;

/// Why memory cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process has ended, or never was.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The kernel refuses.
    #[error("this user may not look into process {0}: run as root (CAP_SYS_PTRACE is needed)")]
    NotAllowed(u32),
    /// A file of /proc cannot be read or understood.
    #[error(transparent)]
    Proc(#[from] nuksm_sysroot::Error),
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {path}")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the writer or the kernel says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file holds something else.
    #[error("{path}: {problem}")]
    WrongContent {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
