// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm domain`: who may share with whom.

mod apply;
mod list;
mod set;

use anyhow::Result;
use clap::{Args, Subcommand};
use nuksm_sysroot::Root;
use std::process::ExitCode;

/// Show and set merge domains: tenants of different ones never share a page.
///
/// Whoever writes to a merged page can tell by the time it takes that somebody else has a
/// page of the same content. Who does not trust each other that far belongs into different
/// domains. They are of the nuKSM engine, and properties of cgroups: what is below a cgroup
/// inherits its domain. docs/security.md says what they close, and what they do not.
///
/// Without a command, domains are listed with their tenants, what merging saves in each,
/// and whether anything crosses a border. What borders cost, `nuksm estimate --domains`
/// says: it has to read the tenants' memory.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  nuksm domain\n  nuksm domain set guest:acme-* acme\n  nuksm domain set unit:ci-*.service own\n  nuksm domain apply --config /etc/nuksm.toml --dry-run"
)]
pub struct DomainArgs {
    /// What to do.
    #[command(subcommand)]
    command: Option<DomainCommand>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum DomainCommand {
    Set(set::DomainSetArgs),
    Apply(apply::DomainApplyArgs),
}

/// Lists, sets or applies.
pub fn run(root: &Root, args: &DomainArgs) -> Result<ExitCode> {
    match &args.command {
        None => list::run(root, args.json),
        Some(DomainCommand::Set(args)) => set::run(root, args),
        Some(DomainCommand::Apply(args)) => apply::run(root, args),
    }
}
