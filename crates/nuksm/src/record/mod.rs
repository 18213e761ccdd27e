// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm record`: samples into a file, for as long as it takes.

mod columns;
mod file;

use crate::cli;
use crate::output::{self, bytes};
use crate::sample::Sample;
use crate::stop::Stop;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use file::RecordingFile;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use sysroot::Root;

/// Options of `record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Time between two samples.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = cli::seconds)]
    pub interval: Duration,
    /// End after so long; else on SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = cli::seconds)]
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

/// The forms of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON lines: everything, for `nuksm report`.
    Jsonl,
    /// Comma-separated values: counters and nodes, for other programs.
    Csv,
}

/// What a recording says once, each time it is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Header {
    /// Version of the recording's form. The first field: a line is known by it.
    pub nuksm_recording: u32,
    /// Name of the host.
    pub host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Size of a page.
    pub page_bytes: u64,
    /// Seconds since 1970, UTC.
    pub start_unix_time: f64,
    /// Time between two samples.
    pub interval_seconds: u64,
}

impl Header {
    /// The only form so far.
    pub const VERSION: u32 = 1;
    /// How each line that holds a header begins.
    pub const MARK: &str = "{\"nuksm_recording\":";

    fn new(root: &Root, first: &Sample, interval: Duration) -> Result<Self> {
        Ok(Self {
            nuksm_recording: Self::VERSION,
            host: root.text("proc/sys/kernel/hostname")?.unwrap_or_default().trim().to_owned(),
            kernel: first.kernel.clone(),
            page_bytes: pagemap::page_size(),
            start_unix_time: first.unix_time,
            interval_seconds: interval.as_secs(),
        })
    }
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
    let look = || if args.counters { Sample::read_counters(root) } else { Sample::read(root) };
    let start = Instant::now();
    let first = look()?;
    for note in &first.notes {
        eprintln!("nuksm: {note}");
    }
    let header = Header::new(root, &first, args.interval)?;
    let (mut file, mended) = RecordingFile::open(&args.output, format, header, &first)?;
    if let Some(message) = mended {
        eprintln!("nuksm: {message}");
    }
    file.append(&first)?;

    let mut tally = Tally { recorded: 1, ..Tally::default() };
    let mut next = start;
    while wait(&stop, start, &mut next, args) {
        let done = look().and_then(|sample| file.append(&sample));
        if let Some(message) = tally.count(&done) {
            eprintln!("nuksm: {message}");
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
pub mod tests {
    use super::*;
    use anyhow::anyhow;

    pub fn header() -> Header {
        Header {
            nuksm_recording: 1,
            host: "big,host".into(),
            kernel: "6.12.0".into(),
            page_bytes: 4096,
            start_unix_time: 1000.0,
            interval_seconds: 10,
        }
    }

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
    fn a_header_is_known_by_its_first_field() {
        assert!(serde_json::to_string(&header()).unwrap().starts_with(Header::MARK));
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
        let late = Instant::now().checked_sub(Duration::from_millis(3_500)).unwrap();
        let mut args = args("ksm.csv", None);
        args.duration = Some(Duration::from_secs(3));
        let mut next = late;
        assert!(!wait(&stop, late, &mut next, &args), "the end has passed");
        assert_eq!(next, late + Duration::from_secs(4), "three times have passed");
    }
}
