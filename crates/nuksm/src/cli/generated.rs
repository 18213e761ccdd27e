// SPDX-License-Identifier: GPL-2.0-only
//! Tests of what `generate` makes of the whole command line.

use super::{Cli, Command};
use crate::commands::generate;
use anyhow::Result;
use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use std::fs;
use std::path::Path;

/// Writes all pages into `dir`.
fn write_pages(dir: &str) -> Result<()> {
    let Command::Generate(args) = Cli::parse_from(["nuksm", "generate", "man", dir]).command else {
        panic!("another command");
    };
    generate::run(Cli::command(), &args).map(|_| ())
}

/// Each command's page, by a walk of its own.
fn pages(command: &clap::Command, name: &str, dir: &Path) -> Vec<(String, String)> {
    let page = fs::read_to_string(dir.join(format!("{name}.8"))).expect(name);
    let mut pages = vec![(name.to_owned(), page)];
    for child in command.get_subcommands().filter(|child| child.get_name() != "generate") {
        pages.extend(self::pages(child, &format!("{name}-{}", child.get_name()), dir));
    }
    pages
}

#[test]
fn every_command_has_a_page_with_its_examples() {
    let dir = tempfile::tempdir().unwrap();
    write_pages(dir.path().to_str().unwrap()).unwrap();
    let pages = pages(&Cli::command(), "nuksm", dir.path());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), pages.len(), "no page but these");
    for (name, page) in &pages {
        let expected = if name == "nuksm" { "SH NOTES\nStart with" } else { "SH EXAMPLES\n.nf\nnuksm " };
        assert!(page.contains(expected), "{name}:\n{page}");
        assert_eq!(page.matches("SH \"SEE ALSO\"").count(), usize::from(name != "nuksm"), "{name}");
        assert!(page.contains(&format!(".TH {name} 8 ")), "{name}:\n{page}");
    }
    let place = &pages.iter().find(|(name, _)| name == "nuksm-place").unwrap().1;
    let second = "\nnuksm place \\-\\-policy priority \\-\\-interval 30s";
    assert!(place.contains(second), "{place}");
}

#[test]
fn completions_offer_what_users_are_told_of() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let script = String::from_utf8(generate::completions(&Cli::command(), shell)).unwrap();
        for word in ["unmerge", "max-cpu", "priority", "version"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("generate"), "{shell}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let message = write_pages("/nowhere/at/all").unwrap_err().to_string();
    assert!(message.contains("/nowhere/at/all/nuksm.8"), "{message}");
}
