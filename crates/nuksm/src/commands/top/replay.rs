// SPDX-License-Identifier: GPL-2.0-only
//! A recording, sample by sample: each as long after the one before it as it was
//! recorded, or when a key asks for it.

use super::gather::Look;
use crate::shared::recording::Recording;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a sample stays that no later one follows in its run.
const LAST: Duration = Duration::from_secs(2);

/// What has not been played yet, and how to go on.
#[derive(Debug)]
pub struct Replay {
    rest: VecDeque<Scene>,
    /// Samples of the whole recording.
    count: usize,
    /// When the last one came, and how long it is to stay.
    shown: Option<(Instant, Duration)>,
    is_paused: bool,
    is_next_wanted: bool,
}

/// A sample, and what it needs to be shown.
#[derive(Debug)]
pub struct Scene {
    /// What is known of its moment.
    pub look: Look,
    /// The host, where a run begins: nothing before it can be compared with it.
    pub begins_on: Option<String>,
    stays: Duration,
}

/// What is to be done now.
#[derive(Debug)]
pub enum Turn {
    /// Nothing yet.
    Wait,
    /// Show this.
    Show(Box<Scene>),
    /// There is no more.
    End,
}

impl Replay {
    /// Plays a sample per `interval`, or at the pace at which they were recorded.
    pub fn new(recording: Recording, interval: Option<Duration>) -> Self {
        let mut rest = VecDeque::new();
        for run in recording.runs {
            let host = run.header.map_or_else(|| "an unknown host".into(), |header| header.host);
            let mut begins_on = Some(host);
            let times: Vec<f64> = run.samples.iter().map(|sample| sample.unix_time).collect();
            let pauses = times.windows(2).map(|times| Duration::try_from_secs_f64(times[1] - times[0]));
            let pauses = pauses.map(|pause| pause.unwrap_or(LAST)).chain([LAST]);
            for (sample, recorded) in run.samples.into_iter().zip(pauses) {
                let look = Look { sample, sharing: None };
                let stays = interval.unwrap_or(recorded);
                rest.push_back(Scene { look, begins_on: begins_on.take(), stays });
            }
        }
        Self { count: rest.len(), rest, shown: None, is_paused: false, is_next_wanted: false }
    }

    /// Samples of the whole recording.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Those of them that were shown.
    pub fn shown(&self) -> usize {
        self.count - self.rest.len()
    }

    /// Does it go on by keys only?
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Stops, or goes on.
    pub fn pause(&mut self) {
        self.is_paused = !self.is_paused;
    }

    /// Asks for the next sample, whatever its time is.
    pub fn skip(&mut self) {
        self.is_next_wanted = true;
    }

    /// The next sample, if it is its turn `now`.
    pub fn next(&mut self, now: Instant) -> Turn {
        let has_stayed = self.shown.is_none_or(|(since, stays)| now.duration_since(since) >= stays);
        if !std::mem::take(&mut self.is_next_wanted) && (self.is_paused || !has_stayed) {
            return Turn::Wait;
        }
        let Some(scene) = self.rest.pop_front() else { return Turn::End };
        self.shown = Some((now, scene.stays));
        Turn::Show(Box::new(scene))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::shared::recording::header::tests::header;
    use crate::shared::recording::read::Run;
    use crate::shared::sample::Sample;
    use crate::shared::sample::tests::sample;

    /// Runs with samples at these times.
    pub fn recording(runs: &[&[f64]]) -> Recording {
        let sample = |&seconds: &f64| Sample { unix_time: seconds, ..sample() };
        let run =
            |times: &&[f64]| Run { header: Some(header()), samples: times.iter().map(sample).collect() };
        Recording { runs: runs.iter().map(run).collect(), ..Recording::default() }
    }

    /// When samples come, in tenths of a second from the start; the end, too.
    fn times(mut replay: Replay) -> Vec<u64> {
        let start = Instant::now();
        let mut times = Vec::new();
        for tenths in 0.. {
            match replay.next(start + Duration::from_millis(tenths * 100)) {
                Turn::Wait => {}
                Turn::Show(_) => times.push(tenths),
                Turn::End => return [times, vec![tenths]].concat(),
            }
        }
        times
    }

    fn is_shown(turn: &Turn) -> bool {
        matches!(turn, Turn::Show(_))
    }

    #[test]
    fn samples_come_as_they_were_recorded_or_one_per_interval() {
        let recording = || recording(&[&[1000.0, 1001.0, 1004.5], &[90_000.0]]);
        assert_eq!(
            times(Replay::new(recording(), None)),
            [0, 10, 45, 65, 85],
            "a day between two runs is not"
        );
        assert_eq!(times(Replay::new(recording(), Some(Duration::from_secs(1)))), [0, 10, 20, 30, 40]);
    }

    #[test]
    fn while_it_pauses_only_a_key_shows_the_next() {
        let mut replay = Replay::new(recording(&[&[1000.0, 1001.0, 1002.0]]), None);
        let start = Instant::now();
        let late = start + Duration::from_secs(60);
        assert!(is_shown(&replay.next(start)));
        replay.pause();
        assert!(replay.is_paused() && !is_shown(&replay.next(late)));
        replay.skip();
        assert!(is_shown(&replay.next(late)) && !is_shown(&replay.next(late)), "one for each key");
        assert_eq!((replay.shown(), replay.count()), (2, 3));
        replay.pause();
        assert!(is_shown(&replay.next(late + Duration::from_secs(1))));
        replay.skip();
        assert!(matches!(replay.next(late + Duration::from_secs(1)), Turn::End), "at once");
    }

    #[test]
    fn each_run_says_where_it_begins() {
        let mut replay = Replay::new(recording(&[&[1.0, 2.0], &[1.0]]), None);
        let mut begins = Vec::new();
        loop {
            replay.skip();
            let Turn::Show(scene) = replay.next(Instant::now()) else { break };
            begins.push(scene.begins_on);
        }
        assert_eq!(begins, [Some("big,host".to_owned()), None, Some("big,host".to_owned())]);
    }
}
