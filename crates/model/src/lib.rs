// SPDX-License-Identifier: GPL-2.0-only
//! From samples to figures and plans. Pure functions: no files, no clock.

pub mod estimate;
mod plan;
mod savings;
mod shares;
mod tune;
mod unmerge;

pub use plan::{Move, Page, Plan, Room, plan};
pub use savings::{Savings, full_scan_seconds};
pub use shares::{NodeShare, Policy, Sharer, node_shares};
pub use tune::{Demand, Figures, Limits, PageCost, ScanRate, target_scan_seconds};
pub use unmerge::{NodeCost, UnmergeCost};
