// SPDX-License-Identifier: GPL-2.0-only
//! Which cgroups have another domain than rules want, and what they are to be given.

use super::give::{By, Label};
use super::pods::Pods;
use super::rule::{Rules, Wanted, is_unknown_pod};
use crate::shared::tenants::with_cause;
use anyhow::Result;
use log::debug;
use nuksm_cgroupfs::{GREATEST, Given, SHARED, children, given};
use nuksm_sysroot::Root;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use std::collections::BTreeMap;

/// A cgroup as it is, and as rules want it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// From the first cgroup on, without a slash at either end.
    pub path: String,
    /// What it was given; `None` when it counts no memory.
    pub given: Option<Given>,
    /// What is written beside that.
    pub label: Option<Label>,
    /// What a rule wants; `None` where none names it, or it is below one that a rule names.
    pub wanted: Option<Wanted>,
    /// It is a pod's of which nobody knows anything now: what it has stays.
    pub is_unknown: bool,
}

/// Domains by name.
#[derive(Debug, Default)]
pub struct Numbers {
    by_name: BTreeMap<String, u32>,
    taken: BTreeMap<u32, Option<String>>,
}

/// A cgroup that is to be given another domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// From the first cgroup on.
    pub cgroup: String,
    /// The domain's name, or `inherit`.
    pub domain: String,
    /// What it is given; nothing, so that it inherits, without.
    #[serde(skip)]
    label: Option<Label>,
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// In the order of paths.
    pub changes: Vec<Change>,
    /// Cgroups that a rule names, and that are as it wants.
    pub kept: usize,
    /// Cgroups that a rule names, and that count no memory: who is in them belongs where the
    /// cgroup above does.
    pub without_memory: Vec<String>,
}

/// Cgroups, as far as they could be read.
#[derive(Debug, Default)]
pub struct Looked {
    /// In the order of paths.
    pub cgroups: Vec<Cgroup>,
    /// Those that could not be, with what is below them, and why. Whoever may make cgroups
    /// can make such ones, and they keep no other from being seen.
    pub unread: Vec<(String, String)>,
    /// Cgroups that a rule names, so that an earlier rule for some below them has no say.
    pub hiding: Vec<String>,
}

/// Looks at cgroups, and calls `open` with each in which rules may name some that are to
/// come. With `all` also at those that no rule can name: an earlier one may have done.
pub fn look(root: &Root, rules: &Rules, pods: &Pods, all: bool, open: &mut dyn FnMut(&str)) -> Looked {
    let mut looked = Looked::default();
    // With whether the rules' say ends above it.
    let mut left = vec![(String::new(), false)];
    while let Some((path, is_below)) = left.pop() {
        let wanted = if is_below || path.is_empty() { None } else { rules.wanted(&path, pods) };
        if wanted.is_some() && rules.hides(&path, pods) {
            looked.hiding.push(format!("/{path}"));
        }
        let read = || anyhow::Ok((given(root, &path)?, Label::read(root, &path)?));
        let found = if path.is_empty() { Ok((None, None)) } else { read() };
        let (given, label) = match found {
            Ok(found) => found,
            Err(error) => {
                looked.unread.push((format!("/{path}"), format!("{error:#}")));
                continue;
            }
        };
        let is_set = label.as_ref().is_some_and(|label| label.by == By::Hand && label.fits(given));
        let is_below = is_below || wanted.is_some() || is_set;
        let is_open = !is_below && rules.may_name_below(&path);
        if is_open {
            open(&path);
        }
        if is_open || all {
            // The first one last, as it is taken from the end.
            match children(root, &path) {
                Ok(children) => left.extend(children.into_iter().rev().map(|child| (child, is_below))),
                Err(error) => looked.unread.push((format!("/{path}"), with_cause(&error))),
            }
        }
        if !path.is_empty() {
            let is_unknown = is_unknown_pod(&path, pods);
            looked.cgroups.push(Cgroup { path, given, label, wanted, is_unknown });
        }
    }
    looked
}

impl Numbers {
    /// Of domains that cgroups have.
    pub fn of(cgroups: &[Cgroup]) -> Self {
        let mut numbers = Self::default();
        for cgroup in cgroups {
            let label = cgroup.label.as_ref().filter(|label| label.fits(cgroup.given));
            let (Some(Given::Number(number)), Some(label)) = (cgroup.given, label) else { continue };
            // A number that another name has is not this one's.
            if numbers.taken.entry(number).or_insert_with(|| Some(label.name.clone())).as_ref()
                == Some(&label.name)
            {
                numbers.by_name.entry(label.name.clone()).or_insert(number);
            }
        }
        // Those that somebody wrote by himself are no name's, unless one has it already.
        for cgroup in cgroups {
            if let Some(Given::Number(number)) = cgroup.given {
                numbers.taken.entry(number).or_insert(None);
            }
        }
        numbers
    }

    /// The number of a domain that has this name; a new one if there is none yet. By chance:
    /// one that was given before may have pages yet.
    pub fn number(&mut self, name: &str) -> Result<u32> {
        if let Some(number) = self.by_name.get(name) {
            return Ok(*number);
        }
        loop {
            let mut bytes = [0; 4];
            getrandom(&mut bytes[..], GetRandomFlags::empty())?;
            let number = u32::from_ne_bytes(bytes) & GREATEST;
            if number != SHARED && !self.taken.contains_key(&number) {
                self.taken.insert(number, Some(name.to_owned()));
                self.by_name.insert(name.to_owned(), number);
                return Ok(number);
            }
        }
    }

    /// What gives a cgroup this domain.
    pub fn given(&mut self, wanted: &Wanted) -> Result<Given> {
        Ok(match wanted {
            Wanted::Shared => Given::Number(SHARED),
            Wanted::Own => Given::Own,
            Wanted::Named(name) => Given::Number(self.number(name)?),
        })
    }
}

impl Plan {
    /// What makes these as their rules want them.
    pub fn new(cgroups: &[Cgroup]) -> Result<Self> {
        let (mut plan, mut numbers) = (Self::default(), Numbers::of(cgroups));
        for cgroup in cgroups {
            plan.add(cgroup, &mut numbers)?;
        }
        Ok(plan)
    }

    fn add(&mut self, cgroup: &Cgroup, numbers: &mut Numbers) -> Result<()> {
        let path = format!("/{}", cgroup.path);
        match (&cgroup.label, &cgroup.wanted) {
            (Some(label @ Label { by: By::Hand, name, .. }), wanted) if label.fits(cgroup.given) => {
                if let Some(wanted) = wanted.as_ref().filter(|wanted| wanted.as_str() != name) {
                    debug!("{path} stays {name}, as it was set; a rule says {}", wanted.as_str());
                }
            }
            (_, Some(_)) if cgroup.given.is_none() => self.without_memory.push(path),
            (_, None) if cgroup.is_unknown => {}
            (label, Some(wanted)) => {
                let given = numbers.given(wanted)?;
                let name = wanted.as_str().to_owned();
                let wanted = Label { by: By::Rule, given, name: name.clone() };
                if cgroup.given == Some(given) && label.as_ref() == Some(&wanted) {
                    self.kept += 1;
                } else {
                    self.changes.push(Change { cgroup: path, domain: name, label: Some(wanted) });
                }
            }
            (Some(_), None) if cgroup.given.is_some() => {
                self.changes.push(Change { cgroup: path, domain: "inherit".into(), label: None });
            }
            (_, None) => {}
        }
        Ok(())
    }
}

impl Change {
    /// Carries it out.
    pub fn make(&self, root: &Root) -> Result<()> {
        Label::give(self.label.as_ref(), root, self.cgroup.trim_start_matches('/'))
    }
}
