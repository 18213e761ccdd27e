// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm`: see and fix the placement of merged pages.

mod cli;
mod commands;
mod shared;

use clap::{CommandFactory, Parser};
use cli::{Cli, Command};
use commands::{
    doctor, domain, engine, estimate, exec, generate, place, record, report, serve, sharing, status, top,
    tune, unmerge,
};
use log::{LevelFilter, error};
use shared::{logging, output};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(match (cli.verbose, cli.quiet) {
        (true, _) => LevelFilter::Debug,
        (_, true) => LevelFilter::Error,
        _ => LevelFilter::Info,
    });
    match run(cli) {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let root = nuksm_sysroot::Root::default();
    match cli.command {
        Command::Status(args) => status::run(&root, &args),
        Command::Sharing(args) => sharing::run(&root, &args),
        Command::Place(args) => place::run(&root, &args),
        Command::Unmerge(args) => unmerge::run(&root, &args),
        Command::Serve(args) => serve::run(&root, &args),
        Command::Tune(args) => tune::run(&root, &args),
        Command::Engine(args) => engine::run(&root, &args),
        Command::Domain(args) => domain::run(&root, &args),
        Command::Estimate(args) => estimate::run(&root, &args),
        Command::Exec(args) => exec::run(&args),
        Command::Top(args) => top::run(&root, &args),
        Command::Record(args) => record::run(&root, &args),
        Command::Report(args) => report::run(&args),
        Command::Doctor(args) => doctor::run(&root, &args),
        Command::Generate(args) => generate::run(Cli::command(), &args),
    }
}
