// SPDX-License-Identifier: GPL-2.0-only
//! What is shown, and what keys do to it.

use super::gather::Look;
use super::replay::{Replay, Turn};
use crate::shared::sample::{Sample, TenantRow};
use anyhow::Result;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Looks that are remembered: more than the widest screen has columns.
const HISTORY: usize = 512;

/// What a user can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Leave.
    Quit,
    /// Close the help, the tenant that is open or the filter, else leave.
    Back,
    /// Open the selected tenant.
    Open,
    /// Select the tenant so many further down.
    Move(isize),
    /// Sort by something.
    Sort(Sort),
    /// The other way round.
    Reverse,
    /// Show or hide what the keys do.
    Help,
    /// Begin to type a filter.
    Filter,
    /// Another character of it.
    Type(char),
    /// Take the last one away.
    Erase,
    /// Keep it, and have the other keys again.
    Keep,
    /// Stop a recording, or have it go on.
    Pause,
    /// Its next sample.
    Next,
}

/// What tenants are sorted by, the most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Part of the savings.
    Savings,
    /// Part of merged pages that is remote.
    Remote,
    /// Pages that ksmd has to look at.
    Cost,
    /// By name.
    Name,
}

/// What keys do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Each its own.
    Keys,
    /// They add to the filter.
    Filter,
    /// The same as `Keys`, while the screen says what that is.
    Help,
}

/// What is remembered of a look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moment {
    /// Savings after KSM's own records where they are known; never below 0.
    pub saved_bytes: u64,
    /// `None` for the first look.
    pub pages_per_second: Option<u64>,
}

/// All that is drawn.
#[derive(Debug)]
pub struct State {
    /// Name of the host.
    pub host: String,
    /// Time between looks.
    pub interval: Duration,
    /// May colours be used?
    pub colour: bool,
    /// The last look; `None` before the first.
    pub look: Option<Look>,
    /// Part of a CPU that ksmd used between the last two looks.
    pub ksmd_share: Option<f64>,
    /// Of the use that the kernel's looks saw since the look before, the local part, 0 to 1.
    pub used_locally: Option<f64>,
    /// Earlier looks, the last one last.
    pub history: VecDeque<Moment>,
    /// Why the last look failed, if it did.
    pub trouble: Option<String>,
    /// Order of tenants.
    pub sort: Sort,
    /// The least first.
    pub reversed: bool,
    /// Only tenants with this in their name, or with this pid, are shown.
    pub filter: String,
    /// What keys do now.
    pub mode: Mode,
    /// The open tenant's pid.
    pub open: Option<u32>,
    /// The recording that is played, if one is.
    pub replay: Option<Replay>,
    selected: Option<u32>,
}

impl State {
    /// Before anything is known.
    pub fn new(host: String, interval: Duration, colour: bool) -> Self {
        Self {
            host,
            interval,
            colour,
            look: None,
            ksmd_share: None,
            used_locally: None,
            history: VecDeque::new(),
            trouble: None,
            sort: Sort::Savings,
            reversed: false,
            filter: String::new(),
            mode: Mode::Keys,
            open: None,
            replay: None,
            selected: None,
        }
    }

    /// Takes the recording's next sample if it is its turn: true when it was, `None`
    /// when there is no more.
    pub fn play(&mut self, now: Instant) -> Option<bool> {
        match self.replay.as_mut()?.next(now) {
            Turn::End => None,
            Turn::Wait => Some(false),
            Turn::Show(scene) => {
                if let Some(host) = scene.begins_on {
                    self.host = host;
                    self.look = None;
                }
                self.add(Ok(scene.look));
                Some(true)
            }
        }
    }

    /// Takes a look that has come, or the error there was instead.
    pub fn add(&mut self, look: Result<Look>) {
        let look = match look {
            Ok(look) => look,
            Err(error) => {
                self.trouble = Some(format!("{error:#}"));
                return;
            }
        };
        self.trouble = None;
        let sample = &look.sample;
        let before = self.look.as_ref().map(|look| &look.sample);
        self.ksmd_share = before.and_then(|before| sample.ksmd_cpu_share(before));
        self.used_locally = before.and_then(|before| sample.used_locally(before));
        // Above 0, and far below the limits of the type.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let pages_per_second =
            before.and_then(|before| sample.pages_per_second(before)).map(|rate| rate.round() as u64);
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Moment { saved_bytes: saved_bytes(sample), pages_per_second });
        self.look = Some(look);
    }

    /// Does what was asked for; true when that is to quit.
    pub fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Quit => return true,
            Action::Back => return !self.close(),
            Action::Open => self.open = self.selected().map(|(_, tenant)| tenant.pid),
            Action::Move(rows) => self.move_by(rows),
            Action::Sort(sort) => self.sort = sort,
            Action::Reverse => self.reversed = !self.reversed,
            Action::Help if self.mode == Mode::Help => self.mode = Mode::Keys,
            Action::Help => self.mode = Mode::Help,
            Action::Filter => self.mode = Mode::Filter,
            Action::Type(char) => self.filter.push(char),
            Action::Erase => drop(self.filter.pop()),
            Action::Keep => self.mode = Mode::Keys,
            Action::Pause => self.replay.iter_mut().for_each(Replay::pause),
            Action::Next => self.replay.iter_mut().for_each(Replay::skip),
        }
        false
    }

    /// Closes what was opened last, if anything was.
    fn close(&mut self) -> bool {
        let mode = std::mem::replace(&mut self.mode, Mode::Keys);
        if mode == Mode::Filter {
            self.filter.clear();
        } else if mode == Mode::Keys && self.open.is_some() {
            self.open = None;
        } else if mode == Mode::Keys && !self.filter.is_empty() {
            self.filter.clear();
        } else if mode == Mode::Keys {
            return false;
        }
        true
    }

    /// The selection stays with its tenant, wherever the order puts it.
    fn move_by(&mut self, rows: isize) {
        let tenants = self.tenants();
        let Some((row, _)) = self.selected() else { return };
        let row = row.saturating_add_signed(rows).min(tenants.len() - 1);
        let pid = tenants[row].pid;
        self.selected = Some(pid);
        if self.open.is_some() {
            self.open = self.selected;
        }
    }

    /// Tenants in the order asked for.
    pub fn tenants(&self) -> Vec<&TenantRow> {
        let all = self.look.as_ref().and_then(|look| look.sample.tenants.as_ref());
        let wanted = |row: &&TenantRow| row.name.contains(&self.filter) || row.pid.to_string() == self.filter;
        let mut tenants: Vec<&TenantRow> = all.into_iter().flatten().filter(wanted).collect();
        match self.sort {
            Sort::Savings => tenants.sort_by_key(|row| Reverse(row.saved_bytes)),
            Sort::Remote => {
                let share = |row: &TenantRow| row.remote_mappings as f64 / row.merged_mappings.max(1) as f64;
                tenants.sort_by(|left, right| share(right).total_cmp(&share(left)));
            }
            Sort::Cost => tenants.sort_by_key(|row| Reverse(row.tracked_pages)),
            Sort::Name => tenants.sort_by_key(|row| &row.name),
        }
        if self.reversed {
            tenants.reverse();
        }
        tenants
    }

    /// The selected tenant and its row; the first when there was none, or when it
    /// has ended.
    pub fn selected(&self) -> Option<(usize, &TenantRow)> {
        let tenants = self.tenants();
        let row = tenants.iter().position(|row| Some(row.pid) == self.selected).unwrap_or(0);
        tenants.get(row).map(|tenant| (row, *tenant))
    }

    /// With whom a tenant shares how many pages: pid, name, pages; the most first.
    /// `None` when that is not known.
    pub fn partners(&self, pid: u32) -> Option<Vec<(u32, &str, u64)>> {
        let mut partners = self.look.as_ref()?.sharing.as_ref()?.partners(pid);
        partners.sort_by_key(|(_, _, pages)| Reverse(*pages));
        Some(partners)
    }
}

/// Savings after KSM's own records, where they are known.
pub fn saved_bytes(sample: &Sample) -> u64 {
    let savings = &sample.savings;
    match savings.net_saved_bytes {
        Some(net) => u64::try_from(net).unwrap_or(0),
        None => savings.saved_bytes.saturating_add(savings.zero_page_saved_bytes),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::commands::top::replay::tests::recording;
    use crate::shared::pairs::Sharing;
    use anyhow::anyhow;

    /// A look at the small host of other tests, `seconds` after the first.
    pub fn look(seconds: u32) -> Look {
        let view = crate::shared::view::tests::view();
        let mut sample = crate::shared::sample::tests::sample();
        sample.place(&view);
        sample.unix_time += f64::from(seconds);
        sample.ksm.pages_scanned = Some(5_000 + u64::from(seconds) * 300);
        sample.ksmd_cpu_seconds = Some(1.5 + f64::from(seconds) * 0.125);
        let tracked = [Some(5_000), None, Some(9_000)];
        for (row, tracked) in sample.tenants.iter_mut().flatten().zip(tracked) {
            row.tracked_pages = tracked;
        }
        Look { sample, sharing: Some(Sharing::new(&view)) }
    }

    pub fn state() -> State {
        let mut state = State::new("big".into(), Duration::from_secs(2), false);
        state.add(Ok(look(0)));
        state.add(Ok(look(2)));
        state
    }

    fn names(state: &State) -> Vec<&str> {
        state.tenants().iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn tenants_are_in_the_order_asked_for() {
        let mut state = state();
        assert_eq!(names(&state), ["t10", "t11", "t12"]);
        for (sort, order) in [
            (Sort::Remote, ["t11", "t10", "t12"]),
            (Sort::Cost, ["t12", "t10", "t11"]),
            (Sort::Name, ["t10", "t11", "t12"]),
        ] {
            assert!(!state.act(Action::Sort(sort)));
            assert_eq!(names(&state), order, "{sort:?}");
        }
    }

    #[test]
    fn the_selection_stays_with_its_tenant() {
        let mut state = state();
        let selected = |state: &State| state.selected().map(|(row, tenant)| (row, tenant.pid));
        assert_eq!(selected(&state), Some((0, 10)));
        state.act(Action::Move(1));
        assert_eq!(selected(&state), Some((1, 11)));
        state.act(Action::Sort(Sort::Remote));
        assert_eq!(selected(&state), Some((0, 11)));
        state.act(Action::Move(-10));
        state.act(Action::Move(10));
        assert_eq!(selected(&state), Some((2, 12)));
        state.look.as_mut().unwrap().sample.tenants.as_mut().unwrap().pop();
        assert_eq!(selected(&state), Some((0, 11)), "it has ended");
    }

    #[test]
    fn escape_closes_what_is_open_before_it_leaves() {
        let mut state = state();
        assert!(!state.act(Action::Open));
        assert_eq!(state.open, Some(10));
        assert!(!state.act(Action::Move(1)));
        assert_eq!(state.open, Some(11), "the next one, still open");
        assert!(!state.act(Action::Back));
        assert!(state.act(Action::Back));
        assert!(state.act(Action::Quit));
    }

    #[test]
    fn a_filter_chooses_by_name_or_pid_until_it_is_dropped() {
        let mut state = state();
        let pids = |state: &State| state.tenants().iter().map(|row| row.pid).collect::<Vec<_>>();
        let all = pids(&state);
        state.act(Action::Filter);
        for char in "t11x".chars() {
            state.act(Action::Type(char));
        }
        assert_eq!(pids(&state), [0_u32; 0]);
        assert!(state.selected().is_none());
        state.act(Action::Erase);
        state.act(Action::Keep);
        assert_eq!((pids(&state), state.mode), (vec![11], Mode::Keys));
        assert!(!state.act(Action::Back), "the filter goes, the program stays");
        assert_eq!(pids(&state), all);
        for action in [Action::Filter, Action::Type('1'), Action::Type('2'), Action::Keep] {
            state.act(action);
        }
        assert_eq!(pids(&state), [12]);
        state.act(Action::Filter);
        state.act(Action::Back);
        assert_eq!((pids(&state), state.mode), (all, Mode::Keys));
    }

    #[test]
    fn the_order_can_be_reversed() {
        let mut state = state();
        let mut pids: Vec<u32> = state.tenants().iter().map(|row| row.pid).collect();
        state.act(Action::Reverse);
        pids.reverse();
        assert_eq!(state.tenants().iter().map(|row| row.pid).collect::<Vec<_>>(), pids);
    }

    #[test]
    fn help_comes_and_goes() {
        let mut state = state();
        state.act(Action::Help);
        assert!(state.mode == Mode::Help && !state.act(Action::Back) && state.mode == Mode::Keys);
    }

    #[test]
    fn partners_are_on_either_side_of_a_pair() {
        let state = state();
        let partners = |pid| state.partners(pid).unwrap();
        assert_eq!(partners(10), [(11, "t11", 2), (12, "t12", 1)]);
        assert_eq!(partners(12), [(10, "t10", 1)]);
        assert!(partners(99).is_empty());
    }

    #[test]
    fn rates_are_from_look_to_look_and_a_failed_one_changes_nothing() {
        let mut state = state();
        assert_eq!(state.ksmd_share, Some(0.125));
        let rates: Vec<_> = state.history.iter().map(|moment| moment.pages_per_second).collect();
        assert_eq!(rates, [None, Some(300)]);
        state.add(Err(anyhow!("no more /proc")));
        assert_eq!((state.history.len(), state.trouble.as_deref()), (2, Some("no more /proc")));
        state.add(Ok(look(4)));
        assert_eq!(state.trouble, None);
        for second in 0..1000 {
            state.add(Ok(look(second)));
        }
        assert_eq!(state.history.len(), HISTORY);
    }

    #[test]
    fn a_recording_has_rates_within_a_run_and_none_from_one_to_the_next() {
        let mut recording = recording(&[&[1000.0, 1002.0], &[1010.0]]);
        for (run, samples) in recording.runs.iter_mut().zip([[500, 800], [5, 0]]) {
            for (sample, scanned) in run.samples.iter_mut().zip(samples) {
                sample.ksm.pages_scanned = Some(scanned);
            }
        }
        let mut state = State::new(String::new(), Duration::from_secs(2), true);
        state.replay = Some(Replay::new(recording, None));
        let mut now = Instant::now();
        assert_eq!((state.play(now), state.play(now)), (Some(true), Some(false)));
        assert_eq!(state.host, "big,host");
        for is_more in [Some(true), Some(true), None] {
            now += Duration::from_secs(2);
            assert_eq!(state.play(now), is_more);
        }
        let rates: Vec<_> = state.history.iter().map(|moment| moment.pages_per_second).collect();
        assert_eq!(rates, [None, Some(150), None], "there was a boot between the runs");
        assert_eq!(state.ksmd_share, None);
    }

    #[test]
    fn without_anything_known_keys_do_no_harm() {
        let mut state = State::new("big".into(), Duration::from_secs(2), true);
        for action in [
            Action::Open,
            Action::Move(1),
            Action::Move(-1),
            Action::Sort(Sort::Cost),
            Action::Pause,
            Action::Next,
        ] {
            assert!(!state.act(action));
        }
        assert_eq!(state.open, None);
    }
}
