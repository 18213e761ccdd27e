// SPDX-License-Identifier: GPL-2.0-only
//! What the operator asks for: on the command line, or in a file.

use crate::shared::lock::Lock;
use crate::shared::options::{Rate, Seconds};
use crate::shared::privilege;
use crate::shared::tenants::Tenant;
use crate::shared::view::{self, View};
use crate::shared::who::Who;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use nuksm_numafs::TaskStat;
use nuksm_sysroot::Root;
use serde::Deserialize;

/// How pages are to be placed.
#[derive(Debug, Clone, PartialEq, Eq, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// Which node should hold which part of the pages tenants share.
    #[arg(long, value_enum, default_value_t = PolicyName::Fair)]
    pub policy: PolicyName,
    /// Time between two passes.
    #[arg(long, value_name = "TIME", default_value_t = Self::default().interval)]
    pub interval: Seconds,
    /// Pages (a number) or memory (`64M`) moved per second at the most.
    #[arg(long, value_name = "RATE", default_value = "256M")]
    pub rate: Rate,
    /// Move only pages that TENANT shares; may be repeated.
    ///
    /// TENANT is a pid, or a pattern with * and ? of its name (web1, 'web*'), of its
    /// cgroup or one above it (`cgroup:/machine.slice/*`), or of its unit
    /// (unit:nginx.service).
    #[arg(long, value_name = "TENANT", alias = "pid")]
    pub only: Vec<Who>,
    /// Leave alone all pages that TENANT shares; may be repeated.
    ///
    /// While somebody cannot be read who may be one, nothing moves.
    #[arg(long, value_name = "TENANT")]
    pub exclude: Vec<Who>,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            policy: PolicyName::Fair,
            interval: Seconds(10),
            rate: Rate((256 << 20) / nuksm_pagemap::page_size()),
            only: Vec::new(),
            exclude: Vec::new(),
        }
    }
}

impl Rule {
    /// Says what is wrong before anything is touched. A single node is not: `serve`
    /// moves nothing there, so that one configuration does for all hosts.
    ///
    /// In the rule that is returned each pid is the process that has it now, and no
    /// later one. The daemon's have none: a configuration may not name any.
    pub fn check(&self, root: &Root, moving: bool) -> Result<Self> {
        view::require_ksm(root)?;
        let mut rule = self.clone();
        for who in rule.only.iter_mut().chain(&mut rule.exclude) {
            // Who has a name may come later; a pid is of somebody who is there.
            let Who::Pid(pid, start) = who else { continue };
            let Some(task) = TaskStat::read(root, *pid)? else {
                bail!("there is no process {pid}; `nuksm status` lists tenants and their pids");
            };
            *start = Some(task.start_ticks);
        }
        privilege::require(root, "placing pages", moving)?;
        Ok(rule)
    }

    /// Words for tenants that none of these is: a slip, or they come later.
    pub fn means_nobody(&self, tenants: &[Tenant]) -> Vec<String> {
        let whom = self.only.iter().chain(&self.exclude);
        whom.filter(|who| !tenants.iter().any(|tenant| who.is(tenant))).map(ToString::to_string).collect()
    }

    /// Why nothing may move, if so: an excluded tenant's pages are to stay, and nobody
    /// knows which those are when it could not be read.
    pub fn held_back(&self, view: &View) -> Option<String> {
        let may_be_excluded = |pid: u32| {
            let known = view.tenants.iter().find(|tenant| tenant.start_of(pid).is_some());
            self.exclude.iter().any(|who| match (who, known) {
                (_, Some(tenant)) => who.is(tenant),
                // Whether it is a later process of that number nobody knows, either.
                (Who::Pid(excluded, _), None) => *excluded == pid,
                (_, None) => true,
            })
        };
        let (pid, why) = view.unread.iter().find(|(pid, _)| may_be_excluded(*pid))?;
        Some(format!(
            "process {pid} may be one that is excluded, and which pages it shares could not be read: {why}"
        ))
    }

    /// Two that place by different rules would move pages to and fro for ever.
    pub fn lock(root: &Root) -> Result<Lock> {
        Lock::take(root, "place.lock", "`nuksm place` (or `nuksm serve` with [place])")
    }
}

/// The policies by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// Evenly over the nodes that have a sharer.
    Fair,
    /// By nice value: in proportion to 1/(nice + 21) of the sharers.
    Priority,
}

impl PolicyName {
    /// The word for it on the command line and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Priority => "priority",
        }
    }
}

impl From<PolicyName> for nuksm_model::Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Fair => Self::Fair,
            PolicyName::Priority => Self::Priority,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tree::tree;
    use crate::shared::view::tests::view;

    #[test]
    fn a_pid_is_the_process_that_has_it_at_the_start() {
        let stat = format!("7 (db) S {} 4711 {}", ["0"; 18].join(" "), ["0"; 30].join(" "));
        let (_dir, root) = tree(&[
            ("sys/kernel/mm/ksm/run", "1\n"),
            ("proc/self/status", "CapEff:\t000001ffffffffff\n"),
            ("proc/7/stat", &stat),
        ]);
        let rule = |pid: &str| Rule { exclude: vec![pid.parse().unwrap()], ..Rule::default() };
        assert_eq!(rule("7").check(&root, true).unwrap().exclude, [Who::Pid(7, Some(4711))]);
        let message = rule("8").check(&root, true).unwrap_err().to_string();
        assert!(message.starts_with("there is no process 8"), "{message}");
    }

    #[test]
    fn words_that_mean_nobody_are_told() {
        let rule = |only: &[&str], exclude: &[&str]| {
            let whom = |words: &[&str]| words.iter().map(|word| word.parse().unwrap()).collect();
            Rule { only: whom(only), exclude: whom(exclude), ..Rule::default() }
        };
        assert_eq!(rule(&["t1?", "10"], &["t12"]).means_nobody(&view().tenants), Vec::<String>::new());
        let words = rule(&["gama", "t11", "unit:x.service"], &["cgroup:/y*"]).means_nobody(&view().tenants);
        assert_eq!(words, ["gama", "unit:x.service", "cgroup:/y*"]);
    }

    #[test]
    fn who_was_not_read_may_be_who_is_excluded() {
        let mut view = view();
        let held_back = |view: &View, exclude: &[&str]| {
            let exclude = exclude.iter().map(|word| word.parse().unwrap()).collect();
            Rule { exclude, ..Rule::default() }.held_back(view)
        };
        assert_eq!(held_back(&view, &["t12"]), None, "all were read");
        view.unread = vec![(11, "for this test".into())];
        assert_eq!(held_back(&view, &[]), None, "nobody is excluded");
        assert_eq!(held_back(&view, &["t12", "10"]), None, "it is another one");
        let why = held_back(&view, &["t12", "t11"]).unwrap();
        assert_eq!(
            why,
            "process 11 may be one that is excluded, and which pages it shares could not be read: for this test"
        );
        view.unread = vec![(13, "so is this".into())];
        assert_eq!(held_back(&view, &["12"]), None, "another pid");
        assert!(held_back(&view, &["13"]).is_some());
        assert!(held_back(&view, &["unit:x"]).is_some(), "nobody knows what it is called");
    }
}
