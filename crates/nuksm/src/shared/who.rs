// SPDX-License-Identifier: GPL-2.0-only
//! Tenants as operators point at them: by what survives a restart, or by pid.

use crate::shared::tenants::Tenant;
use glob::Pattern;
use serde::{Deserialize, Deserializer, de};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// Which tenants are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// One process; with its start, only as long as it lives.
    Pid(u32, Option<u64>),
    /// By the name that reports show.
    Name(Pattern),
    /// Those in a cgroup, or in one below it.
    Cgroup(Pattern),
    /// Those in a unit of systemd: service, scope or slice.
    Unit(Pattern),
}

/// Levels of cgroups that are looked at: who may make cgroups may make thousands of
/// them, one in the other, and each is compared with the pattern.
const LEVELS: usize = 64;

impl Who {
    /// Is this tenant one of them?
    pub fn is(&self, tenant: &Tenant) -> bool {
        let path = tenant.cgroup.as_str();
        match self {
            Self::Pid(pid, start) => {
                tenant.start_of(*pid).is_some_and(|of_this| start.is_none_or(|start| start == of_this))
            }
            Self::Name(pattern) => pattern.matches(&tenant.name),
            Self::Cgroup(pattern) => {
                let ends = path.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0);
                ends.chain([path.len()]).take(LEVELS).any(|end| pattern.matches(&path[..end]))
            }
            Self::Unit(pattern) => path.split('/').take(LEVELS).any(|unit| pattern.matches(unit)),
        }
    }
}

impl FromStr for Who {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with(|char: char| char.is_ascii_digit())
            && text.chars().all(|char| char.is_ascii_digit())
        {
            let pid = text.parse().map(|pid| Self::Pid(pid, None));
            return pid.map_err(|_| format!("{text:?} is no process number"));
        }
        let (make, words): (fn(Pattern) -> Self, &str) = match text.split_once(':') {
            Some(("cgroup", path)) => (Self::Cgroup, path),
            Some(("unit", unit)) => (Self::Unit, unit),
            // Names of containers have a colon, too.
            _ => (Self::Name, text),
        };
        match Pattern::new(words) {
            Ok(pattern) if !words.is_empty() => Ok(make(pattern)),
            _ => Err(format!(
                "{text:?} names no tenant: write a pid, or a name (web1, web*), cgroup:/machine.slice/*, \
                 or unit:nginx.service"
            )),
        }
    }
}

impl Display for Who {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        match self {
            Self::Pid(pid, _) => write!(out, "{pid}"),
            Self::Name(pattern) => write!(out, "{pattern}"),
            Self::Cgroup(pattern) => write!(out, "cgroup:{pattern}"),
            Self::Unit(pattern) => write!(out, "unit:{pattern}"),
        }
    }
}

impl<'de> Deserialize<'de> for Who {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.parse() {
            // The file outlives the process.
            Ok(Self::Pid(..)) => Err(de::Error::custom(
                "a pid means another process once this one has ended: write a name (web1, web*), \
                 cgroup:/machine.slice/*, or unit:nginx.service",
            )),
            who => who.map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant() -> Tenant {
        Tenant {
            pid: 12,
            twins: vec![(14, 140)],
            task: 12,
            name: "docker:0123456789ab".into(),
            cgroup: "/machine.slice/docker-0123456789abcdef.scope/worker".into(),
            node: None,
            nice: 0,
            start_ticks: 120,
            ksm: nuksm_ksmfs::ProcessKsm::default(),
        }
    }

    fn is(who: &str) -> bool {
        who.parse::<Who>().unwrap().is(&tenant())
    }

    #[test]
    fn tenants_by_pid_name_cgroup_and_unit() {
        for who in [
            "12",
            "14",
            "docker:0123456789ab",
            "docker:*",
            "*",
            "cgroup:/machine.slice",
            "cgroup:/machine.slice/docker-*",
            "cgroup:/machine.slice/docker-0123456789abcdef.scope/worker",
            "unit:machine.slice",
            "unit:docker-*.scope",
        ] {
            assert!(is(who), "{who}");
        }
        for who in
            ["1", "120", "docker", "worker", "cgroup:/machine", "cgroup:machine.slice", "unit:nginx.service"]
        {
            assert!(!is(who), "{who}");
        }
    }

    #[test]
    fn a_number_that_another_process_has_by_now_is_not_this_one() {
        for (pid, start, is_it) in [(12, 120, true), (12, 121, false), (14, 140, true), (14, 120, false)] {
            assert_eq!(Who::Pid(pid, Some(start)).is(&tenant()), is_it, "{pid} since {start}");
        }
    }

    #[test]
    fn a_tenant_in_thousands_of_cgroups_takes_no_longer() {
        let deep = Tenant { cgroup: format!("/user.slice{}", "/a".repeat(2000)), ..tenant() };
        let meter = crate::shared::cost::Meter::start();
        for _ in 0..1000 {
            assert!(!"cgroup:/user.slice/*/*/*prod".parse::<Who>().unwrap().is(&deep));
        }
        // All prefixes of one of 4 KiB took 25 ms, and half an hour for all of these.
        assert!(meter.cpu_seconds() < 60.0, "{} s", meter.cpu_seconds());
        assert!("cgroup:/user.slice".parse::<Who>().unwrap().is(&deep));
    }

    #[test]
    fn what_names_nobody_is_refused() {
        for bad in ["", "cgroup:", "unit:", "web[", "99999999999"] {
            assert!(bad.parse::<Who>().is_err(), "{bad}");
        }
    }
}
