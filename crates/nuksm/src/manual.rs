// SPDX-License-Identifier: GPL-2.0-only
//! Tests that nothing of the command line lacks its help, its page, its JSON.

use crate::cli::Cli;
use clap::{Command, CommandFactory, Parser};
use std::path::Path;

/// All commands, those below others too, by the words one types.
fn commands(above: &str, command: &Command) -> Vec<(String, Command)> {
    let mut found = Vec::new();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let words = format!("{above} {}", below.get_name());
        found.extend(commands(&words, below));
        found.push((words, below.clone()));
    }
    found
}

fn names() -> Vec<(String, Command)> {
    let top = |(words, command): (String, Command)| Some((words.strip_prefix("nuksm ")?.to_owned(), command));
    commands("nuksm", &Cli::command())
        .into_iter()
        .filter_map(top)
        .filter(|(name, _)| !name.contains(' '))
        .collect()
}

#[test]
fn every_help_has_examples_that_are_understood() {
    for (name, command) in commands("nuksm", &Cli::command()) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples: Vec<&str> = help.split("nuksm ").skip(1).collect();
        assert!(help.starts_with("Example") && help.contains(&name), "{name}: {help}");
        for example in examples {
            let words =
                example.split(['\n', '|', '&', '(', ')']).next().unwrap_or_default().split_whitespace();
            let parsed = Cli::try_parse_from(std::iter::once("nuksm").chain(words));
            assert!(parsed.is_ok(), "{name}: nuksm {example}: {}", parsed.unwrap_err());
        }
    }
}

#[test]
fn what_people_can_read_programs_can() {
    // These draw, run something, or write what programs read anyway.
    let others = ["engine", "exec", "record", "report", "serve", "top"];
    for (name, command) in names() {
        let has_json = command.get_arguments().any(|argument| argument.get_id() == "json");
        assert_ne!(has_json, others.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn every_command_is_in_the_manual() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |page: &str| std::fs::read_to_string(docs.join(page)).unwrap();
    let index = read("README.md");
    for (name, _) in names() {
        let row = index.lines().find(|line| line.starts_with(&format!("| `nuksm {name}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/README.md has no row for {name}"));
        let page = row.split_once("](").and_then(|(_, rest)| rest.split_once(')')).unwrap().0;
        assert!(read(page).contains(&format!("nuksm {name}")), "docs/{page} does not speak of nuksm {name}");
    }
}
