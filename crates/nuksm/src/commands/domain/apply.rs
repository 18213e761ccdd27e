// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm domain apply`: the rules of a file, once or as tenants come.

use crate::shared::config::Config;
use crate::shared::domains::{self, Applying, Rules};
use crate::shared::output;
use crate::shared::stop::Stop;
use anyhow::{Context, Result};
use clap::Args;
use log::warn;
use nuksm_sysroot::Root;
use std::path::PathBuf;
use std::process::ExitCode;

/// Give cgroups the domains that the rules of a file want.
///
/// Once, or with --watch as tenants come, which is what `nuksm serve` with such a file
/// does, too. Cgroups that an earlier rule
/// gave a domain, and that none names now, inherit again; those that `nuksm domain set` gave
/// one keep it. Exit status 1 when one that a rule names could not be given its domain.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  nuksm domain apply --dry-run\n  nuksm domain apply --watch")]
pub struct DomainApplyArgs {
    /// The file, with a section [domains]: docs/configuration.md explains it.
    #[arg(long, value_name = "FILE", default_value = "/etc/nuksm.toml")]
    config: PathBuf,
    /// Go on until SIGINT or SIGTERM: a new cgroup has its domain before anybody is in it
    /// that could share. Domains stay when this ends.
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
    /// Say what would be done, but do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON instead of text; with --watch an object a line for each pass that changed
    /// anything.
    #[arg(long)]
    json: bool,
}

/// Applies them.
pub fn run(root: &Root, args: &DomainApplyArgs) -> Result<ExitCode> {
    let rules = Config::read(&args.config)?.domains;
    let rules = rules.with_context(|| format!("{} has no section [domains]", args.config.display()))?;
    if args.watch {
        return watch(root, rules, args.json);
    }
    let applied = domains::pass(root, &rules, args.dry_run)?;
    output::print_report(args.json, &applied, |applied| applied.text(args.dry_run))?;
    let well = applied.failed.is_empty() && applied.without_memory.is_empty();
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Applies them until asked to end.
fn watch(root: &Root, rules: Rules, json: bool) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let _lock = domains::lock(root)?;
    let mut applying = Applying::new(root, rules)?;
    let mut written = Ok(());
    applying.run(&stop, |passed| {
        let applied = match passed {
            Ok(applied) => applied,
            Err(error) => return warn!("{error:#}"),
        };
        let is_news = applied.default_changed || !applied.changes.is_empty() || !applied.failed.is_empty();
        if is_news && written.is_ok() {
            written = output::print_report(json, &applied, |applied| applied.text(false));
        }
    });
    output::unless_closed(written)?;
    Ok(ExitCode::SUCCESS)
}
