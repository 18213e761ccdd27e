// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm record`: samples into a file, for as long as it takes.

mod columns;
mod file;

use crate::shared::options::seconds;
use crate::shared::output::{self, bytes};
use crate::shared::recording::Header;
use crate::shared::sample::Sample;
use crate::shared::stop::Stop;
use crate::shared::view;
use anyhow::{Error, Result, bail};
use clap::Args;
use file::{Format, RecordingFile};
use log::warn;
use nuksm_sysroot::Root;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Write a sample of everything to a file, again and again.
///
/// JSON lines hold all that `nuksm status --json` shows, one sample per line,
/// and `nuksm report` makes pictures of them. CSV holds the host's counters
/// and the nodes, one column each, for other programs; tenants, whose number
/// changes, are in JSON lines only. docs/watching.md lists the columns.
///
/// Each line is written at once and is on the disk before the next look. A
/// file that exists is continued; what a crash cut off is mended, with a
/// message. When the disk is full, or a look fails, nuksm says so and tries
/// again at the next interval: the file stays readable, the summary at the
/// end counts what was lost, and the exit status is then 1.
///
/// When FILE is moved away, the next sample begins a new one: logrotate can move and
/// pack it (docs/watching.md), and `nuksm report` reads what gzip packed, too.
///
/// Ends after --duration, or on SIGINT or SIGTERM.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  nuksm record --output ksm.jsonl\n  nuksm record --output ksm.csv --counters --interval 1s --duration 10m"
)]
pub struct RecordArgs {
    /// Time between two samples.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub interval: Duration,
    /// End after so long; else on SIGINT or SIGTERM.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// Where to write; a recording that is there already is continued.
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// The form, when FILE does not end in .jsonl or .csv.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Leave out where pages are: no nodes and no tenants.
    ///
    /// Reading counters costs next to nothing. Finding out where pages are
    /// takes time in proportion to all mergeable memory, at each interval.
    #[arg(long)]
    pub counters: bool,
}

impl RecordArgs {
    /// The form asked for, or the one FILE's name tells.
    fn format(&self) -> Result<Format> {
        let ending = self.output.extension().and_then(|ending| ending.to_str());
        match (self.format, ending) {
            (Some(format), _) => Ok(format),
            (None, Some("jsonl")) => Ok(Format::Jsonl),
            (None, Some("csv")) => Ok(Format::Csv),
            _ => bail!(
                "{} does not say which form to write: let it end in .jsonl or .csv, or give --format",
                self.output.display()
            ),
        }
    }
}

/// Records until asked to stop.
pub fn run(root: &Root, args: &RecordArgs) -> Result<ExitCode> {
    let format = args.format()?;
    let stop = Stop::on_signals()?;
    let look = || {
        if args.counters { Sample::read_counters(root) } else { Sample::read(root, &|| stop.is_requested()) }
    };
    let start = Instant::now();
    let first = look()?;
    for note in &first.notes {
        warn!("{note}");
    }
    let open = |first: &Sample| {
        let header = Header::new(root, first, args.interval)?;
        let (file, mended) = RecordingFile::open(&args.output, format, header, first)?;
        if let Some(message) = mended {
            warn!("{message}");
        }
        Ok::<_, Error>(file)
    };
    let mut file = open(&first)?;
    file.append(&first)?;

    let mut tally = Tally { recorded: 1, ..Tally::default() };
    let mut next = start;
    while wait(&stop, start, &mut next, args) {
        let done = look().and_then(|sample| {
            if !file.is_in_place() {
                file = open(&sample)?;
            }
            file.append(&sample)
        });
        if done.as_ref().is_err_and(view::was_stopped) {
            break;
        }
        if let Some(message) = tally.count(&done) {
            warn!("{message}");
        }
    }
    output::print(&tally.summary(start.elapsed(), &args.output.display().to_string(), file.bytes()))?;
    Ok(if tally.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits for the time of the next sample; false when there is to be none. Times
/// that passed while the last look took its time are left out.
fn wait(stop: &Stop, start: Instant, next: &mut Instant, args: &RecordArgs) -> bool {
    while *next <= Instant::now() {
        *next += args.interval;
    }
    let end = args.duration.map(|duration| start + duration);
    let until = end.map_or(*next, |end| end.min(*next));
    !stop.wait(until.saturating_duration_since(Instant::now())) && until == *next
}

/// How many samples there were, and how many could not be had or written.
#[derive(Debug, Default)]
struct Tally {
    recorded: u64,
    lost: u64,
    lost_in_a_row: u64,
}

impl Tally {
    /// Counts a sample; says something when failing begins or ends.
    fn count(&mut self, done: &Result<()>) -> Option<String> {
        if let Err(error) = done {
            self.lost += 1;
            self.lost_in_a_row += 1;
            (self.lost_in_a_row == 1).then(|| format!("{error:#}: trying again at each interval"))
        } else {
            self.recorded += 1;
            let lost = std::mem::take(&mut self.lost_in_a_row);
            (lost > 0).then(|| format!("recording again; {lost} samples are lost"))
        }
    }

    fn summary(&self, time: Duration, path: &str, size: u64) -> String {
        let size = bytes(i64::try_from(size).unwrap_or(i64::MAX));
        format!(
            "recorded {} samples in {} s, lost {}; {path} has {size}\n",
            self.recorded,
            time.as_secs(),
            self.lost
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    fn args(output: &str, format: Option<Format>) -> RecordArgs {
        RecordArgs {
            interval: Duration::from_secs(1),
            duration: None,
            output: output.into(),
            format,
            counters: true,
        }
    }

    #[test]
    fn the_form_is_told_by_the_ending_or_by_the_option() {
        assert_eq!(args("a.b/ksm.jsonl", None).format().unwrap(), Format::Jsonl);
        assert_eq!(args("ksm.csv", None).format().unwrap(), Format::Csv);
        assert_eq!(args("ksm.csv", Some(Format::Jsonl)).format().unwrap(), Format::Jsonl);
        let message = args("ksm.txt", None).format().unwrap_err().to_string();
        assert!(message.contains(".jsonl or .csv"), "{message}");
    }

    #[test]
    fn failing_is_said_when_it_begins_and_when_it_ends() {
        let mut tally = Tally::default();
        let full = || Err(anyhow!("no room"));
        assert_eq!(tally.count(&Ok(())), None);
        assert_eq!(tally.count(&full()).unwrap(), "no room: trying again at each interval");
        assert_eq!(tally.count(&full()), None);
        assert_eq!(tally.count(&Ok(())).unwrap(), "recording again; 2 samples are lost");
        assert_eq!(tally.count(&Ok(())), None);
        let summary = tally.summary(Duration::from_secs(40), "ksm.csv", 2048);
        assert_eq!(summary, "recorded 3 samples in 40 s, lost 2; ksm.csv has 2.0 KiB\n");
    }

    #[test]
    fn waiting_leaves_out_what_passed_and_ends_with_the_duration() {
        let stop = Stop::on_signals().unwrap();
        let late = Instant::now().checked_sub(Duration::from_secs(350)).unwrap();
        let mut args = args("ksm.csv", None);
        (args.interval, args.duration) = (Duration::from_secs(100), Some(Duration::from_secs(300)));
        let mut next = late;
        assert!(!wait(&stop, late, &mut next, &args), "the end has passed");
        assert_eq!(next, late + Duration::from_secs(400), "three times have passed");
    }
}
