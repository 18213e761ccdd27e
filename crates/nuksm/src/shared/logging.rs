// SPDX-License-Identifier: GPL-2.0-only
//! Messages on standard error, by their weight. When nobody reads them any more,
//! they are lost, and the work goes on.

use env_logger::Builder;
use log::{Level, LevelFilter};
use rustix::fs::fstat;
use std::io::Write;

/// From now on messages up to this level are written.
pub fn start(least: LevelFilter) {
    let for_journal = is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref());
    let mut builder = Builder::new();
    // Of the crates in use, what they warn of is enough.
    builder.filter_level(least.min(LevelFilter::Warn)).filter_module("nuksm", least);
    builder.format(move |out, record| {
        out.write_all(text(record.level(), &record.args().to_string(), for_journal).as_bytes())
    });
    // It fails only where it was started before.
    let _ = builder.try_init();
}

/// Is standard error what systemd connected to the journal (sd-daemon(3))?
fn is_journal(stream: Option<&str>) -> bool {
    let ours = fstat(std::io::stderr()).map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    stream.is_some_and(|stream| ours.is_ok_and(|ours| ours == stream))
}

/// A message as it is written: each line with the journal's priority, or the first
/// one with the program's name.
fn text(level: Level, message: &str, for_journal: bool) -> String {
    if !for_journal {
        return format!("nuksm: {message}\n");
    }
    let priority = match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    message.lines().map(|line| format!("<{priority}>{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_gets_a_priority_with_each_line() {
        assert_eq!(text(Level::Error, "no\nway", true), "<3>no\n<3>way\n");
        assert_eq!(text(Level::Debug, "looked", true), "<7>looked\n");
        assert_eq!(text(Level::Warn, "no\nway", false), "nuksm: no\nway\n");
    }

    #[test]
    fn another_ones_journal_is_not_ours() {
        assert!(!is_journal(None) && !is_journal(Some("1:1")) && !is_journal(Some("")));
        let stat = fstat(std::io::stderr()).unwrap();
        assert!(is_journal(Some(&format!("{}:{}", stat.st_dev, stat.st_ino))));
    }
}
