// SPDX-License-Identifier: GPL-2.0-only
//! The command line; its texts are the manual.

use crate::estimate::EstimateArgs;
use crate::options::Seconds;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Deserialize;
use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

/// See and fix the placement of merged (KSM) pages on machines with several
/// NUMA nodes.
///
/// Linux's KSM merges equal pages of processes and virtual machines and keeps
/// whichever copy it scans last, so all merged pages can end on one node, near
/// for one tenant and far for its twin. nuksm shows where they are and moves
/// them to where they should be, on any kernel that has KSM.
#[derive(Debug, Parser)]
#[command(version, after_help = "Start with `nuksm doctor`: it says what is missing on this machine.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show KSM's settings, savings and scan speed, and where merged pages are.
    ///
    /// Savings are bytes freed less KSM's own records; zero pages stand apart.
    /// Nodes and tenants (processes with mergeable memory; virtual machines,
    /// containers and services by their names) need root.
    #[command(after_help = "Example: nuksm status --watch 5")]
    Status(StatusArgs),
    /// Show which tenants share merged pages with which, and over which nodes.
    #[command(after_help = "Example: nuksm sharing --json | jq '.pairs[] | select(.pages > 1000)'")]
    Sharing(SharingArgs),
    /// Move merged pages to the nodes where their sharers should find them.
    ///
    /// Runs until SIGINT or SIGTERM, a pass every --interval; --once does one
    /// pass. Each pass looks at all shared pages, plans with as few moves as
    /// possible, keeps to the free memory of each node (above its high
    /// watermark), moves pages in batches at --rate, and reports what moved,
    /// what the kernel refused, and each tenant's local share before and
    /// after. Merging itself is left as it is, and so are KSM's settings.
    ///
    /// A tenant is local to the node its threads are bound to or use most CPU
    /// time on; when they wander, its pages follow after three passes.
    ///
    /// A page counts once for each tenant that maps it, however often; pages
    /// that KSM has not merged are never touched.
    #[command(
        after_help = "Examples:\n  nuksm place --once --dry-run\n  nuksm place --policy priority --interval 30 --rate 128MiB"
    )]
    Place(PlaceArgs),
    /// Un-merge everything, or one process, only where the memory for it is free.
    ///
    /// Says first what it costs: each mapping of a merged page gets a page of
    /// its own, on the node that its memory's policy names, else where its
    /// tenant runs. When a node's free memory (above its high watermark) or a
    /// memory cgroup's limit does not suffice, nothing is done and the exit
    /// status is 1. Then works at --rate and can be interrupted at any time;
    /// tenants go on running, and what they write is never touched.
    ///
    /// Without --pid, ksmd is stopped first and stays stopped (as after writing
    /// 2 to /sys/kernel/mm/ksm/run): write 1 there to merge again.
    #[command(
        after_help = "Examples:\n  nuksm unmerge --dry-run\n  nuksm unmerge --rate 64MiB\n  nuksm unmerge --pid 4711"
    )]
    Unmerge(crate::unmerge::UnmergeArgs),
    /// Let ksmd scan fast when memory is short or merging pays, slowly when not.
    ///
    /// Runs until SIGINT or SIGTERM; then KSM's settings are again what they were
    /// at the start (after a kill, --restore or the next `nuksm tune` sees to it).
    /// Each --interval it looks at the memory available, at how many of the scanned
    /// pages merged, and at ksmd's CPU time, sets `pages_to_scan` (and, where
    /// --max-cpu demands it, `sleep_millisecs`), and says what it changed and
    /// why. KSM itself is neither started nor stopped.
    ///
    /// When the kernel's own advisor was on, it is off meanwhile, unless
    /// --advisor says to steer it.
    #[command(
        after_help = "Examples:\n  nuksm tune --max-cpu 10\n  nuksm tune --dry-run --interval 1 --json\n  nuksm tune --restore"
    )]
    Tune(crate::tune::TuneArgs),
    /// Serve metrics for Prometheus; place and tune in the same daemon, if asked to.
    ///
    /// /metrics has KSM's savings and counters, merged pages per node, and near
    /// and far ones per tenant; /healthz says whether collecting works. Figures
    /// are collected once per interval (10 s), however often they are asked for.
    /// Where pages are is looked at less often: not while no counter says that
    /// anything changed, and never so often that looking takes more than 0.5 % of
    /// a CPU on the average; `nuksm_look_age_seconds` says how old it is.
    ///
    /// A configuration file can switch `place` and `tune` on; SIGHUP reads it
    /// again. Without root there are counters only.
    #[command(
        after_help = "Examples:\n  nuksm serve\n  nuksm serve --config /etc/nuksm.toml\n  curl -s http://127.0.0.1:9911/metrics"
    )]
    Serve(crate::serve::ServeArgs),
    /// Show or change how the engine works, on a kernel that has it.
    ///
    /// The engine is nuKSM inside the kernel (`CONFIG_NUKSM`): it chooses the node
    /// of a page while it merges it, and finds equal pages in a forest of trees.
    /// Without a command, its settings are shown; what it has done so far is in
    /// `nuksm status`.
    #[command(after_help = "Examples:\n  nuksm engine\n  nuksm engine set placement=priority")]
    Engine(EngineArgs),
    /// Estimate what merging would save, before anyone turns it on.
    ///
    /// Looks at all anonymous pages that are in memory, as if all of them were
    /// marked mergeable (of a process that marks some, as QEMU marks its guest's
    /// memory, at those only): of processes (--pid, or by default those with 64 MiB or
    /// more that this user may read), of raw memory images, of ELF cores. Nothing
    /// is stopped, changed or merged. KSM's records are subtracted, 64 bytes per
    /// page; zero pages stand apart; `max_page_sharing` is this machine's.
    ///
    /// Savings are given for merging across nodes and within nodes, and with the
    /// former the part of each tenant's merged pages that would be remote: as the
    /// kernel leaves them (`first`: by the order of its scan, which nobody knows
    /// before, so for the order shown and for the worst case), spread evenly over
    /// the sharers' nodes (`fair`), or by nice values (`priority`).
    ///
    /// 16 bytes per different page are kept. Above --memory contents are sampled,
    /// in all tenants alike, and figures get 95 % bounds. --dump writes one row per
    /// page for SQL engines; given as FILE, such files are read again, those of
    /// several hosts as if all ran on one.
    #[command(
        after_help = "Examples:\n  nuksm estimate\n  nuksm estimate --pid 4711 --pid 4712 --json\n  nuksm estimate web.core@0 db.core@1 --dump host1.parquet"
    )]
    Estimate(EstimateArgs),
    /// Run an unmodified program with merging switched on for all its memory.
    ///
    /// Uses `PR_SET_MEMORY_MERGE` of prctl(2), Linux 6.4; from 6.7 on the setting
    /// passes to the program (and its children), before that nuksm says so and
    /// runs nothing. KSM itself must be running for pages to be merged.
    #[command(after_help = "Example: nuksm exec -- ./solver --size 4G")]
    Exec(ExecArgs),
    /// Watch savings, cost and places of merged pages on the terminal.
    ///
    /// Savings and scan rate over time, what ksmd's CPU time is worth, each node's
    /// local and remote uses, and tenants sorted by savings (s), remote share (r),
    /// cost (c) or name (n); Enter shows one tenant and with whom it shares.
    /// q, Esc or Ctrl-C ends it. Nodes and tenants need root.
    ///
    /// A tenant's savings are its part of what it and its sharers save; its cost is
    /// the pages that ksmd looks at for it, merged or not. Without colour
    /// (`NO_COLOR`) it says the same.
    #[command(after_help = "Example: nuksm top --interval 5")]
    Top(crate::top::TopArgs),
    /// Write a sample of everything to a file, again and again.
    ///
    /// JSON lines hold all that `nuksm status --json` shows, one sample per line,
    /// and `nuksm report` makes pictures of them. CSV holds the host's counters
    /// and the nodes, one column each, for other programs; tenants, whose number
    /// changes, are in JSON lines only. docs/watching.md lists the columns.
    ///
    /// Each line is written at once and is on the disk before the next look. A
    /// file that exists is continued; what a crash cut off is mended, with a
    /// message. When the disk is full, or a look fails, nuksm says so and tries
    /// again at the next interval: the file stays readable, the summary at the
    /// end counts what was lost, and the exit status is then 1.
    ///
    /// Ends after --duration, or on SIGINT or SIGTERM.
    #[command(
        after_help = "Examples:\n  nuksm record --output ksm.jsonl\n  nuksm record --output ksm.csv --counters --interval 1 --duration 600"
    )]
    Record(crate::record::RecordArgs),
    /// Make a page with pictures and averages of recordings.
    ///
    /// One HTML file that needs nothing else and no network: savings, pages by
    /// state, CPU time, places by node and by tenant over time, with averages,
    /// least and most as tables. Of several recordings, such as one with merging
    /// and one without, it shows each picture side by side on the same axes, and
    /// each figure side by side; of two also the difference.
    ///
    /// Files that a crash or a full disk cut off are read as far as they go; lines
    /// that cannot be understood are named.
    #[command(
        after_help = "Examples:\n  nuksm report ksm.jsonl\n  nuksm report without.jsonl with.jsonl --output compare.html --png pictures"
    )]
    Report(crate::report::ReportArgs),
    /// Find out why nothing merges or moves here, and what to do about it.
    ///
    /// Exit status 0 only when nothing stands in the way of merging and
    /// placing.
    #[command(after_help = "Example: nuksm doctor && nuksm place --once")]
    Doctor(DoctorArgs),
    /// Make man pages and completions, for packages.
    #[command(hide = true)]
    Generate(crate::generate::GenerateArgs),
}

/// Options of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Repeat every SECONDS (2 when none are given) until interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = seconds)]
    pub watch: Option<Duration>,
}

/// Options of `sharing`.
#[derive(Debug, Args)]
pub struct SharingArgs {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Options of `place`.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Which node should hold which part of the pages tenants share.
    #[arg(long, value_enum, default_value_t = PolicyName::Fair)]
    pub policy: PolicyName,
    /// One pass, then end.
    #[arg(long)]
    pub once: bool,
    /// Plan and report, but move nothing; one pass.
    #[arg(long)]
    pub dry_run: bool,
    /// Time between two passes.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds, conflicts_with_all = ["once", "dry_run"])]
    pub interval: Duration,
    /// Pages (a number) or memory (`64MiB`) moved per second at the most.
    #[arg(long, value_name = "RATE", default_value = "256MiB")]
    pub rate: Rate,
    /// Move only pages that process PID shares; may be repeated.
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Leave alone all pages that process PID shares; may be repeated.
    #[arg(long, value_name = "PID")]
    pub exclude: Vec<u32>,
    /// Print one JSON object per pass, a line each.
    #[arg(long)]
    pub json: bool,
}

/// Options of `engine`.
#[derive(Debug, Args)]
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

/// Options of `engine set`.
#[derive(Debug, Args)]
pub struct EngineSetArgs {
    /// Explain the changes, but make none.
    #[arg(long)]
    pub dry_run: bool,
    /// What to set: placement, index, `kib_per_tree`.
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

/// Options of `exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// The policies by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// Evenly over the nodes that have a sharer.
    Fair,
    /// By nice value: in proportion to 1/(nice + 21) of the sharers.
    Priority,
}

impl PolicyName {
    /// The word for it on the command line and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Priority => "priority",
        }
    }
}

impl From<PolicyName> for model::Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Fair => Self::Fair,
            PolicyName::Priority => Self::Priority,
        }
    }
}

/// Pages per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hint = || {
            format!("{text:?} is no rate: write pages per second (5000) or MiB per second (64MiB), above 0")
        };
        let (number, bytes) = match text.strip_suffix("MiB") {
            Some(number) => (number, Some(1 << 20)),
            None => (text, None),
        };
        let number: u64 = number.parse().map_err(|_| hint())?;
        let pages = match bytes {
            Some(unit) => number.checked_mul(unit).ok_or_else(hint)? / pagemap::page_size(),
            None => number,
        };
        if pages == 0 { Err(hint()) } else { Ok(Self(pages)) }
    }
}

/// An interval.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<Seconds>().map(Seconds::duration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn rates_in_pages_and_in_memory() {
        assert_eq!("5000".parse(), Ok(Rate(5000)));
        assert_eq!("64MiB".parse(), Ok(Rate((64 << 20) / pagemap::page_size())));
        for bad in ["0", "0MiB", "-1", "fast", "64GiB", "MiB", "99999999999999999999", "99999999999999999MiB"]
        {
            let message = bad.parse::<Rate>().unwrap_err();
            assert!(message.contains("pages per second (5000)"), "{bad}: {message}");
        }
    }

    #[test]
    fn nonsense_is_refused_before_anything_happens() {
        let parse =
            |line: &str| Cli::try_parse_from(line.split(' ')).map(|_| ()).map_err(|error| error.to_string());
        assert!(parse("nuksm place --once --policy priority --pid 1 --pid 2").is_ok());
        assert!(parse("nuksm exec -- sh -c true").is_ok());
        assert!(parse("nuksm exec sh -c true").is_ok());
        assert!(parse("nuksm engine").is_ok());
        for (line, word) in [
            ("nuksm place --rate fast", "no rate"),
            ("nuksm place --interval 0", "no interval"),
            ("nuksm place --once --interval 3", "cannot be used with"),
            ("nuksm place --pid self", "invalid"),
            ("nuksm place --policy random", "fair, priority"),
            ("nuksm estimate --all --pid 1", "cannot be used with"),
            ("nuksm estimate --sample 3", "no sample"),
            ("nuksm exec", "required"),
            ("nuksm engine set", "required"),
            ("nuksm unmerge --rate 0", "no rate"),
            ("nuksm tune --max-cpu 101", "no percentage"),
            ("nuksm tune --interval 0", "no interval"),
            ("nuksm serve --listen 9911", "invalid"),
        ] {
            let message = parse(line).unwrap_err();
            assert!(message.contains(word), "{line}: {message}");
        }
    }
}
