// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm top`: what merging does, as it happens.
//!
//! `gather` looks at the machine, in a thread of its own, because a look may
//! take seconds; `state` is what is shown and what keys do to it; `draw` and
//! `detail` put it on the screen.

mod detail;
mod draw;
mod gather;
mod help;
mod state;
mod style;

use crate::shared::options::seconds;
use crate::shared::stop::Stop;
use crate::shared::view;
use anyhow::{Context, Result, bail};
use clap::Args;
use nuksm_sysroot::Root;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use state::{Action, Mode, Sort, State};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// How long a look that has come may wait to be seen; keys never wait.
const TICK: Duration = Duration::from_millis(100);

/// Watch savings, cost and places of merged pages on the terminal.
///
/// Savings and scan rate over time, what ksmd's CPU time is worth, each node's
/// local and remote uses, and tenants sorted by savings (s), remote share (r),
/// cost (c) or name (n), R the other way round, / those with something in their name;
/// Enter shows one tenant and with whom it shares, ? what all keys do. q, Esc or Ctrl-C
/// ends it. Nodes and tenants need root.
///
/// A tenant's savings are its part of what it and its sharers save; its cost is
/// the pages that ksmd looks at for it, merged or not. Without colour
/// (`NO_COLOR`) it says the same.
#[derive(Debug, Args)]
#[command(after_help = "Example: nuksm top --interval 5s")]
pub struct TopArgs {
    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = seconds)]
    pub interval: Duration,
}

/// Shows it until told to quit.
pub fn run(root: &Root, args: &TopArgs) -> Result<ExitCode> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("top draws on a terminal, and this is none: use `nuksm status`, with --json for programs");
    }
    view::require_ksm(root)?;
    let host = root.text("proc/sys/kernel/hostname")?.unwrap_or_default().trim().to_owned();
    let stop = Stop::on_signals()?;
    let looks = gather::start(root.clone(), args.interval);
    let mut state = State::new(host, args.interval, has_colour(|name| std::env::var(name).ok()));
    // From here on a panic gives the terminal back, too.
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let result = watch(&mut terminal, &mut state, &looks, &stop);
    ratatui::try_restore().context("cannot restore this terminal: `reset` does")?;
    result.map(|()| ExitCode::SUCCESS)
}

/// Draws, and does what keys and signals ask for.
fn watch(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    looks: &Receiver<Result<gather::Look>>,
    stop: &Stop,
) -> Result<()> {
    let mut is_new = true;
    while !stop.wait(Duration::ZERO) {
        if is_new {
            terminal.draw(|frame| draw::draw(frame, state))?;
        }
        is_new = event::poll(TICK)?;
        if is_new {
            if let Event::Key(key) = event::read()? {
                if let Some(action) = action(key, state.mode == Mode::Filter) {
                    if state.act(action) {
                        return Ok(());
                    }
                }
            }
        }
        match looks.try_recv() {
            Ok(look) => {
                state.add(look);
                is_new = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => bail!("looking at the machine ended unexpectedly"),
        }
    }
    Ok(())
}

/// What a key means, also while a filter is typed.
fn action(key: KeyEvent, is_typing: bool) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Action::Quit,
        _ if control => return None,
        KeyCode::Char(char) if is_typing => Action::Type(char),
        KeyCode::Backspace if is_typing => Action::Erase,
        KeyCode::Enter if is_typing => Action::Keep,
        KeyCode::Char('?') => Action::Help,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char('R') => Action::Reverse,
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Esc => Action::Back,
        KeyCode::Enter => Action::Open,
        KeyCode::Up | KeyCode::Char('k') => Action::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => Action::Move(1),
        KeyCode::PageUp => Action::Move(-10),
        KeyCode::PageDown => Action::Move(10),
        KeyCode::Char('s') => Action::Sort(Sort::Savings),
        KeyCode::Char('r') => Action::Sort(Sort::Remote),
        KeyCode::Char('c') => Action::Sort(Sort::Cost),
        KeyCode::Char('n') => Action::Sort(Sort::Name),
        _ => return None,
    })
}

/// Is there colour, by these variables of the environment? What colours say,
/// shapes say as well.
fn has_colour(variable: impl Fn(&str) -> Option<String>) -> bool {
    let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let terminal = variable("TERM").unwrap_or_default();
    let without = ["", "dumb", "vt100", "vt102", "vt220"].contains(&terminal.as_str());
    !refused && !without && !terminal.ends_with("-m") && !terminal.ends_with("-mono")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_quits_and_c_sorts() {
        let key = |code, modifiers| action(KeyEvent::new(code, modifiers), false);
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Some(Action::Sort(Sort::Cost)));
        assert_eq!(key(KeyCode::Char('s'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::Tab, KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char('R'), KeyModifiers::SHIFT), Some(Action::Reverse));
        let typed = |code| action(KeyEvent::new(code, KeyModifiers::NONE), true);
        assert_eq!(typed(KeyCode::Char('q')), Some(Action::Type('q')));
        assert_eq!((typed(KeyCode::Enter), typed(KeyCode::Esc)), (Some(Action::Keep), Some(Action::Back)));
    }

    #[test]
    fn colour_only_where_it_is_wanted_and_known() {
        let has = |no_color: Option<&str>, term: &str| {
            has_colour(|name| match name {
                "NO_COLOR" => no_color.map(ToOwned::to_owned),
                _ => Some(term.to_owned()),
            })
        };
        assert!(has(None, "xterm-256color") && has(Some(""), "linux"));
        assert!(!has(Some("1"), "xterm") && !has(None, "dumb") && !has(None, "") && !has(None, "xterm-mono"));
    }
}
