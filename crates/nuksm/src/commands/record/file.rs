// SPDX-License-Identifier: GPL-2.0-only
//! A recording's file: whole lines only, whatever happens meanwhile.

use super::columns::columns;
use crate::shared::recording::Header;
use crate::shared::sample::Sample;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use log::warn;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The forms of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON lines: everything, for `nuksm report`.
    Jsonl,
    /// Comma-separated values: counters and nodes, for other programs.
    Csv,
}

/// What is shown of a line that is removed.
const SHOWN: u64 = 500;

/// More than any first line has.
const FIRST_LINE: u64 = 1 << 16;

/// A file that grows by one line per sample.
#[derive(Debug)]
pub struct RecordingFile {
    file: File,
    path: PathBuf,
    format: Format,
    header: Header,
    /// Names of the columns; empty for JSON lines.
    columns: String,
    /// Up to here the file has whole lines.
    bytes: u64,
}

impl RecordingFile {
    /// Creates the file, or continues the recording that is there. Says what it
    /// had to mend for that.
    pub fn open(
        path: &Path,
        format: Format,
        header: Header,
        first: &Sample,
    ) -> Result<(Self, Option<String>)> {
        let name = path.display();
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            // It names tenants; and whoever may read it may lock it.
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot open {name}"))?;
        if !file.metadata()?.is_file() {
            bail!("{name} is no regular file: a recording has to be one, to be continued and mended");
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("{name} is being recorded to already"))?;
        let columns = match format {
            Format::Jsonl => String::new(),
            Format::Csv => names(&columns(&header, first))?,
        };
        let bytes = file.metadata()?.len();
        let mut recording = Self { file, path: path.to_owned(), format, header, columns, bytes };
        recording.check()?;
        let mended = recording.begin()?;
        Ok((recording, mended))
    }

    /// Has the file end with a whole line, and a heading where one belongs. Says what
    /// it had to mend for that.
    fn begin(&mut self) -> Result<Option<String>> {
        let mended = self.mend()?;
        let heading = match self.format {
            Format::Jsonl => Some(serde_json::to_string(&self.header)?),
            Format::Csv => (self.bytes == 0).then(|| self.columns.clone()),
        };
        if let Some(heading) = heading {
            self.write(&format!("{heading}\n"))?;
        }
        Ok(mended)
    }

    /// Appends a sample; afterwards it is on the disk. When that fails, the file
    /// is as it was.
    pub fn append(&mut self, sample: &Sample) -> Result<()> {
        let line = match self.format {
            Format::Jsonl => serde_json::to_string(sample)?,
            Format::Csv => {
                let columns = columns(&self.header, sample);
                if names(&columns)? != self.columns {
                    bail!("{} cannot take this sample: the nodes with memory changed", self.path.display());
                }
                row(columns.iter().map(|(_, value)| value))?
            }
        };
        let length = self.file.metadata()?.len();
        if length < self.bytes {
            // Somebody made it shorter, as logrotate's copytruncate does.
            self.bytes = length;
            if let Some(message) = self.begin()? {
                warn!("{message}");
            }
        }
        self.write(&format!("{line}\n"))
    }

    /// Does its name still lead to this file? Somebody may have moved it away.
    pub fn is_in_place(&self) -> bool {
        let there = std::fs::metadata(&self.path).and_then(|there| Ok((there, self.file.metadata()?)));
        there.is_ok_and(|(there, ours)| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
    }

    /// Size of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write(&mut self, text: &str) -> Result<()> {
        let done = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        if done.is_err() {
            // On a full disk part of the line may be there. Making a file shorter
            // takes no room.
            self.cut().with_context(|| format!("cannot mend {}", self.path.display()))?;
        }
        done.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Takes away what is behind the last whole line.
    fn cut(&self) -> io::Result<()> {
        self.file.set_len(self.bytes)
    }

    /// Refuses to touch a file that is something else.
    fn check(&mut self) -> Result<()> {
        let mut line = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        BufReader::new(&self.file).take(FIRST_LINE).read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line);
        let (line, is_whole) = line.strip_suffix('\n').map_or((&*line, false), |line| (line, true));
        let expected = match self.format {
            Format::Jsonl => Header::MARK,
            Format::Csv => &self.columns,
        };
        let fits = match self.format {
            _ if !is_whole && expected.starts_with(line) => true,
            Format::Jsonl => line.starts_with(expected),
            Format::Csv => line == expected,
        };
        if fits {
            return Ok(());
        }
        let path = self.path.display();
        if self.format == Format::Csv && line.starts_with("host,kernel,page_bytes,") {
            bail!(
                "{path} has other columns than this recording (other nodes, with or without --counters, or \
                 another version of nuksm): record to another file"
            );
        }
        bail!("{path} holds something else than a recording in this form: record to another file")
    }

    /// Deals with a last line that a crash cut off: in JSON lines it stays, as a
    /// line that readers see to be broken; in CSV it goes, because half a row,
    /// or half a figure, would look like a whole one. Half a heading goes, too.
    fn mend(&mut self) -> Result<Option<String>> {
        let whole = self.whole()?;
        if whole == self.bytes {
            return Ok(None);
        }
        let path = self.path.display().to_string();
        self.file.seek(SeekFrom::Start(whole))?;
        let torn = BufReader::new(&self.file);
        if self.format == Format::Jsonl && whole > 0 {
            let is_whole = serde_json::from_reader::<_, Sample>(torn).is_ok();
            self.write("\n")?;
            return Ok((!is_whole).then(|| {
                format!("the last line of {path} was cut off; it stays, and `nuksm report` will pass it over")
            }));
        }
        let mut text = Vec::new();
        torn.take(SHOWN).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        self.bytes = whole;
        self.cut().with_context(|| format!("cannot mend {path}"))?;
        let text = text.trim_end_matches('\0');
        Ok(Some(format!("the last line of {path} was cut off, and is removed: {text}")))
    }

    /// Up to where there are whole lines.
    fn whole(&mut self) -> Result<u64> {
        let mut chunk = vec![0; 1 << 16];
        let mut start = self.bytes;
        while start > 0 {
            let from = start.saturating_sub(chunk.len() as u64);
            chunk.truncate(usize::try_from(start - from)?);
            self.file.seek(SeekFrom::Start(from))?;
            self.file.read_exact(&mut chunk)?;
            if let Some(at) = chunk.iter().rposition(|&byte| byte == b'\n') {
                return Ok(from + at as u64 + 1);
            }
            start = from;
        }
        Ok(0)
    }
}

/// The names of columns, as the first line has them.
fn names(columns: &[(String, String)]) -> Result<String> {
    row(columns.iter().map(|(name, _)| name))
}

/// A line of CSV, without its end.
fn row<'a>(cells: impl Iterator<Item = &'a String>) -> Result<String> {
    let mut writer =
        csv::WriterBuilder::new().terminator(csv::Terminator::Any(b'\n')).from_writer(Vec::new());
    writer.write_record(cells)?;
    Ok(String::from_utf8(writer.into_inner()?)?.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::recording::header::tests::header;
    use crate::shared::sample::tests::sample;
    use std::fs;

    /// Records `samples` samples to `path`; what was mended before that.
    fn record(path: &Path, format: Format, samples: usize) -> Result<Option<String>> {
        let (mut file, mended) = RecordingFile::open(path, format, header(), &sample())?;
        for _ in 0..samples {
            file.append(&sample())?;
        }
        assert_eq!(file.bytes(), fs::metadata(path)?.len());
        Ok(mended)
    }

    fn lines(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n'));
        text.lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn json_lines_have_a_header_each_time_and_a_line_per_sample() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ksm.jsonl");
        assert_eq!(record(&path, Format::Jsonl, 2).unwrap(), None);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(record(&path, Format::Jsonl, 1).unwrap(), None);
        let lines = lines(&path);
        let headers: Vec<bool> = lines.iter().map(|line| line.starts_with(Header::MARK)).collect();
        assert_eq!(headers, [true, false, false, true, false]);
        let again: Sample = serde_json::from_str(&lines[4]).unwrap();
        assert_eq!(again.ksm, sample().ksm);
    }

    #[test]
    fn csv_has_one_heading_and_as_many_cells_in_each_row() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ksm.csv");
        assert_eq!(record(&path, Format::Csv, 1).unwrap(), None);
        assert_eq!(record(&path, Format::Csv, 1).unwrap(), None);
        let lines = lines(&path);
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("host,kernel,page_bytes,start_unix_seconds,"), "{}", lines[0]);
        // The host's name has a comma, between quotes.
        assert_eq!(lines[2].split(',').count(), lines[0].split(',').count() + 1);
    }

    #[test]
    fn a_torn_json_line_stays_and_the_recording_goes_on_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ksm.jsonl");
        record(&path, Format::Jsonl, 2).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 30]).unwrap();
        let message = record(&path, Format::Jsonl, 1).unwrap().unwrap();
        assert!(message.contains("was cut off; it stays"), "{message}");
        assert_eq!(lines(&path).len(), 5);
        assert_eq!(lines(&path)[2], text.lines().nth(2).unwrap()[..text.lines().nth(2).unwrap().len() - 29]);

        // Only the line end is missing: nothing is lost, nothing to be said.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.trim_end()).unwrap();
        assert_eq!(record(&path, Format::Jsonl, 0).unwrap(), None);
    }

    #[test]
    fn a_torn_csv_row_goes_because_it_would_look_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ksm.csv");
        record(&path, Format::Csv, 2).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 3]).unwrap();
        let message = record(&path, Format::Csv, 1).unwrap().unwrap();
        assert!(message.contains("removed: \"big,host\",6.12.0,4096,1000"), "{message}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_file_that_was_made_empty_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        for (name, format) in [("a.jsonl", Format::Jsonl), ("a.csv", Format::Csv)] {
            let path = dir.path().join(name);
            let (mut file, _) = RecordingFile::open(&path, format, header(), &sample()).unwrap();
            file.append(&sample()).unwrap();
            let before = fs::read_to_string(&path).unwrap();
            // As logrotate's copytruncate does.
            File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
            file.append(&sample()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), before, "{name}");
            assert_eq!(file.bytes(), before.len() as u64);
            file.cut().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), before, "{name}");
        }
    }

    #[test]
    fn a_last_line_without_an_end_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        for (name, format) in [("a.jsonl", Format::Jsonl), ("a.csv", Format::Csv)] {
            let path = dir.path().join(name);
            record(&path, format, 1).unwrap();
            let whole = fs::metadata(&path).unwrap().len();
            // What a crash of the machine may leave: room that nobody wrote to.
            File::options().write(true).open(&path).unwrap().set_len(whole + (64 << 20)).unwrap();
            let meter = crate::shared::cost::Meter::start();
            let message = record(&path, format, 1).unwrap().unwrap();
            // Copied again with each piece, it took 8 s.
            assert!(meter.cpu_seconds() < 4.0, "{} s", meter.cpu_seconds());
            assert!(message.contains("was cut off") && message.len() < 1000, "{}", message.len());
        }
    }

    #[test]
    fn a_heading_that_was_cut_off_is_no_stranger() {
        let dir = tempfile::tempdir().unwrap();
        for (name, format) in [("a.jsonl", Format::Jsonl), ("a.csv", Format::Csv)] {
            let path = dir.path().join(name);
            record(&path, format, 0).unwrap();
            for length in [1, 15, 40] {
                let text = fs::read_to_string(&path).unwrap();
                fs::write(&path, &text[..length]).unwrap();
                assert!(record(&path, format, 1).unwrap().is_some(), "{name} {length}");
            }
        }
    }

    #[test]
    fn other_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for (name, format) in [("notes.jsonl", Format::Jsonl), ("notes.csv", Format::Csv)] {
            for text in ["my notes", "my notes\nand more", "\n", "host,kernel,page_bytes,run\n1,2"] {
                let path = dir.path().join(name);
                fs::write(&path, text).unwrap();
                let message = record(&path, format, 1).unwrap_err().to_string();
                assert!(message.contains("record to another file"), "{message}");
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
            }
        }
        let message = record(Path::new("/dev/null"), Format::Csv, 1).unwrap_err().to_string();
        assert!(message.contains("no regular file"), "{message}");
    }

    #[test]
    fn two_cannot_record_to_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ksm.csv");
        let _first = RecordingFile::open(&path, Format::Csv, header(), &sample()).unwrap();
        let message = record(&path, Format::Csv, 1).unwrap_err().to_string();
        assert!(message.contains("being recorded to already"), "{message}");
    }

    #[test]
    fn csv_refuses_a_sample_with_other_nodes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ksm.csv");
        let (mut file, _) = RecordingFile::open(&path, Format::Csv, header(), &sample()).unwrap();
        let mut other = sample();
        other.place(&crate::shared::view::tests::view());
        let message = file.append(&other).unwrap_err().to_string();
        assert!(message.contains("the nodes with memory changed"), "{message}");
        assert_eq!(lines(&path).len(), 1);
    }
}
