// SPDX-License-Identifier: GPL-2.0-only
//! What is written beside a cgroup's domain: its name, and who chose it; and of which domain
//! that is, as others may give the cgroup another one.

use anyhow::{Result, bail};
use nuksm_cgroupfs::{Given, LONGEST_LABEL, give, remove_label, set_label};
use nuksm_sysroot::Root;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// Who chose a cgroup's domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A rule; when none names the cgroup any more, it is given none.
    Rule,
    /// An operator, by `nuksm domain set`; rules leave it alone.
    Hand,
}

/// A domain's name, and who chose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Who did.
    pub by: By,
    /// What the cgroup was given.
    pub given: Given,
    /// The name.
    pub name: String,
}

impl FromStr for Label {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let (by, rest) = text.split_once(' ').ok_or(())?;
        let (given, name) = rest.split_once(' ').ok_or(())?;
        let by = match by {
            "rule" => By::Rule,
            "hand" => By::Hand,
            _ => return Err(()),
        };
        Ok(Self { by, given: given.parse()?, name: name.to_owned() })
    }
}

impl Display for Label {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        let by = match self.by {
            By::Rule => "rule",
            By::Hand => "hand",
        };
        write!(out, "{by} {} {}", self.given, self.name)
    }
}

impl Label {
    /// What is written beside the cgroup `path`, if it is ours.
    pub fn read(root: &Root, path: &str) -> Result<Option<Self>> {
        Ok(nuksm_cgroupfs::label(root, path)?.and_then(|text| text.parse().ok()))
    }

    /// Does the cgroup have that domain? It may have been made anew below the same name, or
    /// somebody wrote to it.
    pub fn fits(&self, given: Option<Given>) -> bool {
        given == Some(self.given)
    }

    /// Gives a cgroup a domain, or takes back what it has.
    pub fn give(label: Option<&Self>, root: &Root, path: &str) -> Result<()> {
        let text = label.map(ToString::to_string);
        let given = label.map_or(Given::Inherit, |label| label.given);
        if text.as_ref().is_some_and(|text| text.len() > LONGEST_LABEL) {
            bail!("the name of its domain is too long");
        }
        remove_label(root, path)?;
        give(root, path, given)?;
        if let Some(text) = text {
            set_label(root, path, &text)?;
        }
        Ok(())
    }
}
