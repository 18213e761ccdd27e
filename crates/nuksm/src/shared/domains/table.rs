// SPDX-License-Identifier: GPL-2.0-only
//! Who has which domain now, what each saves, and whether anything crosses a border.

use super::give::Label;
use crate::shared::output::Table;
use crate::shared::tenants::Tenant;
use crate::shared::view::View;
use anyhow::Result;
use nuksm_cgroupfs::{Default, GREATEST, Given, given};
use nuksm_sysroot::Root;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Domains by tenants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Domains {
    /// What cgroups have that were given none.
    pub default: &'static str,
    /// By number.
    pub domains: Vec<DomainRow>,
    /// What crosses borders.
    pub border: Border,
}

/// Merged pages that tenants of several domains map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Border {
    /// Of tenants that are leaving one of them: ksmd un-merges those as it comes by.
    pub leaving_pages: u64,
    /// Of others. There should be none.
    pub crossing_pages: u64,
}

/// A domain, and what is merged in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DomainRow {
    /// The kernel's number.
    pub number: u64,
    /// By which operators know it: a name, `shared`, a number, or the cgroup whose own it is.
    pub name: String,
    /// Processes in it.
    pub tenants: Vec<TenantOf>,
    /// Places that map merged pages.
    pub merged_mappings: u64,
    /// What merging saves there.
    pub saved_bytes: u64,
}

/// A process in a domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TenantOf {
    /// Its number.
    pub pid: u32,
    /// Virtual machine, container or service; else the program's name.
    pub name: String,
    /// The domain that it left, and in which some of its pages may still be merged.
    pub leaves: Option<u64>,
}

/// Names of domains, found by cgroups.
#[derive(Debug)]
pub struct Names<'a> {
    root: &'a Root,
    /// By path: what the cgroup was given, and what is written beside it.
    known: HashMap<String, (Option<Given>, Option<Label>)>,
}

impl<'a> Names<'a> {
    /// None is known yet.
    pub fn new(root: &'a Root) -> Self {
        Self { root, known: HashMap::new() }
    }

    /// The name of domain `number`, to which a process in this cgroup belongs.
    pub fn name(&mut self, cgroup: &str, number: u64) -> String {
        let mut path = cgroup.trim_matches('/');
        // The one whose own the domain is, if its own: the first that counts memory.
        let mut counts = None;
        while !path.is_empty() {
            let (given, label) = self.look(path);
            counts = counts.or(given.is_some().then(|| path.to_owned()));
            let label = label.as_ref().map(|label| label.name.clone());
            match given {
                Some(Given::Own) if number > u64::from(GREATEST) => return format!("/{path}"),
                // It may have been given another one meanwhile.
                Some(Given::Number(of)) if u64::from(*of) == number => {
                    return label.unwrap_or_else(|| plain(number));
                }
                Some(Given::Number(_) | Given::Own) => return plain(number),
                Some(Given::Inherit) | None => path = path.rsplit_once('/').map_or("", |(above, _)| above),
            }
        }
        match counts {
            Some(path) if number > u64::from(GREATEST) => format!("/{path}"),
            _ => plain(number),
        }
    }

    /// What cannot be read is not known: whoever may make cgroups can make such ones.
    fn look(&mut self, path: &str) -> &(Option<Given>, Option<Label>) {
        if !self.known.contains_key(path) {
            let label = Label::read(self.root, path).ok().flatten();
            let given = given(self.root, path).ok().flatten();
            let found = (given, label.filter(|label| label.fits(given)));
            self.known.insert(path.to_owned(), found);
        }
        &self.known[path]
    }
}

fn plain(number: u64) -> String {
    if number == 0 { "shared".into() } else { number.to_string() }
}

impl Border {
    /// Of all pages in sight.
    pub fn new(view: &View) -> Self {
        let mut border = Self::default();
        for (set, pages) in view.sets.iter().zip(view.pages_per_set()) {
            let sharers = || set.iter().map(|&tenant| &view.tenants[tenant as usize]);
            let mut domains = sharers().filter_map(|tenant| tenant.ksm.domain);
            let first = domains.next();
            if domains.all(|domain| Some(domain) == first) {
                continue;
            }
            if sharers().any(|tenant| tenant.ksm.domain_left.is_some()) {
                border.leaving_pages += pages;
            } else {
                border.crossing_pages += pages;
            }
        }
        border
    }
}

impl Domains {
    /// `None` where the kernel has none, or this user may not know who is in which.
    pub fn new(root: &Root, view: &View, page_size: u64) -> Result<Option<Self>> {
        let Some(default) = Default::read(root)? else {
            return Ok(None);
        };
        let saved = view.saved_bytes(page_size);
        let pages = view.tenant_pages(&view.pages);
        let mut names = Names::new(root);
        let mut rows = BTreeMap::<u64, DomainRow>::new();
        for ((tenant, saved), pages) in view.tenants.iter().zip(saved).zip(pages) {
            // Of one that is just ending the kernel says nothing.
            let Some(number) = tenant.ksm.domain else { continue };
            let name = names.name(&tenant.cgroup, number);
            let row =
                rows.entry(number).or_insert_with(|| DomainRow { number, name, ..DomainRow::default() });
            row.tenants.push(TenantOf::new(tenant));
            row.merged_mappings += pages.merged;
            row.saved_bytes += saved;
        }
        if rows.is_empty() && !view.tenants.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            default: default.as_str(),
            domains: rows.into_values().collect(),
            border: Border::new(view),
        }))
    }

    /// Processes some of whose pages may still be merged in a domain that they left.
    pub fn leaving(&self) -> usize {
        self.domains.iter().flat_map(|row| &row.tenants).filter(|tenant| tenant.leaves.is_some()).count()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut table = Table::new(1, ["domain", "number", "tenants", "leaving", "merged pages", "saved"]);
        for row in &self.domains {
            let leaving = row.tenants.iter().filter(|tenant| tenant.leaves.is_some()).count();
            let saved = i64::try_from(row.saved_bytes).unwrap_or(i64::MAX);
            table.row([
                row.name.clone(),
                row.number.to_string(),
                row.tenants.len().to_string(),
                leaving.to_string(),
                row.merged_mappings.to_string(),
                crate::shared::output::bytes(saved),
            ]);
        }
        table.render()
    }
}

impl TenantOf {
    fn new(tenant: &Tenant) -> Self {
        Self { pid: tenant.pid, name: tenant.name.clone(), leaves: tenant.ksm.domain_left }
    }
}
