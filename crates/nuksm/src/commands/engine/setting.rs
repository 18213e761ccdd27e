// SPDX-License-Identifier: GPL-2.0-only
//! What each setting is, and means.

use nuksm_ksmfs::{Choice, Engine, Setting};

/// The words that a setting can be; `None` for a number, and when this engine
/// does not have the setting.
pub fn choice(engine: &Engine, setting: Setting) -> Option<&Choice> {
    match setting {
        Setting::Index => Some(&engine.index),
        Setting::KibPerTree | Setting::LookCpuPermille | Setting::ReplicaPercent => None,
        Setting::Placement => engine.placement.as_ref(),
    }
}

/// The value of a setting; `None` when this engine does not have it.
pub fn value(engine: &Engine, setting: Setting) -> Option<String> {
    match setting {
        Setting::KibPerTree => engine.kib_per_tree.map(|kib| kib.to_string()),
        Setting::LookCpuPermille => engine.look_cpu_permille.map(|permille| permille.to_string()),
        Setting::ReplicaPercent => engine.replica_percent.map(|percent| percent.to_string()),
        _ => choice(engine, setting).map(|choice| choice.current.clone()),
    }
}

/// What a value of a setting makes the kernel do.
pub fn meaning(setting: Setting, value: &str) -> String {
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
        (Setting::LookCpuPermille, "0") => "nobody looks at merged pages: they do not follow who uses them",
        (Setting::LookCpuPermille, permille) => {
            return format!(
                "looking at merged pages takes {permille} thousandths of a CPU; they follow who uses them"
            );
        }
        (Setting::ReplicaPercent, "0") => "a merged page is on one node, however many use it",
        (Setting::ReplicaPercent, percent) => {
            return format!(
                "pages that several nodes use have a copy on each, in up to {percent} % of what merging saves"
            );
        }
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
