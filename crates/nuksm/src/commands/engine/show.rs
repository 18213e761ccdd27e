// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm engine show`: each setting, as one would set it.

use super::setting::{choice, meaning, value};
use crate::shared::output;
use anyhow::Result;
use nuksm_ksmfs::{Engine, Setting};
use std::process::ExitCode;

/// Prints the settings.
pub fn run(engine: &Engine) -> Result<ExitCode> {
    output::print(&text(engine))?;
    Ok(ExitCode::SUCCESS)
}

/// What a setting can be that is a number.
fn numbers(setting: Setting) -> &'static str {
    match setting {
        Setting::LookCpuPermille => "0 for no looks, 5 by default, up to 1000",
        Setting::ReplicaPercent => "0 for no replicas, the default, up to 100",
        _ => "0 for one tree, 16 by default, 102400 in the paper",
    }
}

fn text(engine: &Engine) -> String {
    let mut text = String::new();
    for setting in Setting::ALL.into_iter().rev() {
        let Some(value) = value(engine, setting) else {
            text += &format!("this kernel's engine has no {}\n\n", setting.name());
            continue;
        };
        let possible = choice(engine, setting)
            .map_or_else(|| numbers(setting).to_owned(), |choice| choice.offered.join(", "));
        let when = if setting.needs_idle() { "only while KSM tracks no page" } else { "at any time" };
        text += &format!("{}={value}\n", setting.name());
        text += &format!("    now        {}\n", meaning(setting, &value));
        text += &format!("    can be     {possible}\n");
        text += &format!("    can change {when}\n\n");
    }
    text + "Change them by `nuksm engine set KEY=VALUE`; `nuksm status` shows what they led to.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_as_users_see_it() {
        let expected = "\
placement=fair
    now        the hotter copy's node wins; equally hot ones are spread evenly over their sharers' nodes
    can be     first, fair, priority
    can change at any time

replica_percent=0
    now        a merged page is on one node, however many use it
    can be     0 for no replicas, the default, up to 100
    can change at any time

look_cpu_permille=5
    now        looking at merged pages takes 5 thousandths of a CPU; they follow who uses them
    can be     0 for no looks, 5 by default, up to 1000
    can change at any time

kib_per_tree=16
    now        a tree of each kind per 16 KiB of memory
    can be     0 for one tree, 16 by default, 102400 in the paper
    can change only while KSM tracks no page

index=checksum
    now        trees are ordered by checksum: contents are compared only where checksums are equal
    can be     content, checksum
    can change only while KSM tracks no page

Change them by `nuksm engine set KEY=VALUE`; `nuksm status` shows what they led to.
";
        assert_eq!(text(&crate::shared::sample::tests::engine()), expected);
    }

    #[test]
    fn an_engine_without_placement_says_so() {
        let engine = Engine {
            placement: None,
            look_cpu_permille: None,
            replica_percent: None,
            ..crate::shared::sample::tests::engine()
        };
        let expected = "\
this kernel's engine has no placement

this kernel's engine has no replica_percent

this kernel's engine has no look_cpu_permille

kib_per_tree=16
";
        let text = text(&engine);
        assert!(text.starts_with(expected), "{text}");
    }
}
