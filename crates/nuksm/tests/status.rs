// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm status --watch` on a terminal. On any host whose kernel has KSM.

// All of this file is a test.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/terminal.rs"]
mod terminal;

use common::Process;
use std::io::Read;
use std::process::Command;
use terminal::terminal;

/// Clears the screen, and goes to its top left corner.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

fn watch(json: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuksm"));
    command.args(["status", "--watch", "1s"]).args(json);
    command
}

/// What it says until it has said something twice.
fn said(mut out: impl Read, words: &str) -> String {
    let (mut said, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = out.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&said));
        said.extend(&piece[..count]);
        let text = String::from_utf8_lossy(&said);
        if text.matches(words).count() > 1 {
            return text.into_owned();
        }
    }
}

#[test]
fn each_view_is_on_a_clear_screen() {
    let (ours, its) = terminal();
    let _process = Process(watch(&[]).stdout(its()).spawn().unwrap());
    let text = said(ours, "Savings");
    let views: Vec<&str> = text.split(CLEAR).collect();
    let [before, first, second, ..] = views[..] else { panic!("{text:?}") };
    let alone = |view: &str| view.matches("Savings").count() == 1;
    assert!(before.is_empty() && alone(first) && alone(second), "{text:?}");
}

#[test]
fn what_is_no_terminal_gets_nothing_that_steers_one() {
    let (reader, writer) = std::io::pipe().unwrap();
    let _process = Process(watch(&[]).stdout(writer).spawn().unwrap());
    let text = said(reader, "Savings");
    assert!(text.starts_with("KSM is") && !text.contains(['\u{1b}', '\u{fffd}']), "{text:?}");
}
