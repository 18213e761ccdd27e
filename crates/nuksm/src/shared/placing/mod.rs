// SPDX-License-Identifier: GPL-2.0-only
//! Placing merged pages, pass by pass: for `nuksm place` and the daemon's `[place]`.

mod executor;
mod homes;
mod kernel;
mod pass;
mod report;
mod rescan;
mod rule;

pub use homes::Homes;
pub use kernel::note as engine_note;
pub use pass::{Kind, run as pass};
pub use report::Report;
pub use rule::{PolicyName, Rule};
