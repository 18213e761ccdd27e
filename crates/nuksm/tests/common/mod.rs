// SPDX-License-Identifier: GPL-2.0-only
//! What several of these tests need.

use std::process::Child;

/// A process that ends with its test, whatever becomes of that.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
