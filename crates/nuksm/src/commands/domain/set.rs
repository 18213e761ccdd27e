// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm domain set`: a domain for tenants that are there now.

use crate::shared::domains::{self, By, Cgroup, Label, Numbers, Pods, Rule, Rules, Target, Tenants, Wanted};
use crate::shared::output;
use anyhow::{Result, bail};
use clap::Args;
use nuksm_sysroot::Root;
use std::process::ExitCode;
use std::str::FromStr;

/// Give the cgroups of tenants a domain by hand, until they end.
///
/// What is merged across the new border is un-merged as ksmd comes by, within two scans;
/// `nuksm domain` says who is still leaving. Rules of `nuksm serve` and `nuksm domain
/// apply` leave alone what was set by hand.
///
/// TENANTS is a cgroup (`cgroup:/machine.slice/*`), a unit of systemd (unit:acme-*.service),
/// a virtual machine of libvirt or Proxmox (guest:acme-*, guest:100), or pods by their
/// Kubernetes namespace (namespace:acme) or label (label:tenant=acme, which asks crictl).
/// * and ? stand for anything, but not for a slash.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  nuksm domain set guest:acme-* acme\n  nuksm domain set namespace:* each\n  nuksm domain set unit:ci-*.service inherit"
)]
pub struct DomainSetArgs {
    /// Whose cgroups.
    #[arg(value_name = "TENANTS")]
    tenants: Tenants,
    /// A name, `own` (each cgroup its own), `each` (each namespace or label's value its
    /// own), `shared` (with all who were given none), or `inherit` (take it back).
    #[arg(value_name = "DOMAIN")]
    domain: Choice,
    /// Say what would be done, but do nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Choice {
    Inherit,
    Target(Target),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "inherit" { Ok(Self::Inherit) } else { text.parse().map(Self::Target) }
    }
}

/// Sets it.
pub fn run(root: &Root, args: &DomainSetArgs) -> Result<ExitCode> {
    domains::require(root)?;
    let text = set(root, args)?;
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn set(root: &Root, args: &DomainSetArgs) -> Result<String> {
    let target = match &args.domain {
        Choice::Inherit => Target::Own,
        Choice::Target(target) => target.clone(),
    };
    let rules = Rules {
        rules: vec![Rule { tenants: vec![args.tenants.clone()], domain: target }],
        ..Rules::default()
    };
    let (pods, labels) = rules.of_pods();
    let pods = if pods { Pods::read(root, labels)? } else { Pods::default() };
    let _turn = if args.dry_run { None } else { Some(domains::turn(root)?) };
    let cgroups = domains::look(root, &rules, &pods, true, &mut |_| {}).cgroups;
    let mut numbers = Numbers::of(&cgroups);
    let (mut text, mut failed) = (String::new(), Vec::new());
    let would = if args.dry_run { "would be " } else { "" };
    for Cgroup { path, given, wanted, .. } in &cgroups {
        let Some(wanted) = wanted else { continue };
        if given.is_none() {
            failed.push(format!(
                "/{path} counts no memory (+memory is missing in cgroup.subtree_control above it)"
            ));
            continue;
        }
        let label = choose(&args.domain, wanted, &mut numbers)?;
        let name = label.as_ref().map_or("inherit", |label| &label.name);
        let done = if args.dry_run { Ok(()) } else { Label::give(label.as_ref(), root, path) };
        match done {
            Ok(()) => text += &format!("/{path}: {would}{name}\n"),
            Err(error) => failed.push(format!("/{path}: {error:#}")),
        }
    }
    if !failed.is_empty() {
        output::print(&text)?;
        bail!("{}", failed.join("; "));
    }
    if text.is_empty() {
        bail!(
            "no cgroup is {} now: rules in /etc/nuksm.toml are for those to come ([domains])",
            args.tenants
        );
    }
    Ok(text)
}

/// What is given to a cgroup; nothing, so that it inherits.
fn choose(choice: &Choice, wanted: &Wanted, numbers: &mut Numbers) -> Result<Option<Label>> {
    if *choice == Choice::Inherit {
        return Ok(None);
    }
    let name = wanted.as_str().to_owned();
    Ok(Some(Label { by: By::Hand, given: numbers.given(wanted)?, name }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tree::tree;

    const WEB: &str = "sys/fs/cgroup/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/memory.ksm_domain";

    fn args(domain: &str, dry_run: bool) -> DomainSetArgs {
        let domain = domain.parse().unwrap();
        DomainSetArgs { tenants: "guest:web".parse().unwrap(), domain, dry_run }
    }

    #[test]
    fn a_domain_is_given_to_who_is_there_and_taken_back() {
        let (_dir, root) =
            tree(&[(WEB, "inherit\n"), ("sys/fs/cgroup/machine.slice/memory.ksm_domain", "5\n")]);
        let given = || root.text(WEB).unwrap().unwrap();
        assert!(set(&root, &args("acme", true)).unwrap().ends_with("web.scope: would be acme\n"));
        assert_eq!(given(), "inherit\n");
        if set(&root, &args("own", false)).is_err() {
            return; // Labels are for root.
        }
        assert_eq!(given(), "own\n");
        set(&root, &args("acme", false)).unwrap();
        let number: u32 = given().trim().parse().unwrap();
        set(&root, &args("acme", false)).unwrap();
        assert_eq!(given().trim().parse(), Ok(number), "a name keeps its number");
        set(&root, &args("shared", false)).unwrap();
        assert_eq!(given(), "0\n");
        set(&root, &args("inherit", false)).unwrap();
        assert_eq!(given(), "inherit\n");
        let path = WEB.trim_start_matches("sys/fs/cgroup/").trim_end_matches("/memory.ksm_domain");
        assert_eq!(Label::read(&root, path).unwrap(), None);
    }

    #[test]
    fn nobody_there_is_an_error_that_says_what_to_do() {
        let (_dir, root) = tree(&[("sys/fs/cgroup/a/memory.ksm_domain", "inherit\n")]);
        let error = set(&root, &args("own", false)).unwrap_err().to_string();
        assert!(error.contains("no cgroup is guest:web now") && error.contains("[domains]"), "{error}");
    }
}
