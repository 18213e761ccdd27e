// SPDX-License-Identifier: GPL-2.0-only
//! Looks at the machine again and again, beside whoever draws.

use crate::shared::pairs::Sharing;
use crate::shared::sample::Sample;
use anyhow::Result;
use nuksm_sysroot::Root;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// All that is known at one moment.
#[derive(Debug)]
pub struct Look {
    /// Counters, nodes and tenants.
    pub sample: Sample,
    /// Who shares with whom; `None` where that was not seen, or not recorded.
    pub sharing: Option<Sharing>,
}

impl Look {
    fn read(root: &Root) -> Result<Self> {
        let (sample, view) = Sample::read_with_view(root, &|| false)?;
        Ok(Self { sample, sharing: view.as_ref().map(Sharing::new) })
    }
}

/// Starts looking; ends with the receiver.
pub fn start(root: Root, interval: Duration) -> Receiver<Result<Look>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        while sender.send(Look::read(&root)).is_ok() {
            std::thread::sleep(interval);
        }
    });
    receiver
}
