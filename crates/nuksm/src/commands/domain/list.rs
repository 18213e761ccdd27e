// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm domain`: which there are.

use crate::shared::domains::{self, By, Domains, Pods, Rules};
use crate::shared::output::{self, Table};
use crate::shared::privilege;
use crate::shared::view::{self, View};
use anyhow::{Context, Result};
use log::warn;
use nuksm_sysroot::Root;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    domains: Domains,
    /// Cgroups that were given a domain, by path.
    cgroups: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    cgroup: String,
    /// `own`, or a number.
    given: String,
    /// The domain's name, if nuksm gave it.
    name: Option<String>,
    /// `rule`, `hand`, or nobody we know.
    by: Option<&'static str>,
}

/// Cgroups that fit on a screen; --json has all.
const ROWS: usize = 20;

/// Prints the list.
pub fn run(root: &Root, json: bool) -> Result<ExitCode> {
    view::require_ksm(root)?;
    domains::require(root)?;
    privilege::require(root, "seeing who is in which domain", false)?;
    let view = View::collect(root, &|| false)?;
    view.warn();
    let domains = Domains::new(root, &view, nuksm_pagemap::page_size())?
        .context("the kernel does not say who is in which domain: run it as root of the host")?;
    let report = Report { domains, cgroups: cgroups(root) };
    output::print_report(json, &report, Report::text)?;
    Ok(ExitCode::SUCCESS)
}

fn cgroups(root: &Root) -> Vec<Row> {
    let all = domains::look(root, &Rules::default(), &Pods::default(), true, &mut |_| {});
    for (cgroup, why) in &all.unread {
        warn!("{cgroup} and all below it are passed over: {why}");
    }
    let given = all.cgroups.into_iter().filter_map(|cgroup| {
        let given = cgroup.given.filter(|given| *given != nuksm_cgroupfs::Given::Inherit)?;
        let label = cgroup.label.filter(|label| label.fits(cgroup.given));
        let by = label.as_ref().map(|label| match label.by {
            By::Rule => "rule",
            By::Hand => "hand",
        });
        let name = label.map(|label| label.name);
        Some(Row { cgroup: format!("/{}", cgroup.path), given: given.to_string(), name, by })
    });
    given.collect()
}

impl Report {
    fn text(&self) -> String {
        let has = if self.domains.default == "own" { "each has its own" } else { "all share one" };
        let mut text = format!("Merge domains; of cgroups that were given none {has}\n");
        if self.domains.domains.is_empty() {
            text += "  no process that ksmd has scanned is in any (`nuksm doctor` says why)\n";
        } else {
            text += &self.domains.text();
        }
        let border = self.domains.border;
        text += &match (border.crossing_pages, border.leaving_pages) {
            (0, 0) => "Nothing is shared across a border\n".to_owned(),
            (0, leaving) => format!(
                "{leaving} pages are shared across a border, by who is leaving a domain: for two scans at most\n"
            ),
            (crossing, _) => format!("{crossing} pages are shared across a border: THERE SHOULD BE NONE\n"),
        };
        if !self.cgroups.is_empty() {
            text += "\nCgroups that were given a domain\n";
            let mut table = Table::new(4, ["cgroup", "domain", "given", "by"]);
            for row in self.cgroups.iter().take(ROWS) {
                let name = row.name.clone().unwrap_or_else(|| row.given.clone());
                table.row([row.cgroup.clone(), name, row.given.clone(), output::known(row.by)]);
            }
            text += &table.render();
            if self.cgroups.len() > ROWS {
                text += &format!("  … and {} more: --json shows all\n", self.cgroups.len() - ROWS);
            }
        }
        text + "\nWhat borders cost: nuksm estimate --domains\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::domains::Border;
    use crate::shared::domains::tests::domains;

    fn report(border: Border) -> Report {
        let row = |cgroup: &str, given: &str, name: Option<&str>, by| Row {
            cgroup: cgroup.into(),
            given: given.into(),
            name: name.map(Into::into),
            by,
        };
        Report {
            domains: Domains { border, ..domains() },
            cgroups: vec![
                row("/machine.slice/acme.scope", "77", Some("acme"), Some("rule")),
                row("/system.slice/ci.service", "own", None, None),
            ],
        }
    }

    #[test]
    fn the_text_as_users_see_it() {
        let expected = "\
Merge domains; of cgroups that were given none all share one
  domain  number  tenants  leaving  merged pages    saved
  shared       0        1        1             2  3.0 KiB
  acme        77        2        0             4  9.0 KiB
Nothing is shared across a border

Cgroups that were given a domain
  cgroup                     domain  given  by
  /machine.slice/acme.scope  acme    77     rule
  /system.slice/ci.service   own     own    -

What borders cost: nuksm estimate --domains
";
        assert_eq!(report(Border::default()).text(), expected);
    }

    #[test]
    fn what_crosses_a_border_is_told() {
        let leaving = report(Border { leaving_pages: 3, crossing_pages: 0 }).text();
        assert!(leaving.contains("3 pages are shared across a border, by who is leaving"), "{leaving}");
        let crossing = report(Border { leaving_pages: 3, crossing_pages: 2 }).text();
        assert!(crossing.contains("2 pages are shared across a border: THERE SHOULD BE NONE"), "{crossing}");
    }
}
