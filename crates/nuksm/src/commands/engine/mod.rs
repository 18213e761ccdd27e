// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm engine`: the settings of nuKSM inside the kernel.

mod set;
mod setting;
mod show;

use crate::shared::view;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use nuksm_ksmfs::Engine;
use nuksm_sysroot::Root;
use set::EngineSetArgs;
use std::process::ExitCode;

/// Show or change how the engine works, on a kernel that has it.
///
/// The engine is nuKSM inside the kernel (`CONFIG_NUKSM`): it chooses the node
/// of a page while it merges it, and finds equal pages in a forest of trees.
/// Without a command, its settings are shown; what it has done so far is in
/// `nuksm status`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  nuksm engine\n  nuksm engine set placement=priority")]
pub struct EngineArgs {
    /// What to do; `show` when not given.
    #[command(subcommand)]
    pub command: Option<EngineCommand>,
}

/// The commands of `engine`.
#[derive(Debug, Subcommand)]
pub enum EngineCommand {
    /// Show each setting, what it means now, and what else it can be.
    #[command(after_help = "Example: nuksm engine show (for programs: nuksm status --json | jq .engine)")]
    Show,
    /// Change settings; all of them, or none when the kernel refuses one.
    ///
    /// placement=first|fair|priority decides on which node a page stays when it
    /// is merged: where scan order leaves it, evenly over its sharers' nodes
    /// (hotter copies first), or by their nice values. It can change at any
    /// time, for new merges; `nuksm place` corrects older ones.
    ///
    /// index=content|checksum is the order of pages in a tree; checksum reads
    /// far less memory. `kib_per_tree=KIB` is the memory per tree: 16 is the
    /// default, 102400 the paper's, 0 makes one tree; with index=content that is
    /// stock KSM. Both can change only while KSM tracks no page at all: write 2
    /// to /sys/kernel/mm/ksm/run first, which un-merges everything and takes as
    /// much free memory as was saved, and 1 afterwards.
    ///
    /// Settings last until the next boot. Needs root.
    #[command(
        after_help = "Examples:\n  nuksm engine set placement=priority\n  nuksm engine set --dry-run index=checksum kib_per_tree=102400"
    )]
    Set(EngineSetArgs),
}

/// Shows or changes the settings.
pub fn run(root: &Root, args: &EngineArgs) -> Result<ExitCode> {
    let ksm = view::require_ksm(root)?;
    let engine = Engine::read(root)?
        .context("this kernel has no nuKSM engine; `nuksm place` corrects placement on any kernel")?;
    match &args.command {
        None | Some(EngineCommand::Show) => show::run(&engine),
        Some(EngineCommand::Set(args)) => set::run(root, &ksm, &engine, args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuksm_ksmfs::Ksm;

    #[test]
    fn a_stock_kernel_is_told_from_one_without_ksm() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let message = || run(&root, &EngineArgs { command: None }).unwrap_err().to_string();
        assert!(message().contains("CONFIG_KSM=y"), "{}", message());
        std::fs::create_dir_all(dir.path().join("sys/kernel/mm/ksm")).unwrap();
        assert!(Ksm::read(&root).unwrap().is_some());
        assert!(message().contains("`nuksm place` corrects placement on any kernel"), "{}", message());
    }
}
