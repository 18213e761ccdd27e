// SPDX-License-Identifier: GPL-2.0-only
//! Merge domains: which cgroup is to have which one, by rules, and who has which now.
//!
//! A rule names tenants by what makes their cgroups, and a domain; the first rule that
//! names a cgroup decides. What is below that cgroup inherits its domain and is not looked
//! into: whoever may make cgroups of his own there could call them anything.

mod apply;
mod give;
mod kernel;
mod plan;
mod pods;
mod rule;
mod table;
#[cfg(test)]
pub mod tests;

pub use apply::{Applied, Applying, lock, pass, turn};
pub use give::{By, Label};
pub use kernel::{INSTEAD, require};
pub use plan::{Cgroup, Numbers, look};
pub use pods::Pods;
pub use rule::{Rule, Rules, Target, Tenants, Wanted};
pub use table::{Border, Domains, Names};
