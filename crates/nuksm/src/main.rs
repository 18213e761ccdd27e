// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm`: see and fix the placement of merged pages.

mod cli;
mod doctor;
mod engine;
mod estimate;
mod exec;
mod generate;
mod load;
#[cfg(test)]
mod manual;
mod memcg;
mod options;
mod output;
mod pace;
mod place;
mod privilege;
mod record;
mod report;
mod sample;
mod serve;
mod sharing;
mod status;
mod stop;
mod tenants;
mod top;
mod tune;
mod unmerge;
mod view;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nuksm: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: cli::Cli) -> anyhow::Result<ExitCode> {
    let root = sysroot::Root::default();
    match cli.command {
        cli::Command::Status(args) => status::run(&root, &args),
        cli::Command::Sharing(args) => sharing::run(&root, &args),
        cli::Command::Place(args) => place::run(&root, &args),
        cli::Command::Unmerge(args) => unmerge::run(&root, &args),
        cli::Command::Serve(args) => serve::run(&root, &args),
        cli::Command::Tune(args) => tune::run(&root, &args),
        cli::Command::Engine(args) => engine::run(&root, &args),
        cli::Command::Estimate(args) => estimate::run(&root, &args),
        cli::Command::Exec(args) => exec::run(&args),
        cli::Command::Top(args) => top::run(&root, &args),
        cli::Command::Record(args) => record::run(&root, &args),
        cli::Command::Report(args) => report::run(&args),
        cli::Command::Doctor(args) => doctor::run(&root, &args),
        cli::Command::Generate(args) => generate::run(&args),
    }
}
