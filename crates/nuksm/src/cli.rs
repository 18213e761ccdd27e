// SPDX-License-Identifier: GPL-2.0-only
//! The command line: which commands there are. Only `main` knows of it.

#[cfg(test)]
mod generated;
#[cfg(test)]
mod manual;

use crate::commands::{
    doctor, domain, engine, estimate, exec, generate, place, record, report, serve, sharing, status, top,
    tune, unmerge,
};
use clap::{Parser, Subcommand};

/// See and fix the placement of merged (KSM) pages on machines with several
/// NUMA nodes.
///
/// Linux's KSM merges equal pages of processes and virtual machines and keeps
/// whichever copy it scans last, so all merged pages can end on one node, near
/// for one tenant and far for its twin. nuksm shows where they are and moves
/// them to where they should be, on any kernel that has KSM.
///
/// SIGINT and SIGTERM end what takes long at the next good moment, mostly within a
/// second; a second one ends it at once, as it is.
#[derive(Debug, Parser)]
#[command(version, after_help = "Start with `nuksm doctor`: it says what is missing on this machine.")]
pub struct Cli {
    /// Say more: what is looked at, what it costs, what is refused.
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Say only what fails.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands. Each has its arguments, and its texts, in its own module.
#[derive(Debug, Subcommand)]
pub enum Command {
    Status(status::StatusArgs),
    Sharing(sharing::SharingArgs),
    Place(place::PlaceArgs),
    Unmerge(unmerge::UnmergeArgs),
    Tune(tune::TuneArgs),
    Serve(serve::ServeArgs),
    Engine(engine::EngineArgs),
    Domain(domain::DomainArgs),
    Estimate(estimate::EstimateArgs),
    Exec(exec::ExecArgs),
    Top(top::TopArgs),
    Record(record::RecordArgs),
    Report(report::ReportArgs),
    Doctor(doctor::DoctorArgs),
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
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
    fn nonsense_is_refused_before_anything_happens() {
        let parse =
            |line: &str| Cli::try_parse_from(line.split(' ')).map(|_| ()).map_err(|error| error.to_string());
        assert!(parse("nuksm place --once --policy priority --only 1 --exclude web*").is_ok());
        assert!(parse("nuksm exec -- sh -c true").is_ok());
        assert!(parse("nuksm exec sh -c true").is_ok());
        assert!(parse("nuksm engine").is_ok());
        for (line, word) in [
            ("nuksm place --rate fast", "no rate"),
            ("nuksm place --interval 0", "no time"),
            ("nuksm place --once --interval 3", "cannot be used with"),
            ("nuksm place --only web[", "names no tenant"),
            ("nuksm place --policy random", "fair, priority"),
            ("nuksm estimate --all --pid 1", "cannot be used with"),
            ("nuksm estimate --sample 3", "no sample"),
            ("nuksm exec", "required"),
            ("nuksm engine set", "required"),
            ("nuksm unmerge --rate 0", "no rate"),
            ("nuksm tune --max-cpu 101", "no percentage"),
            ("nuksm tune --interval 0", "no time"),
            ("nuksm serve --listen 9911", "invalid"),
        ] {
            let message = parse(line).unwrap_err();
            assert!(message.contains(word), "{line}: {message}");
        }
    }
}
