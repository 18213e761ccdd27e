// SPDX-License-Identifier: GPL-2.0-only
//! Man pages and completions, from the same definition as `--help`.

use crate::cli::Cli;
use anyhow::{Context, Result};
use clap::builder::Resettable;
use clap::{Args, Command, CommandFactory, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The section for what administers a machine.
const SECTION: &str = "8";

/// Options of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to make.
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a man page for each command into DIR.
    Man {
        /// An existing directory.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// Makes what was asked for.
pub fn run(args: &GenerateArgs) -> Result<ExitCode> {
    match &args.what {
        What::Man { dir } => {
            let mut command = Cli::command().disable_help_subcommand(true);
            command.build();
            write_pages(&command, None, dir)?;
        }
        What::Completions { shell } => io::stdout().write_all(&completions(*shell))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The script for a shell. `clap_complete` would offer hidden commands, too.
fn completions(shell: Shell) -> Vec<u8> {
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|child| !child.is_hide_set()).cloned();
    let mut command = Command::new("nuksm")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(all.get_arguments().cloned())
        .subcommands(shown);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "nuksm", &mut script);
    script
}

/// The page of a command, and those of its own commands.
fn write_pages(command: &Command, parent: Option<&str>, dir: &Path) -> Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = dir.join(format!("{name}.{SECTION}"));
    let page = page(command, parent)?;
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        write_pages(child, Some(name), dir)?;
    }
    Ok(())
}

fn page(command: &Command, parent: Option<&str>) -> io::Result<Vec<u8>> {
    // clap_mangen would call the examples EXTRA, and join their lines.
    let man = Man::new(command.clone().after_help(Resettable::Reset))
        .section(SECTION)
        .source(concat!("nuksm ", env!("CARGO_PKG_VERSION")))
        .manual("System Administration");
    let mut page = Vec::new();
    man.render(&mut page)?;
    let mut end = Roff::new();
    if let Some(text) = command.get_after_help() {
        examples(&mut end, &text.to_string());
    }
    if let Some(parent) = parent {
        end.control("SH", ["SEE ALSO"]).text([bold(parent), roman(format!("({SECTION})"))]);
    }
    end.to_writer(&mut page)?;
    Ok(page)
}

/// What `--help` ends with: "Example: COMMAND", or "Examples:" and a command on
/// each line, or a note.
fn examples(roff: &mut Roff, text: &str) {
    let Some((_, commands)) = text.split_once(':').filter(|(title, _)| title.starts_with("Example")) else {
        roff.control("SH", ["NOTES"]).text([roman(text)]);
        return;
    };
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    for command in commands.lines().map(str::trim).filter(|command| !command.is_empty()) {
        roff.text([roman(command)]);
    }
    roff.control("fi", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each command's page, by a walk of its own.
    fn pages(command: &Command, name: &str, dir: &Path) -> Vec<(String, String)> {
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
        run(&GenerateArgs { what: What::Man { dir: dir.path().to_owned() } }).unwrap();
        let pages = pages(&Cli::command(), "nuksm", dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), pages.len(), "no page but these");
        for (name, page) in &pages {
            let expected = if name == "nuksm" { "SH NOTES\nStart with" } else { "SH EXAMPLES\n.nf\nnuksm " };
            assert!(page.contains(expected), "{name}:\n{page}");
            assert_eq!(page.matches("SH \"SEE ALSO\"").count(), usize::from(name != "nuksm"), "{name}");
            assert!(page.contains(&format!(".TH {name} 8 ")), "{name}:\n{page}");
        }
        let place = &pages.iter().find(|(name, _)| name == "nuksm-place").unwrap().1;
        let second = "\nnuksm place \\-\\-policy priority \\-\\-interval 30";
        assert!(place.contains(second), "{place}");
    }

    #[test]
    fn completions_offer_what_users_are_told_of() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completions(shell)).unwrap();
            for word in ["unmerge", "max-cpu", "priority", "version"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
            assert!(!script.contains("generate"), "{shell}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let args = GenerateArgs { what: What::Man { dir: "/nowhere/at/all".into() } };
        let message = run(&args).unwrap_err().to_string();
        assert!(message.contains("/nowhere/at/all/nuksm.8"), "{message}");
    }
}
