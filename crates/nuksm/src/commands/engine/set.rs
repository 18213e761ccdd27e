// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm engine set`: all changes, or none.

use super::setting::{choice, meaning, value};
use crate::shared::output::{self, bytes};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use nuksm_ksmfs::{Choice, Engine, Ksm, Setting};
use nuksm_sysroot::Root;
use std::process::ExitCode;

/// Options of `engine set`.
#[derive(Debug, Args)]
pub struct EngineSetArgs {
    /// Explain the changes, but make none.
    #[arg(long)]
    pub dry_run: bool,
    /// What to set: placement, `look_cpu_permille`, `replica_percent`, index, `kib_per_tree`.
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

/// A setting and its value before and after; both may be the same.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    setting: Setting,
    from: String,
    to: String,
}

/// Changes what was asked for, and explains it.
pub fn run(root: &Root, ksm: &Ksm, engine: &Engine, args: &EngineSetArgs) -> Result<ExitCode> {
    output::print(&set(root, ksm, engine, args)?)?;
    Ok(ExitCode::SUCCESS)
}

fn set(root: &Root, ksm: &Ksm, engine: &Engine, args: &EngineSetArgs) -> Result<String> {
    let changes = parse(engine, &args.settings)?;
    let mut text = explain(engine, &changes);
    if args.dry_run {
        if changes.iter().any(|change| change.is_real() && change.setting.needs_idle()) {
            text += &idle_remedy(ksm, &args.settings);
        }
        return Ok(text + "nothing was changed: this was a dry run\n");
    }
    apply(&changes, |setting, value| setting.write(root, value))
        .map_err(|failure| anyhow!(failure.text(ksm, &args.settings)))?;
    Ok(text)
}

/// The changes that `words` (KEY=VALUE) ask for, those that the kernel may
/// refuse first. Everything that can be wrong with them is found here.
fn parse(engine: &Engine, words: &[String]) -> Result<Vec<Change>> {
    let mut changes = Vec::<Change>::new();
    for word in words {
        let (key, wanted) = word
            .split_once('=')
            .with_context(|| format!("{word:?} is no setting: write KEY=VALUE, as in placement=fair"))?;
        let setting = Setting::ALL.into_iter().find(|setting| setting.name() == key).with_context(|| {
            format!("there is no setting {key:?}: there are {}", Setting::ALL.map(Setting::name).join(", "))
        })?;
        if changes.iter().any(|change| change.setting == setting) {
            bail!("{key} is given twice: once is enough");
        }
        let from = value(engine, setting).with_context(|| format!("this kernel's engine has no {key}"))?;
        let to = match choice(engine, setting) {
            Some(choice) => offered(choice, key, wanted)?,
            None => number(setting, wanted)?,
        };
        changes.push(Change { setting, from, to });
    }
    changes.sort_by_key(|change| change.setting);
    Ok(changes)
}

/// `wanted`, if it is a number that the setting can be.
fn number(setting: Setting, wanted: &str) -> Result<String> {
    let (most, what) = match setting {
        Setting::LookCpuPermille => (1000, "thousandths of a CPU, up to 1000, or 0 for no looks"),
        Setting::ReplicaPercent => (100, "percent of what merging saves, up to 100, or 0 for no replicas"),
        _ => (u32::MAX, "KiB of memory as a number below 2^32, or 0 for one tree"),
    };
    wanted
        .parse()
        .ok()
        .filter(|number| *number <= most)
        .map(|number: u32| number.to_string())
        .with_context(|| format!("{wanted:?} is no {}: write {what}", setting.name()))
}

/// `wanted`, if the kernel offers it.
fn offered(choice: &Choice, key: &str, wanted: &str) -> Result<String> {
    if choice.offered.iter().any(|word| word == wanted) {
        return Ok(wanted.to_owned());
    }
    bail!("{wanted:?} is no {key}: this kernel offers {}", choice.offered.join(", "))
}

/// Makes the changes that are any; when the kernel refuses one, those before
/// it are taken back.
fn apply(
    changes: &[Change],
    mut write: impl FnMut(Setting, &str) -> nuksm_sysroot::Result<()>,
) -> Result<(), Failure> {
    let changes: Vec<&Change> = changes.iter().filter(|change| change.is_real()).collect();
    for (index, change) in changes.iter().enumerate() {
        if let Err(error) = write(change.setting, &change.to) {
            let mut stuck = Vec::new();
            for before in changes[..index].iter().rev() {
                if write(before.setting, &before.from).is_err() {
                    stuck.push(format!("{} is {} now", before.setting.name(), before.to));
                }
            }
            return Err(Failure { error, stuck });
        }
    }
    Ok(())
}

/// The kernel refused a change.
#[derive(Debug)]
struct Failure {
    error: nuksm_sysroot::Error,
    /// Earlier changes that could not be taken back.
    stuck: Vec<String>,
}

impl Failure {
    /// What happened, what to do, and what holds now.
    fn text(self, ksm: &Ksm, settings: &[String]) -> String {
        let remedy = if self.error.is_busy() {
            idle_remedy(ksm, settings)
        } else if self.error.is_permission() {
            "run as root\n".into()
        } else {
            String::new()
        };
        let outcome = if self.stuck.is_empty() {
            "nothing was changed".into()
        } else {
            format!("{}, and the kernel refused to change it back", self.stuck.join(", "))
        };
        format!("{:#}\n{remedy}{outcome}", anyhow::Error::from(self.error))
    }
}

/// How to set what can change only while KSM tracks no page, and its price.
fn idle_remedy(ksm: &Ksm, settings: &[String]) -> String {
    let saved = ksm.pages_sharing.map(|pages| {
        let saved = (pages + ksm.ksm_zero_pages.unwrap_or(0)) * nuksm_pagemap::page_size();
        format!("{} of free memory", bytes(i64::try_from(saved).unwrap_or(i64::MAX)))
    });
    let saved = saved.as_deref().unwrap_or("as much free memory as was saved");
    format!(
        "index and kib_per_tree can change only while KSM tracks no page:
  nuksm unmerge                      un-merges everything where it fits: needs {saved}
  nuksm engine set {}
  echo 1 > /sys/kernel/mm/ksm/run    merges again, from the first page on\n",
        settings.join(" ")
    )
}

/// What the changes mean, all of them being made.
fn explain(engine: &Engine, changes: &[Change]) -> String {
    let looks = changes
        .iter()
        .find(|change| change.setting == Setting::LookCpuPermille)
        .map_or(engine.look_cpu_permille.unwrap_or(0) != 0, |change| change.to != "0");
    changes.iter().map(|change| change.text(looks)).collect()
}

impl Change {
    fn is_real(&self) -> bool {
        self.from != self.to
    }

    /// What it means where the kernel looks at merged pages, or does not.
    fn text(&self, looks: bool) -> String {
        let name = self.setting.name();
        if !self.is_real() {
            return format!("{name} is {} already\n", self.to);
        }
        let mut text = format!(
            "{name}: {} -> {}\n  from now on: {}\n",
            self.from,
            self.to,
            meaning(self.setting, &self.to)
        );
        if self.setting == Setting::Placement {
            let policy = if self.to == "priority" { " --policy priority" } else { "" };
            text += &match (self.to.as_str(), looks) {
                ("first", _) => {
                    "  pages merged before stay where they are, but for replicas, which go\n".to_owned()
                }
                (_, true) => "  pages merged before follow, as the kernel looks at them\n".to_owned(),
                (_, false) => {
                    format!(
                        "  pages merged before stay where they are: `nuksm place{policy}` corrects those\n"
                    )
                }
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::sample::tests::engine;
    use std::io;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(Into::into).collect()
    }

    fn changes(line: &str) -> Vec<Change> {
        parse(&engine(), &words(line)).unwrap()
    }

    /// Applies changes where the kernel answers `errno` to writing any of
    /// `refused`; what it took, and what is said then.
    fn apply_refusing(line: &str, errno: i32, refused: &[&str]) -> (Vec<String>, String) {
        let mut taken = Vec::new();
        let failure = apply(&changes(line), |setting, value| {
            let text = format!("{}={value}", setting.name());
            if refused.contains(&text.as_str()) {
                let source = io::Error::from_raw_os_error(errno);
                return Err(nuksm_sysroot::Error::Unwritable { path: setting.name().into(), source });
            }
            taken.push(text);
            Ok(())
        });
        let ksm = Ksm { pages_sharing: Some(1_000), ksm_zero_pages: Some(24), ..Ksm::default() };
        let text = failure.err().map_or_else(String::new, |failure| failure.text(&ksm, &words(line)));
        (taken, text)
    }

    #[test]
    fn mistakes_are_found_before_anything_is_written() {
        for (line, expected) in [
            ("placement", "\"placement\" is no setting: write KEY=VALUE"),
            (
                "place=fair",
                "no setting \"place\": there are index, kib_per_tree, look_cpu_permille, replica_percent, placement",
            ),
            (
                "index=checksum placement=even",
                "\"even\" is no placement: this kernel offers first, fair, priority",
            ),
            ("index=hash", "\"hash\" is no index: this kernel offers content, checksum"),
            ("index=", "\"\" is no index"),
            ("kib_per_tree=100MiB", "\"100MiB\" is no kib_per_tree: write KiB of memory as a number"),
            ("kib_per_tree=-1", "is no kib_per_tree"),
            ("kib_per_tree=4294967296", "below 2^32"),
            (
                "look_cpu_permille=1001",
                "\"1001\" is no look_cpu_permille: write thousandths of a CPU, up to 1000",
            ),
            ("look_cpu_permille=0.5", "is no look_cpu_permille"),
            (
                "replica_percent=101",
                "\"101\" is no replica_percent: write percent of what merging saves, up to 100",
            ),
            ("placement=fair index=content placement=fair", "placement is given twice"),
        ] {
            let message = parse(&engine(), &words(line)).unwrap_err().to_string();
            assert!(message.contains(expected), "{line}: {message}");
        }
        let index_only = Engine { placement: None, ..engine() };
        let message = parse(&index_only, &words("placement=fair")).unwrap_err().to_string();
        assert_eq!(message, "this kernel's engine has no placement");
    }

    #[test]
    fn what_the_kernel_may_refuse_is_written_first_and_what_holds_already_not_at_all() {
        let (taken, text) = apply_refusing("placement=priority kib_per_tree=102400 index=checksum", 0, &[]);
        assert_eq!(taken, ["kib_per_tree=102400", "placement=priority"]);
        assert_eq!(text, "");
    }

    #[test]
    fn a_busy_kernel_is_explained_with_its_price() {
        let line = "placement=priority index=content";
        let (taken, text) = apply_refusing(line, libc::EBUSY, &["index=content"]);
        assert!(taken.is_empty());
        let saved = bytes(i64::try_from(1_024 * nuksm_pagemap::page_size()).unwrap());
        let expected = format!(
            "\
cannot write index: Device or resource busy (os error 16)
index and kib_per_tree can change only while KSM tracks no page:
  nuksm unmerge                      un-merges everything where it fits: needs {saved} of free memory
  nuksm engine set {line}
  echo 1 > /sys/kernel/mm/ksm/run    merges again, from the first page on
nothing was changed"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn earlier_changes_are_taken_back() {
        let line = "index=content kib_per_tree=1 placement=first";
        let (taken, text) = apply_refusing(line, libc::ENOMEM, &["kib_per_tree=1"]);
        assert_eq!(taken, ["index=content", "index=checksum"]);
        assert!(text.ends_with("(os error 12)\nnothing was changed"), "{text}");
    }

    #[test]
    fn what_cannot_be_taken_back_is_said() {
        let line = "index=content kib_per_tree=1 placement=first";
        let (taken, text) = apply_refusing(line, libc::EACCES, &["placement=first", "index=checksum"]);
        assert_eq!(taken, ["index=content", "kib_per_tree=1", "kib_per_tree=16"]);
        let end = "run as root\nindex is content now, and the kernel refused to change it back";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn each_change_is_explained() {
        let text = explain(&engine(), &changes("placement=priority index=checksum kib_per_tree=102400"));
        let expected = "\
index is checksum already
kib_per_tree: 16 -> 102400
  from now on: a tree of each kind per 100 MiB of memory, as in the nuKSM paper
placement: fair -> priority
  from now on: each sharer's node gets pages in proportion to 1/(nice + 21) of the sharers
  pages merged before follow, as the kernel looks at them
";
        assert_eq!(text, expected);
    }

    #[test]
    fn pages_follow_another_placement_only_if_somebody_looks() {
        let said = |line: &str| explain(&engine(), &changes(line));
        assert!(said("placement=first").ends_with("stay where they are, but for replicas, which go\n"));
        let text = said("placement=priority look_cpu_permille=0");
        assert!(
            text.ends_with("stay where they are: `nuksm place --policy priority` corrects those\n"),
            "{text}"
        );
    }

    #[test]
    fn the_kernels_files_change_but_not_in_a_dry_run() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name| dir.path().join("sys/kernel/mm/ksm").join(name);
        std::fs::create_dir_all(file("")).unwrap();
        let set = |dry_run| {
            let args = EngineSetArgs { dry_run, settings: words("placement=first kib_per_tree=0") };
            let text = set(&Root::at(dir.path()), &Ksm::default(), &engine(), &args).unwrap();
            (text, ["kib_per_tree", "placement"].map(|name| std::fs::read_to_string(file(name)).unwrap()))
        };
        std::fs::write(file("kib_per_tree"), "16\n").unwrap();
        std::fs::write(file("placement"), "first [fair] priority\n").unwrap();

        let (text, files) = set(true);
        assert_eq!(files, ["16\n", "first [fair] priority\n"]);
        let end = "merges again, from the first page on\nnothing was changed: this was a dry run\n";
        assert!(text.contains("nuksm unmerge ") && text.ends_with(end), "{text}");

        let (text, files) = set(false);
        assert_eq!(files, ["0\n", "first\n"]);
        assert!(!text.contains("nuksm unmerge") && !text.contains("nothing was changed"), "{text}");
    }
}
