// SPDX-License-Identifier: GPL-2.0-only
//! Which node a tenant belongs to, when its threads wander.
//!
//! The scheduler moves unbound threads between nodes at will. Pages must not
//! follow each time: a move costs far more than a few remote accesses.

use crate::shared::tenants::Tenant;
use std::collections::HashMap;

/// Passes in a row that must see a tenant on another node before its pages
/// follow.
const PASSES: u32 = 3;

/// Tenants' nodes over the passes of one daemon.
#[derive(Debug, Default)]
pub struct Homes {
    /// By pid and start time.
    known: HashMap<(u32, u64), Home>,
}

#[derive(Debug, Clone, Copy)]
struct Home {
    node: Option<u32>,
    /// Where it was seen lately instead, and in how many passes.
    elsewhere: (Option<u32>, u32),
}

impl Homes {
    /// Replaces the node where each tenant was just seen by the one it belongs
    /// to, and forgets those that ended.
    pub fn settle(&mut self, tenants: &mut [Tenant]) {
        let mut known = HashMap::with_capacity(tenants.len());
        for tenant in tenants {
            let id = (tenant.pid, tenant.start_ticks);
            let seen = tenant.node;
            let mut home = self.known.get(&id).copied().unwrap_or(Home { node: seen, elsewhere: (None, 0) });
            if seen == home.node {
                home.elsewhere = (None, 0);
            } else {
                let passes = if home.elsewhere.0 == seen { home.elsewhere.1 + 1 } else { 1 };
                home.elsewhere = (seen, passes);
                if passes >= PASSES {
                    home = Home { node: seen, elsewhere: (None, 0) };
                }
            }
            tenant.node = home.node;
            known.insert(id, home);
        }
        self.known = known;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node that a tenant belongs to after each pass, given where each saw it.
    fn settled(homes: &mut Homes, start_ticks: u64, seen: &[u32]) -> Vec<u32> {
        let settle = |&node: &u32| {
            let ksm = nuksm_ksmfs::ProcessKsm::default();
            let mut tenants = [Tenant {
                pid: 7,
                twins: Vec::new(),
                task: 7,
                name: "t".into(),
                cgroup: String::new(),
                node: Some(node),
                nice: 0,
                start_ticks,
                ksm,
            }];
            homes.settle(&mut tenants);
            tenants[0].node.unwrap()
        };
        seen.iter().map(settle).collect()
    }

    #[test]
    fn pages_follow_a_tenant_that_stays_away_not_one_that_wanders() {
        let mut homes = Homes::default();
        assert_eq!(settled(&mut homes, 1, &[0, 1, 1, 0, 1, 1, 1, 1]), [0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(settled(&mut homes, 1, &[0, 2, 0, 2, 2, 2]), [1, 1, 1, 1, 1, 2], "three on the same node");
    }

    #[test]
    fn a_pid_used_again_is_another_tenant() {
        let mut homes = Homes::default();
        assert_eq!(settled(&mut homes, 1, &[0]), [0]);
        assert_eq!(settled(&mut homes, 2, &[1]), [1]);
        assert_eq!(homes.known.len(), 1, "those that ended are forgotten");
    }
}
