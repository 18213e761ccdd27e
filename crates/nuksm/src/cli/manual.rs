// SPDX-License-Identifier: GPL-2.0-only
//! Tests that nothing of the command line lacks its help, its page, its JSON.

use super::Cli;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};
use std::fs;
use std::path::{Path, PathBuf};

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
    let read = |page: &str| fs::read_to_string(docs.join(page)).unwrap();
    let index = read("README.md");
    for (name, _) in names() {
        let row = index.lines().find(|line| line.starts_with(&format!("| `nuksm {name}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/README.md has no row for {name}"));
        let page = row.split_once("](").and_then(|(_, rest)| rest.split_once(')')).unwrap().0;
        assert!(read(page).contains(&format!("nuksm {name}")), "docs/{page} does not speak of nuksm {name}");
    }
}

/// Where operators read what to type.
fn manual() -> Vec<(String, String)> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(repository.join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.extend(["README.md", "kernel/README.md"].map(|name| repository.join(name)));
    let pages = paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages.map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

/// The calls of nuksm in a line of shell, without what is around them.
fn calls(line: &str) -> Vec<Vec<&str>> {
    let line = line.split(" #").next().unwrap_or_default();
    let commands = line.split(['|', ';', '&']).map(|command| {
        let words = command.split_whitespace().skip_while(|word| *word == "sudo");
        words.take_while(|word| !word.contains('>')).collect::<Vec<_>>()
    });
    commands.filter(|words| words.first() == Some(&"nuksm")).collect()
}

#[test]
fn what_the_manual_says_to_type_is_understood() {
    let mut seen = 0;
    for (path, text) in manual() {
        let (mut is_fenced, mut code, mut prose) = (false, Vec::new(), String::new());
        let mut is_screen = false;
        for line in text.lines() {
            is_fenced ^= line.starts_with("```");
            is_screen = is_fenced && (is_screen || line == "```text");
            if is_screen {
                continue; // what nuksm prints
            }
            if is_fenced || line.starts_with("    ") {
                code.extend(calls(line));
            } else if !line.starts_with("```") {
                prose += &format!("{line}\n");
            }
        }
        for call in code {
            seen += 1;
            let parsed = Cli::try_parse_from(&call);
            assert!(parsed.is_ok(), "{path}: {call:?}: {}", parsed.unwrap_err());
        }
        for call in prose.split('`').skip(1).step_by(2).flat_map(calls) {
            seen += 1;
            let kind = Cli::try_parse_from(&call).err().map(|error| error.kind());
            // In a sentence, `nuksm record` is a name.
            let is_name = matches!(
                kind,
                Some(
                    ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                )
            );
            assert!(kind.is_none() || is_name, "{path}: {call:?}: {kind:?}");
        }
    }
    assert!(seen > 80, "{seen}");
}
