// SPDX-License-Identifier: GPL-2.0-only
//! Samples into lines over time, and their averages.

use crate::shared::recording::Recording;
use crate::shared::sample::{NodeRow, Sample};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A figure over time, in pieces: between two runs, and where it is unknown,
/// there is nothing to be drawn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    /// Seconds since the recording's start, and the value then.
    pub pieces: Vec<Vec<(f64, f64)>>,
}

/// What there is to say of a line in three figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Mean of all samples.
    pub average: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Line {
    /// A figure that each sample has by itself.
    pub fn of(recording: &Recording, value: impl Fn(&Sample) -> Option<f64>) -> Self {
        Self::from_pairs(recording, |_, sample| value(sample))
    }

    /// A figure from the difference of two samples of one run.
    pub fn between(recording: &Recording, value: impl Fn(&Sample, &Sample) -> Option<f64>) -> Self {
        Self::from_pairs(recording, |before, sample| value(before?, sample))
    }

    fn from_pairs(recording: &Recording, value: impl Fn(Option<&Sample>, &Sample) -> Option<f64>) -> Self {
        let start = recording.start();
        let mut pieces = Vec::new();
        for run in &recording.runs {
            let mut piece = Vec::new();
            let mut before = None;
            for sample in &run.samples {
                let point = value(before, sample).map(|value| (sample.unix_time - start, value));
                match point.filter(|(time, value)| *time <= MOST && value.abs() <= MOST) {
                    Some(point) => piece.push(point),
                    None => pieces.push(std::mem::take(&mut piece)),
                }
                before = Some(sample);
            }
            pieces.push(piece);
        }
        pieces.retain(|piece| !piece.is_empty());
        Self { pieces }
    }

    /// All points.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.pieces.iter().flatten().copied()
    }

    /// `None` when nothing is known.
    pub fn summary(&self) -> Option<Summary> {
        let count = self.points().count();
        (count > 0).then(|| {
            let values = || self.points().map(|(_, value)| value);
            Summary {
                average: values().sum::<f64>() / count as f64,
                min: values().fold(f64::INFINITY, f64::min),
                max: values().fold(f64::NEG_INFINITY, f64::max),
            }
        })
    }
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Memory.
    Bytes,
    /// Base pages.
    Pages,
    /// Pages per second.
    PagesPerSecond,
    /// Parts of a hundred.
    Percent,
}

/// Some lines in one frame, the same for each recording.
#[derive(Debug)]
pub struct Picture {
    /// Part of a file's name.
    pub id: &'static str,
    /// Heading.
    pub title: &'static str,
    /// What it says, in a sentence.
    pub about: &'static str,
    /// Of all lines.
    pub unit: Unit,
    /// What the unit counts, where its name does not say.
    pub of: &'static str,
    /// Whether the axis begins at zero.
    pub with_zero: bool,
    /// Name of each line.
    pub names: Vec<String>,
    /// Per recording, a line per name.
    pub panels: Vec<Vec<Line>>,
}

/// No figure of a machine is larger; one that is came by another way.
const MOST: f64 = u64::MAX as f64;

fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn percent(part: u64, rest: u64) -> Option<f64> {
    let all = part.saturating_add(rest);
    (all > 0).then(|| part as f64 * 100.0 / all as f64)
}

/// Busy time of all CPUs since `before`, in percent of all their time.
fn host_cpu(before: &Sample, now: &Sample) -> Option<f64> {
    let busy = now.load.cpu_busy_seconds? - before.load.cpu_busy_seconds?;
    let total = now.load.cpu_total_seconds? - before.load.cpu_total_seconds?;
    (total > 0.0).then(|| busy * 100.0 / total)
}

fn ksmd_cpu(before: &Sample, now: &Sample) -> Option<f64> {
    now.ksmd_cpu_share(before).map(|share| share * 100.0)
}

fn used_locally(before: &Sample, now: &Sample) -> Option<f64> {
    now.used_locally(before).map(|part| part * 100.0)
}

/// A named figure with a line per recording.
pub type Row = (String, Unit, Vec<Line>);

/// All that pictures and tables show, each line of a recording by its number.
#[derive(Debug)]
pub struct Figures {
    /// The host's figures, for the table of averages and most pictures.
    pub host: Vec<Row>,
    /// Each node's figures: merged pages, and the local part of their uses.
    pub nodes: Vec<(u32, [Vec<Line>; 2])>,
    /// Each tenant's figures: places that map merged pages, the remote part of them, and
    /// memory saved; those with most first.
    pub tenants: Vec<(String, [Vec<Line>; 3])>,
}

impl Figures {
    /// Of all recordings.
    pub fn of(recordings: &[Recording]) -> Self {
        Self { host: host(recordings), nodes: nodes(recordings), tenants: tenants(recordings) }
    }
}

fn host(recordings: &[Recording]) -> Vec<Row> {
    let of = |name: &str, unit, value: fn(&Sample) -> Option<f64>| {
        (name.to_owned(), unit, recordings.iter().map(|recording| Line::of(recording, value)).collect())
    };
    let between = |name: &str, unit, value: fn(&Sample, &Sample) -> Option<f64>| {
        (name.to_owned(), unit, recordings.iter().map(|recording| Line::between(recording, value)).collect())
    };
    vec![
        of("saved, net", Unit::Bytes, |sample| sample.savings.net_saved_bytes.map(|bytes| bytes as f64)),
        of("saved, by merging", Unit::Bytes, |sample| Some(sample.savings.saved_bytes as f64)),
        of("zero pages", Unit::Bytes, |sample| Some(sample.savings.zero_page_saved_bytes as f64)),
        of("KSM's records", Unit::Bytes, |sample| number(sample.savings.metadata_bytes)),
        of("memory used", Unit::Bytes, |sample| number(sample.load.memory_used_bytes)),
        of("pages shared", Unit::Pages, |sample| number(sample.ksm.pages_shared)),
        of("pages sharing", Unit::Pages, |sample| number(sample.ksm.pages_sharing)),
        of("pages unshared", Unit::Pages, |sample| number(sample.ksm.pages_unshared)),
        of("pages volatile", Unit::Pages, |sample| number(sample.ksm.pages_volatile)),
        between("pages scanned", Unit::PagesPerSecond, |before, now| now.pages_per_second(before)),
        between("CPU of ksmd, of one CPU", Unit::Percent, ksmd_cpu),
        between("CPU of the host, of all CPUs", Unit::Percent, host_cpu),
        of("replicas", Unit::Bytes, |sample| number(sample.replica_bytes)),
        between("uses seen by looks that are local", Unit::Percent, used_locally),
        of("merged pages used locally", Unit::Percent, |sample| {
            let nodes = sample.nodes.as_ref()?.iter();
            let (local, remote) = nodes.fold((0_u64, 0_u64), |(local, remote), row| {
                (local.saturating_add(row.local_mappings), remote.saturating_add(row.remote_mappings))
            });
            percent(local, remote)
        }),
    ]
}

fn nodes(recordings: &[Recording]) -> Vec<(u32, [Vec<Line>; 2])> {
    let all = recordings.iter().flat_map(Recording::samples).flat_map(|sample| sample.nodes.iter().flatten());
    let ids: BTreeSet<u32> = all.map(|row| row.node).collect();
    let lines = |id: u32, value: fn(&NodeRow) -> Option<f64>| {
        let row = move |sample: &Sample| value(sample.nodes.as_ref()?.iter().find(|row| row.node == id)?);
        recordings.iter().map(|recording| Line::of(recording, row)).collect()
    };
    ids.into_iter()
        .map(|id| {
            let merged = lines(id, |row| Some(row.merged_pages as f64));
            (id, [merged, lines(id, |row| percent(row.local_mappings, row.remote_mappings))])
        })
        .collect()
}

fn tenants(recordings: &[Recording]) -> Vec<(String, [Vec<Line>; 3])> {
    let mut all: Vec<BTreeMap<String, [Line; 3]>> = recordings.iter().map(tenants_of).collect();
    let labels: BTreeSet<String> = all.iter().flat_map(|lines| lines.keys().cloned()).collect();
    let rows = labels.into_iter().map(|label| {
        let mut lines = [Vec::new(), Vec::new(), Vec::new()];
        for recording in &mut all {
            let of_this = recording.remove(&label).unwrap_or_default();
            lines.iter_mut().zip(of_this).for_each(|(lines, line)| lines.push(line));
        }
        (label, lines)
    });
    let mut rows: Vec<(String, [Vec<Line>; 3])> = rows.collect();
    let size =
        |lines: &[Line]| lines.iter().filter_map(Line::summary).map(|all| all.average).fold(0.0, f64::max);
    // None is below zero, so their bits have the order of the sizes themselves.
    rows.sort_by_cached_key(|(_, lines)| Reverse(size(&lines[0]).to_bits()));
    rows
}

/// A tenant's lines as they grow, and the number of the sample that each was in last.
#[derive(Default)]
struct Track {
    lines: [Line; 3],
    last: [usize; 3],
}

/// Lines of each tenant of a recording, by its label.
fn tenants_of(recording: &Recording) -> BTreeMap<String, [Line; 3]> {
    let start = recording.start();
    let mut tracks = BTreeMap::<(&str, u32), Track>::new();
    let mut number = 0;
    for run in &recording.runs {
        number += 1; // So that no line goes on from one run to the next.
        for sample in &run.samples {
            number += 1;
            for row in sample.tenants.iter().flatten() {
                let track = tracks.entry((&row.name, row.pid)).or_default();
                let values = [
                    Some(row.merged_mappings as f64),
                    percent(row.remote_mappings, row.local_mappings),
                    Some(row.saved_bytes as f64),
                ];
                for ((line, last), value) in track.lines.iter_mut().zip(&mut track.last).zip(values) {
                    let Some(value) = value else { continue };
                    let point = (sample.unix_time - start, value);
                    match line.pieces.last_mut().filter(|_| *last + 1 == number) {
                        Some(piece) => piece.push(point),
                        None => line.pieces.push(vec![point]),
                    }
                    *last = number;
                }
            }
        }
    }
    labelled(tracks).map(|(label, track)| (label, track.lines)).collect()
}

/// What each tenant of a recording is called: by its name, so that the same
/// machine has the same name in every recording; with the pid where a name is
/// another's as well, or looks as if it had one already: no two are called the same.
fn labelled<T>(tenants: BTreeMap<(&str, u32), T>) -> impl Iterator<Item = (String, T)> {
    let mut namesakes = HashMap::<&str, usize>::new();
    for (name, _) in tenants.keys() {
        *namesakes.entry(name).or_default() += 1;
    }
    tenants.into_iter().map(move |((name, pid), tenant)| {
        let is_unique = namesakes[name] == 1 && !ends_with_pid(name);
        (if is_unique { name.to_owned() } else { format!("{name} ({pid})") }, tenant)
    })
}

fn ends_with_pid(name: &str) -> bool {
    let pid = name.strip_suffix(')').and_then(|name| Some(name.rsplit_once(" (")?.1));
    pid.is_some_and(|pid| pid.chars().all(|char| char.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::recording::read::Run;
    use crate::shared::sample::TenantRow;
    use crate::shared::sample::tests::sample;

    /// A recording of one run per list; a sample per second, changed by `change`.
    fn recording(runs: &[usize], change: impl Fn(usize, &mut Sample)) -> Recording {
        let mut index = 0;
        let mut take = |count: usize| {
            let samples = (0..count).map(|_| {
                let mut sample = sample();
                sample.place(&crate::shared::view::tests::view());
                sample.unix_time += index as f64;
                change(index, &mut sample);
                index += 1;
                sample
            });
            Run { header: None, samples: samples.collect() }
        };
        let runs = runs.iter().map(|&count| take(count)).collect();
        Recording { name: "r".into(), runs, problems: Vec::new() }
    }

    #[test]
    fn lines_break_between_runs_and_where_nothing_is_known() {
        let recording = recording(&[3, 2], |index, sample| {
            sample.ksm.pages_scanned = (index != 1).then_some(index as u64 * 100);
        });
        let line = Line::of(&recording, |sample| number(sample.ksm.pages_scanned));
        assert_eq!(line.pieces, [vec![(0.0, 0.0)], vec![(2.0, 200.0)], vec![(3.0, 300.0), (4.0, 400.0)]]);
        let rate = Line::between(&recording, |before, now| now.pages_per_second(before));
        assert_eq!(rate.pieces, [[(4.0, 100.0)]], "never from one run to the next");
        assert_eq!(line.summary(), Some(Summary { average: 225.0, min: 0.0, max: 400.0 }));
        assert_eq!(Line::default().summary(), None);
    }

    #[test]
    fn the_host_s_cpu_is_a_part_of_all_its_cpus() {
        let recording = recording(&[2], |index, sample| {
            sample.load.cpu_busy_seconds = Some(10.0 + index as f64);
            sample.load.cpu_total_seconds = Some(100.0 + 4.0 * index as f64);
        });
        let rows = host(&[recording]);
        let row = rows.iter().find(|row| row.0.starts_with("CPU of the host")).unwrap();
        assert_eq!(row.2[0].pieces, [[(1.0, 25.0)]]);
    }

    #[test]
    fn the_engine_s_figures_are_there_where_it_is() {
        let with = recording(&[3, 1], |index, sample| {
            let used_local = Some(9_000 + 30 * index as u64);
            let used_remote = Some(1_000 + 30 * (index as u64 / 2));
            let engine = crate::shared::sample::tests::engine();
            sample.engine = Some(nuksm_ksmfs::Engine { used_local, used_remote, ..engine });
            sample.replica_bytes = Some(4096 * index as u64);
        });
        let rows = host(&[with, recording(&[2], |_, _| {})]);
        let lines = |name: &str| &rows.iter().find(|row| row.0 == name).unwrap().2;
        let used = lines("uses seen by looks that are local");
        assert_eq!(used[0].pieces, [[(1.0, 100.0), (2.0, 50.0)]], "never from one run to the next");
        assert_eq!(lines("replicas")[0].pieces[0].last(), Some(&(2.0, 8192.0)));
        assert!(used[1].pieces.is_empty() && lines("replicas")[1].pieces.is_empty(), "a stock kernel");
    }

    #[test]
    fn nodes_and_tenants_have_a_line_each_in_every_recording() {
        let with = recording(&[2], |_, _| {});
        let without = recording(&[1], |_, sample| (sample.nodes, sample.tenants) = (None, None));
        let both = [with, without];
        let nodes = nodes(&both);
        assert_eq!(nodes.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1]);
        assert!((nodes[1].1[1][0].summary().unwrap().average - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(nodes[1].1[1][1], Line::default());
        let tenants = tenants(&both);
        let names: Vec<&str> = tenants.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["t10", "t11", "t12"], "most mappings first");
        assert_eq!(tenants[1].1[1][0].pieces, [[(0.0, 100.0), (1.0, 100.0)]], "all remote");
    }

    #[test]
    fn forty_thousand_tenants_take_no_forty_thousand_looks_each() {
        let crowd = |_, sample: &mut Sample| {
            let row = sample.tenants.as_ref().unwrap()[0].clone();
            let tenant = |pid: u32| TenantRow { pid, name: format!("t{}", pid % 30_000), ..row.clone() };
            sample.tenants = Some((0..40_000).map(tenant).collect());
        };
        let recording = [recording(&[1], crowd)];
        let meter = crate::shared::cost::Meter::start();
        let tenants = tenants(&recording);
        // 1,600 million comparisons took 20 s and more; this takes a tenth of one.
        assert!(meter.cpu_seconds() < 5.0, "{} s", meter.cpu_seconds());
        let is_there = |label: &str| tenants.iter().any(|(name, _)| name == label);
        assert!(is_there("t5 (5)") && is_there("t10000") && !is_there("t5") && tenants.len() == 40_000);
    }

    #[test]
    fn tenants_of_one_name_are_told_apart_and_may_come_and_go() {
        let recording = recording(&[3], |index, sample| {
            let tenants = sample.tenants.as_mut().unwrap();
            tenants[0].name = "same".into();
            tenants[1].name = "same".into();
            if index == 1 {
                tenants.remove(0);
            }
        });
        let tenants = tenants(&[recording]);
        let names: Vec<&str> = tenants.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["same (10)", "same (11)", "t12"]);
        assert_eq!(tenants[0].1[0][0].pieces.len(), 2);
    }

    #[test]
    fn a_tenant_called_like_another_one_with_its_pid_hides_nobody() {
        let recording = recording(&[1], |_, sample| {
            let tenants = sample.tenants.as_mut().unwrap();
            (tenants[0].name, tenants[1].name) = ("web".into(), "web".into());
            let like = |name: &str, pid| TenantRow { name: name.into(), pid, ..tenants[2].clone() };
            let more =
                [like("web (10)", 99), like("web (10) (99)", 98), like("(10)", 97), like("db (a)", 96)];
            tenants.extend(more);
        });
        let tenants = tenants(&[recording]);
        let names: BTreeSet<&str> = tenants.iter().map(|(name, _)| name.as_str()).collect();
        let expected =
            ["web (10)", "web (11)", "web (10) (99)", "web (10) (99) (98)", "(10)", "db (a)", "t12"];
        assert_eq!(names, BTreeSet::from(expected));
    }

    #[test]
    fn a_tenant_s_lines_break_between_runs() {
        let tenants = tenants(&[recording(&[2, 1], |_, _| {})]);
        let lengths: Vec<usize> = tenants[0].1[0][0].pieces.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 1]);
    }
}
