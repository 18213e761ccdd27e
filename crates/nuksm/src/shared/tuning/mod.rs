// SPDX-License-Identifier: GPL-2.0-only
//! ksmd as fast as it is worth, within what the operator allows: for `nuksm tune`
//! and the daemon's `[tune]`. The rule is `nuksm_model::tune`; docs/tuning.md explains it.

mod daemon;
mod report;
mod rule;
mod state;

pub use daemon::Daemon;
pub use report::Change;
pub use rule::Rule;
pub use state::Original;
