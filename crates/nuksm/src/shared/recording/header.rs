// SPDX-License-Identifier: GPL-2.0-only
//! A recording's form: lines of JSON, a header each time recording starts, then a
//! sample per line.

use crate::shared::sample::Sample;
use anyhow::Result;
use nuksm_sysroot::Root;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a recording says once, each time it is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Header {
    /// Version of the recording's form. The first field: a line is known by it.
    pub nuksm_recording: u32,
    /// Name of the host.
    pub host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Size of a page.
    pub page_bytes: u64,
    /// Seconds since 1970, UTC.
    pub start_unix_time: f64,
    /// Time between two samples.
    pub interval_seconds: u64,
}

impl Header {
    /// Of the form: 2 since its names are those of the glossary. Version 1 can be read.
    pub const VERSION: u32 = 2;
    /// How each line that holds a header begins.
    pub const MARK: &str = "{\"nuksm_recording\":";

    /// Of a recording that begins now.
    pub fn new(root: &Root, first: &Sample, interval: Duration) -> Result<Self> {
        Ok(Self {
            nuksm_recording: Self::VERSION,
            host: root.text("proc/sys/kernel/hostname")?.unwrap_or_default().trim().to_owned(),
            kernel: first.kernel.clone(),
            page_bytes: nuksm_pagemap::page_size(),
            start_unix_time: first.unix_time,
            interval_seconds: interval.as_secs(),
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn header() -> Header {
        Header {
            nuksm_recording: Header::VERSION,
            host: "big,host".into(),
            kernel: "6.12.0".into(),
            page_bytes: 4096,
            start_unix_time: 1000.0,
            interval_seconds: 10,
        }
    }

    #[test]
    fn a_header_is_known_by_its_first_field() {
        assert!(serde_json::to_string(&header()).unwrap().starts_with(Header::MARK));
    }
}
