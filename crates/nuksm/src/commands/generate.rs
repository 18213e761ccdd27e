// SPDX-License-Identifier: GPL-2.0-only
//! Man pages and completions, from the same definition as `--help`.

use anyhow::{Context, Result};
use clap::builder::Resettable;
use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The section for what administers a machine.
const SECTION: &str = "8";

/// Make man pages and completions, for packages.
#[derive(Debug, Args)]
#[command(hide = true)]
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

/// Makes what was asked for of the whole program's command line.
pub fn run(all: Command, args: &GenerateArgs) -> Result<ExitCode> {
    match &args.what {
        What::Man { dir } => {
            let mut command = all.disable_help_subcommand(true);
            command.build();
            write_pages(&command, None, dir)?;
        }
        What::Completions { shell } => io::stdout().write_all(&completions(&all, *shell))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The script for a shell. `clap_complete` would offer hidden commands, too.
pub fn completions(all: &Command, shell: Shell) -> Vec<u8> {
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
