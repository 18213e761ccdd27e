// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm top`: what merging does, as it happens.
//!
//! `gather` looks at the machine, in a thread of its own, because a look may
//! take seconds; `replay` has a recording's samples instead; `state` is what is shown
//! and what keys do to it; `draw` and `detail` put it on the screen.

mod detail;
mod draw;
mod gather;
mod help;
mod replay;
mod state;
mod style;

use crate::shared::options::seconds;
use crate::shared::output;
use crate::shared::recording::Recording;
use crate::shared::stop::Stop;
use crate::shared::view;
use anyhow::{Context, Result, bail};
use clap::Args;
use log::warn;
use nuksm_sysroot::Root;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use replay::Replay;
use state::{Action, Mode, Sort, State};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// How long a look that has come may wait to be seen; keys never wait.
const TICK: Duration = Duration::from_millis(100);

/// Between two looks, unless the user says otherwise.
const INTERVAL: Duration = Duration::from_secs(2);

/// Watch savings, cost and places of merged pages on the terminal.
///
/// Savings and scan rate over time, what ksmd's CPU time is worth, each node's
/// local and remote uses, and tenants sorted by savings (s), remote share (r),
/// cost (c) or name (n), R the other way round, / those with something in their name;
/// Enter shows one tenant and with whom it shares, ? what all keys do. q, Esc or Ctrl-C
/// ends it. Nodes and tenants need root.
///
/// A tenant's savings are its part of what it and its sharers save; its cost is
/// the pages that ksmd looks at for it, merged or not. On a kernel with the engine
/// there are also the local part of the use that its looks saw since the look before,
/// and the memory of replicas. Without colour (`NO_COLOR`) it says the same.
///
/// With --replay it shows a recording instead, on any machine and without root: each
/// sample as long after the one before it as it was recorded, or one per --interval.
/// Space stops it and has it go on, the right arrow shows the next sample; it ends after
/// the last one. With whom a tenant shares is in no recording.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  nuksm top --interval 5s\n  nuksm top --replay ksm.jsonl.2.gz --interval 1s"
)]
pub struct TopArgs {
    /// Time between two looks, or samples [default: 2s; of a recording, as recorded].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub interval: Option<Duration>,
    /// Show this recording in JSON lines, also when gzip packed it.
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
}

/// Shows it until told to quit.
pub fn run(root: &Root, args: &TopArgs) -> Result<ExitCode> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("top draws on a terminal, and this is none: use `nuksm status`, with --json for programs");
    }
    let host = root.text("proc/sys/kernel/hostname")?.unwrap_or_default().trim().to_owned();
    let stop = Stop::on_signals()?;
    let interval = args.interval.unwrap_or(INTERVAL);
    let mut state = State::new(host, interval, has_colour(|name| std::env::var(name).ok()));
    let looks = if let Some(path) = &args.replay {
        state.replay = Some(Replay::new(read(path)?, args.interval));
        None
    } else {
        view::require_ksm(root)?;
        Some(gather::start(root.clone(), interval))
    };
    // From here on a panic gives the terminal back, too.
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let result = watch(&mut terminal, &mut state, looks.as_ref(), &stop);
    ratatui::try_restore().context("cannot restore this terminal: `reset` does")?;
    result?;
    if let (Some(path), Some(replay)) = (&args.replay, &state.replay) {
        let (shown, count) = (replay.shown(), replay.count());
        output::print(&format!("showed {shown} of {count} samples of {}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The recording, which has to have something to show.
fn read(path: &Path) -> Result<Recording> {
    let recording = Recording::read(path)?;
    for problem in &recording.problems {
        warn!("{}: {problem}", recording.name);
    }
    if recording.runs.is_empty() {
        bail!("there is nothing to show: {} has no sample", path.display());
    }
    Ok(recording)
}

/// Draws, and does what keys and signals ask for.
fn watch(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    looks: Option<&Receiver<Result<gather::Look>>>,
    stop: &Stop,
) -> Result<()> {
    let mut is_new = true;
    while !stop.wait(Duration::ZERO) {
        let Some(has_come) = refresh(state, looks)? else { return Ok(()) };
        if is_new || has_come {
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
    }
    Ok(())
}

/// Takes what has come, from the machine or else from the recording: true when
/// something has, `None` when nothing more will.
fn refresh(state: &mut State, looks: Option<&Receiver<Result<gather::Look>>>) -> Result<Option<bool>> {
    let Some(looks) = looks else { return Ok(state.play(Instant::now())) };
    match looks.try_recv() {
        Ok(look) => {
            state.add(look);
            Ok(Some(true))
        }
        Err(TryRecvError::Empty) => Ok(Some(false)),
        Err(TryRecvError::Disconnected) => bail!("looking at the machine ended unexpectedly"),
    }
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
        KeyCode::Char(' ') => Action::Pause,
        KeyCode::Right => Action::Next,
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
        assert_eq!(key(KeyCode::Char(' '), KeyModifiers::NONE), Some(Action::Pause));
        let typed = |code| action(KeyEvent::new(code, KeyModifiers::NONE), true);
        assert_eq!(typed(KeyCode::Char('q')), Some(Action::Type('q')));
        assert_eq!(typed(KeyCode::Char(' ')), Some(Action::Type(' ')));
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
