// SPDX-License-Identifier: GPL-2.0-only
//! Tables, units and JSON on standard output.

use anyhow::Result;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Padding, Style};

/// A table under construction: a heading, then rows.
pub struct Table {
    builder: Builder,
    left_columns: usize,
}

impl Table {
    /// A table whose first `left_columns` columns hold words, the others numbers.
    pub fn new<const N: usize>(left_columns: usize, heading: [&str; N]) -> Self {
        Self::with_heading(left_columns, heading.iter().map(ToString::to_string).collect())
    }

    /// The same for a heading whose length is not known beforehand.
    pub fn with_heading(left_columns: usize, heading: Vec<String>) -> Self {
        let mut builder = Builder::new();
        builder.push_record(heading);
        Self { builder, left_columns }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.builder.push_record(cells);
    }

    /// The text, with a line end.
    pub fn render(self) -> String {
        let mut table = self.builder.build();
        table.with(Style::empty()).with(Padding::new(0, 2, 0, 0));
        table.modify(Columns::new(self.left_columns..), Alignment::right());
        table.modify(Columns::new(..self.left_columns), Alignment::left());
        let text = table.to_string();
        text.lines().map(|line| format!("  {}\n", line.trim_end())).collect()
    }
}

/// Are these two names of one file that exists? What is read is not to be written.
pub fn is_same(left: &Path, right: &Path) -> bool {
    let number = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    number(left).is_ok_and(|left| number(right).is_ok_and(|right| left == right))
}

/// A named figure and what it means.
pub fn line(name: &str, value: impl Display, remark: &str) -> String {
    format!("  {name:<16}{value:>12}  {remark}\n")
}

/// Bytes in the unit a person would choose.
pub fn bytes(bytes: i64) -> String {
    let size = bytes.unsigned_abs();
    let (unit, name) = match size {
        0..0x10_0000 => (1_u64 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        0x4000_0000..0x100_0000_0000 => (1 << 30, "GiB"),
        0x100_0000_0000..0x4_0000_0000_0000 => (1 << 40, "TiB"),
        _ => (1 << 50, "PiB"),
    };
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{:.1} {name}", size as f64 / unit as f64)
}

/// `part` of `whole` in percent; a dash when there is nothing to divide.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}", part as f64 * 100.0 / whole as f64) }
}

/// A moment as people write it, UTC; a dash for one that no calendar has.
pub fn date(unix_time: f64) -> String {
    let since = Duration::try_from_secs_f64(unix_time).ok().filter(|since| *since < YEAR_10000);
    let text = since.map(|since| humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string());
    text.map_or_else(|| "-".into(), |text| text.replace('T', " ").replace('Z', ""))
}

/// Where four figures of a year end, since 1970.
const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);

/// A figure this kernel or user may not have.
pub fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// Clears the terminal, if it is one, and goes to its top left corner.
pub fn clear_screen() -> Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        out.write_all(b"\x1b[2J\x1b[H")?;
        out.flush()?;
    }
    Ok(())
}

/// Writes text to standard output, but nothing that would steer a terminal: in
/// it may be what others chose, such as names in a file.
pub fn print(text: &str) -> Result<()> {
    write(text, io::stdout().lock())
}

/// The same to anywhere.
pub fn write(text: &str, mut out: impl Write) -> Result<()> {
    let text = text.split('\n').map(nuksm_sysroot::printable).collect::<Vec<_>>().join("\n");
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Of what --json prints: a name that changes, or goes, makes it a higher one.
const JSON_VERSION: u32 = 2;

/// An object with its version before all else.
#[derive(Serialize)]
struct Versioned<'a, T> {
    json_version: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Writes an object as one line of JSON, as it is made: it may be longer than memory
/// should have to hold.
pub fn write_json(value: &impl Serialize, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    serde_json::to_writer(&mut out, &Versioned { json_version: JSON_VERSION, value })?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes a report: as one line of JSON, or as the text it has for people.
pub fn print_report<T: Serialize>(json: bool, report: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
    write_report(json, report, text, io::stdout().lock())
}

/// The same to anywhere.
pub fn write_report<T: Serialize>(
    json: bool,
    report: &T,
    text: impl FnOnce(&T) -> String,
    out: impl Write,
) -> Result<()> {
    if json { Ok(write_json(report, out)?) } else { write(&text(report), out) }
}

/// Shows somebody at a terminal how far the work is; nothing depends on it.
pub fn progress(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Did the reader of our output go away (`nuksm status | head -1`)?
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// What was written, where a reader that went away changes nothing.
pub fn unless_closed(written: Result<()>) -> Result<()> {
    written.or_else(|error| if is_closed_pipe(&error) { Ok(()) } else { Err(error) })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Whose reader went away.
    pub struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn tables_align_words_left_and_numbers_right() {
        let mut table = Table::new(1, ["tenant", "pages"]);
        table.row(["db".into(), "4096".into()]);
        table.row(["frontend".into(), "7".into()]);
        assert_eq!(table.render(), "  tenant    pages\n  db         4096\n  frontend      7\n");
    }

    #[test]
    fn json_begins_with_its_version() {
        #[derive(Serialize)]
        struct Report {
            pages: u64,
        }
        let mut text = Vec::new();
        write_json(&Report { pages: 7 }, &mut text).unwrap();
        assert_eq!(text, b"{\"json_version\":2,\"pages\":7}\n");
    }

    #[test]
    fn a_reader_that_goes_in_the_midst_is_known() {
        let long = std::collections::BTreeMap::from([("key", "x".repeat(1 << 16))]);
        assert!(is_closed_pipe(&write_json(&long, Gone).unwrap_err().into()));
    }

    #[test]
    fn a_moment_that_no_calendar_has_is_unknown() {
        assert_eq!(date(1_764_000_000.4), "2025-11-24 16:00:00");
        assert_eq!(date(253_402_300_799.0), "9999-12-31 23:59:59");
        for strange in [253_402_300_800.0, 1e19, 1e300, -1.0, f64::NAN] {
            assert_eq!(date(strange), "-", "{strange}");
        }
    }

    #[test]
    fn units_a_person_would_choose() {
        assert_eq!(
            (bytes(0), bytes(1_536), bytes(-640)),
            ("0.0 KiB".into(), "1.5 KiB".into(), "-0.6 KiB".into())
        );
        assert_eq!((bytes(5 << 20), bytes(3 << 29)), ("5.0 MiB".into(), "1.5 GiB".into()));
        assert_eq!((bytes(24 << 40), bytes(i64::MIN)), ("24.0 TiB".into(), "-8192.0 PiB".into()));
        assert_eq!((percent(1, 3), percent(0, 0)), ("33.3".into(), "-".into()));
        assert_eq!((known(Some(0)), known::<u64>(None)), ("0".into(), "-".into()));
    }
}
