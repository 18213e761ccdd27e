// SPDX-License-Identifier: GPL-2.0-only
//! Waiting for ksmd to come by again.
//!
//! When ksmd looks for a page just while it is being moved, it forgets that
//! mapping (the page is still merged, but its reverse mapping is incomplete).
//! From then on the page cannot be moved, until ksmd meets it in its next scan
//! and takes the mapping up again.

use crate::shared::stop::Stop;
use anyhow::Result;
use nuksm_ksmfs::Ksm;
use nuksm_sysroot::Root;
use std::time::{Duration, Instant};

/// Full scans after which ksmd has surely met every page: the one under way may
/// be past it.
const SCANS: u64 = 2;
/// How long to wait for them at the most. At slow scan rates a scan takes
/// hours; what is still busy then is reported.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// Waits until ksmd has scanned everything again, if it is at work and fast
/// enough; true when `stop` came first.
pub fn wait(root: &Root, stop: &Stop) -> Result<bool> {
    let started = Instant::now();
    let goal = scans(root)?.map(|scans| scans + SCANS);
    while started.elapsed() < PATIENCE && goal.zip(scans(root)?).is_some_and(|(goal, now)| now < goal) {
        if stop.wait(POLL) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Full scans so far; `None` when ksmd is not at work.
fn scans(root: &Root) -> Result<Option<u64>> {
    let ksm = Ksm::read(root)?;
    Ok(ksm.filter(|ksm| ksm.run == Some(1)).and_then(|ksm| ksm.full_scans))
}
