// SPDX-License-Identifier: GPL-2.0-only
//! Which merge domain each tenant is in, or is to be.

use super::args::Borders;
use super::inputs::Candidate;
use crate::shared::config::Config;
use crate::shared::domains::{self, Names, Pods, Rules};
use anyhow::{Context, Result};
use nuksm_cgroupfs::Default;
use nuksm_ksmfs::ProcessKsm;
use nuksm_sysroot::Root;

/// Who says where a tenant belongs.
pub enum Wanted<'a> {
    /// The kernel, now.
    Kernel(&'a Root, Names<'a>),
    /// Rules, once they are applied.
    Rules(Rules, Pods),
}

impl<'a> Wanted<'a> {
    /// Rules from a file, or as it is now.
    pub fn new(root: &'a Root, borders: &Borders) -> Result<Self> {
        let Borders::Rules(path) = borders else {
            domains::require(root).context("name a file with rules: --domains=/etc/nuksm.toml")?;
            return Ok(Self::Kernel(root, Names::new(root)));
        };
        let rules = Config::read(path)?.domains;
        let rules = rules.with_context(|| format!("{} has no section [domains]", path.display()))?;
        let (pods, labels) = rules.of_pods();
        let pods = if pods { Pods::read(root, labels)? } else { Pods::default() };
        Ok(Self::Rules(rules, pods))
    }

    /// The name of a process's domain.
    pub fn domain(&mut self, candidate: &Candidate) -> Result<String> {
        let cgroup = candidate.cgroup.as_str();
        match self {
            Self::Kernel(root, names) => {
                let ksm = ProcessKsm::read(root, candidate.task)?;
                if ksm.rmap_items.is_none() {
                    return Ok(String::new()); // it has ended, and is not read
                }
                let number =
                    ksm.domain.context("the kernel does not say who is in which domain: run it as root")?;
                Ok(names.name(cgroup, number))
            }
            Self::Rules(rules, pods) => Ok(by_rules(rules, pods, cgroup)),
        }
    }
}

/// The outermost cgroup that a rule names decides, as it does when rules are applied.
fn by_rules(rules: &Rules, pods: &Pods, cgroup: &str) -> String {
    let path = cgroup.trim_matches('/');
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for end in ends.filter(|&end| end > 0) {
        match rules.wanted(&path[..end], pods) {
            Some(domains::Wanted::Own) => return format!("/{}", &path[..end]),
            Some(wanted) => return wanted.as_str().to_owned(),
            None => {}
        }
    }
    match rules.default {
        Default::Own => format!("/{path}"),
        Default::Shared => "shared".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_asked_from_the_outermost_cgroup_on() {
        let rules = |text: &str| toml::from_str::<Rules>(text).unwrap();
        let two = rules(
            "rules = [{ tenants = ['unit:x.service'], domain = 'x' }, { tenants = ['cgroup:/a'], domain = 'own' },
                      { tenants = ['cgroup:/a/b'], domain = 'never' }]",
        );
        let by = |rules: &Rules, cgroup| by_rules(rules, &Pods::default(), cgroup);
        for (cgroup, domain) in
            [("/system.slice/x.service/inside", "x"), ("/a/b", "/a"), ("/c/d", "/c/d"), ("", "/"), ("/", "/")]
        {
            assert_eq!(by(&two, cgroup), domain, "{cgroup}");
        }
        assert_eq!(by(&rules("default = 'shared'"), "/c"), "shared");
    }
}
