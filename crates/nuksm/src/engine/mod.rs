// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm engine`: the settings of nuKSM inside the kernel.

mod report;
mod set;
mod show;

use crate::cli::{EngineArgs, EngineCommand};
use crate::view;
use anyhow::{Context, Result};
use ksmfs::{Choice, Engine, Setting};
use std::process::ExitCode;
use sysroot::Root;

pub use report::report;

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

/// The words that a setting can be; `None` for a number, and when this engine
/// does not have the setting.
fn choice(engine: &Engine, setting: Setting) -> Option<&Choice> {
    match setting {
        Setting::Index => Some(&engine.index),
        Setting::KibPerTree => None,
        Setting::Placement => engine.placement.as_ref(),
    }
}

/// The value of a setting; `None` when this engine does not have it.
fn value(engine: &Engine, setting: Setting) -> Option<String> {
    match setting {
        Setting::KibPerTree => engine.kib_per_tree.map(|kib| kib.to_string()),
        _ => choice(engine, setting).map(|choice| choice.current.clone()),
    }
}

/// What a value of a setting makes the kernel do.
fn meaning(setting: Setting, value: &str) -> String {
    let text = match (setting, value) {
        (Setting::Index, "content") => {
            "trees are ordered by content, as in stock KSM: each level reads two pages"
        }
        (Setting::Index, "checksum") => {
            "trees are ordered by checksum: contents are compared only where checksums are equal"
        }
        (Setting::KibPerTree, "0") => "one tree of each kind, as in stock KSM",
        (Setting::KibPerTree, "102400") => "a tree of each kind per 100 MiB of memory, as in the nuKSM paper",
        (Setting::KibPerTree, kib) => return format!("a tree of each kind per {kib} KiB of memory"),
        (Setting::Placement, "first") => "scan order decides on which node a page stays, as in stock KSM",
        (Setting::Placement, "fair") => {
            "the hotter copy's node wins; equally hot ones are spread evenly over their sharers' nodes"
        }
        (Setting::Placement, "priority") => {
            "each sharer's node gets pages in proportion to 1/(nice + 21) of the sharers"
        }
        // A kernel that is newer than this program.
        _ => "this nuksm does not know that one: see the kernel's documentation",
    };
    text.to_owned()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use ksmfs::Ksm;

    /// An engine with all files, of which some still hold zero.
    pub fn engine() -> Engine {
        let choice = |text: &str| Some(text.parse::<Choice>().unwrap());
        Engine {
            index: choice("content [checksum]").unwrap(),
            kib_per_tree: Some(16),
            trees: Some(16_384),
            placement: choice("first [fair] priority"),
            placed_hot: Some(12),
            placed_spread: Some(1_200),
            placed_priority: Some(0),
            placed_no_room: Some(3),
            migrated: Some(50),
            migrate_refused: Some(2),
            checksum_compares: Some(1_234_567),
            content_compares: Some(2_000),
            compared_bytes: Some(6_001_000),
            collisions: Some(1),
            last_scan_ms: Some(1_250),
            last_scan_cpu_ms: Some(800),
            ..Engine::default()
        }
    }

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
