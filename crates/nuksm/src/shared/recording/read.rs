// SPDX-License-Identifier: GPL-2.0-only
//! Recordings as they are read again: with what a crash or a hand did to them.

use super::header::Header;
use crate::shared::sample::Sample;
use anyhow::{Context, Result, bail};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// How each file that gzip made begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Lines with a problem that are named; of more only the number is.
const NAMED: usize = 10;

/// More than any line has: 50,000 tenants take a fifth of it.
const MAX_LINE: u64 = 64 << 20;

/// One file.
#[derive(Debug, Default)]
pub struct Recording {
    /// How tables and pictures call it.
    pub name: String,
    /// Stretches of samples, each on one kernel, ascending in time.
    pub runs: Vec<Run>,
    /// What could not be understood, and where.
    pub problems: Vec<String>,
}

/// From one start of the recording to its end.
#[derive(Debug)]
pub struct Run {
    /// `None` when the samples were not written by `nuksm record`.
    pub header: Option<Header>,
    /// At least one, ascending in time.
    pub samples: Vec<Sample>,
}

impl Recording {
    /// Reads a file of JSON lines.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let mut recording = Self { name: name.unwrap_or_default(), ..Self::default() };
        let bad = lines(path)
            .with_context(|| format!("cannot open {}", path.display()))
            .and_then(|lines| Ok(recording.read_lines(lines)?))
            .with_context(|| format!("cannot read {}", path.display()))?;
        if recording.runs.is_empty() {
            if let Some(problem) = recording.problems.first() {
                bail!(
                    "{} is no recording in JSON lines ({problem}): `nuksm record --output FILE.jsonl` makes \
                     one; CSV is for other programs",
                    path.display()
                );
            }
            recording.problems.push("the file has no samples".into());
        }
        if bad > NAMED {
            recording.problems.push(format!("and {} more lines like that", bad - NAMED));
        }
        Ok(recording)
    }

    /// Takes all lines; the number of those with a problem.
    fn read_lines(&mut self, mut file: impl BufRead) -> std::io::Result<usize> {
        let mut header: Option<Header> = None;
        let mut run: Vec<Sample> = Vec::new();
        let mut bad = 0;
        let mut name = |problems: &mut Vec<String>, problem| {
            bad += 1;
            if bad <= NAMED {
                problems.push(problem);
            }
        };
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            if file.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            if bytes.len() as u64 == MAX_LINE && !bytes.ends_with(b"\n") {
                self.problems.push(format!(
                    "line {number} has more than {} MiB: the rest is not read",
                    MAX_LINE >> 20
                ));
                break;
            }
            let line = String::from_utf8_lossy(&bytes);
            let line = line.trim_matches(|char: char| char.is_whitespace() || char == '\0');
            if line.is_empty() {
                continue;
            }
            let understood = if line.starts_with(Header::MARK) {
                serde_json::from_str::<Header>(line).map(|next| {
                    self.end_run(header.as_ref(), &mut run);
                    header = Some(next);
                })
            } else {
                serde_json::from_str::<Sample>(line).map(|sample| {
                    if let Some(last) = run.last() {
                        let is_later = sample.unix_time > last.unix_time;
                        if !is_later {
                            name(&mut self.problems, format!("line {number}: the clock went back"));
                        }
                        if !is_later || sample.kernel != last.kernel {
                            self.end_run(header.as_ref(), &mut run);
                        }
                    }
                    run.push(sample);
                })
            };
            if let Err(error) = understood {
                name(&mut self.problems, format!("line {number} is passed over: {error}"));
            }
        }
        self.end_run(header.as_ref(), &mut run);
        Ok(bad)
    }

    fn end_run(&mut self, header: Option<&Header>, samples: &mut Vec<Sample>) {
        if !samples.is_empty() {
            self.runs.push(Run { header: header.cloned(), samples: std::mem::take(samples) });
        }
    }

    /// All samples, in the order of the file.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.runs.iter().flat_map(|run| &run.samples)
    }

    /// Time of the earliest sample.
    pub fn start(&self) -> f64 {
        self.samples().map(|sample| sample.unix_time).fold(f64::INFINITY, f64::min)
    }
}

/// The file's lines, unpacked where gzip packed it.
fn lines(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::new(File::open(path)?);
    let is_packed = file.fill_buf()?.starts_with(&GZIP);
    Ok(if is_packed { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::shared::recording::header::tests::header;
    use crate::shared::sample::tests::sample;
    use std::io::Write;

    /// A line with a sample `seconds` after the first.
    fn at(seconds: f64) -> String {
        let mut sample = sample();
        sample.unix_time += seconds;
        serde_json::to_string(&sample).unwrap()
    }

    pub fn read(lines: &[&str]) -> Recording {
        let mut recording = Recording { name: "test".into(), ..Recording::default() };
        recording.read_lines(lines.join("\n").as_bytes()).unwrap();
        recording
    }

    fn lengths(recording: &Recording) -> Vec<usize> {
        recording.runs.iter().map(|run| run.samples.len()).collect()
    }

    #[test]
    fn a_torn_line_is_named_and_the_others_count() {
        let head = serde_json::to_string(&header()).unwrap();
        let torn = &at(10.0)[..70];
        let recording = read(&[&head, &at(0.0), torn, &head, "", &at(20.0), "\0\0\0"]);
        assert_eq!(lengths(&recording), [1, 1]);
        assert_eq!(recording.problems.len(), 1);
        assert!(recording.problems[0].starts_with("line 3 is passed over: EOF"), "{:?}", recording.problems);
        assert_eq!(recording.runs[1].header.as_ref().unwrap().host, "big,host");
    }

    #[test]
    fn what_gzip_packed_is_read_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ksm.jsonl.1.gz");
        let file = File::create(&path).unwrap();
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::default());
        writeln!(packed, "{}\n{}", serde_json::to_string(&header()).unwrap(), at(0.0)).unwrap();
        packed.finish().unwrap();
        let recording = Recording::read(&path).unwrap();
        assert_eq!((lengths(&recording), recording.name.as_str()), (vec![1], "ksm.jsonl.1"));
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let lines = format!("{}\n", at(0.0));
        let mut recording = Recording::default();
        let endless = BufReader::new(std::io::repeat(b'x'));
        recording.read_lines(lines.as_bytes().chain(endless)).unwrap();
        assert_eq!(lengths(&recording), [1]);
        assert_eq!(recording.problems, ["line 2 has more than 64 MiB: the rest is not read"]);
    }

    #[test]
    fn names_of_the_form_before_are_understood() {
        let mut now = sample();
        now.place(&crate::shared::view::tests::view());
        let now = serde_json::to_string(&now).unwrap();
        let mut before = now.clone();
        for (new, old) in [
            ("zero_page_saved_bytes", "zero_page_bytes"),
            ("net_saved_bytes", "net_bytes"),
            ("\"savings\":{\"saved_bytes\"", "\"savings\":{\"merged_bytes\""),
            ("merged_mappings", "merged_pages"),
        ] {
            assert!(before.contains(new), "{new}: {before}");
            before = before.replace(new, old);
        }
        // Nodes keep their mappings: only the tenants' are renamed.
        let (nodes, tenants) = before.split_once("\"tenants\"").unwrap();
        let tenants =
            tenants.replace("local_mappings", "local_pages").replace("remote_mappings", "remote_pages");
        let before = format!("{nodes}\"tenants\"{tenants}");
        let recording = read(&[&before]);
        assert_eq!(recording.problems, Vec::<String>::new());
        assert_eq!(serde_json::to_string(&recording.runs[0].samples[0]).unwrap(), now);
    }

    #[test]
    fn another_kernel_and_a_clock_that_went_back_begin_a_new_run() {
        let other = at(10.0).replace("6.12.0", "6.1.0");
        let recording = read(&[&at(0.0), &other, &at(20.0), &at(20.0)]);
        assert_eq!(lengths(&recording), [1, 1, 1, 1]);
        assert_eq!(recording.problems, ["line 4: the clock went back"]);
        assert!(recording.runs[0].header.is_none());
    }

    #[test]
    fn a_clock_that_goes_back_all_the_time_is_named_some_times() {
        let lines: Vec<String> = (0..1000).map(|number| at(-f64::from(number))).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, lines.join("\n")).unwrap();
        let recording = Recording::read(file.path()).unwrap();
        assert_eq!(recording.runs.len(), 1000);
        assert_eq!(recording.problems.len(), NAMED + 1);
        assert_eq!(recording.problems[NAMED], "and 989 more lines like that");
    }

    #[test]
    fn an_empty_file_is_said_to_be_empty_and_a_strange_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.jsonl");
        std::fs::write(&path, "").unwrap();
        assert_eq!(Recording::read(&path).unwrap().problems, ["the file has no samples"]);
        std::fs::write(&path, "host,kernel\nbig,6.12\n").unwrap();
        let message = Recording::read(&path).unwrap_err().to_string();
        assert!(
            message.contains("line 1 is passed over") && message.contains("CSV is for other"),
            "{message}"
        );
        std::fs::write(&path, "{}\n".repeat(12) + &at(0.0)).unwrap();
        let problems = Recording::read(&path).unwrap().problems;
        assert_eq!(problems.len(), NAMED + 1);
        assert_eq!(problems[NAMED], "and 2 more lines like that");
    }
}
