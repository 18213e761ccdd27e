// SPDX-License-Identifier: GPL-2.0-only
//! Messages on standard error, by their weight. When nobody reads them any more,
//! they are lost, and the work goes on.

use env_logger::{Builder, Target};
use log::{Level, LevelFilter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// From now on messages up to this level are written.
pub fn start(least: LevelFilter) {
    let for_journal = is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref());
    let mut builder = Builder::new();
    // Of the crates in use, what they warn of is enough.
    builder.filter_level(least.min(LevelFilter::Warn)).filter_module("nuksm", least);
    builder.format(move |out, record| {
        out.write_all(text(record.level(), &record.args().to_string(), for_journal).as_bytes())
    });
    builder.target(Target::Pipe(Box::new(Unread { out: std::io::stderr(), lost: 0, for_journal })));
    // It fails only where it was started before.
    let _ = builder.try_init();
}

/// Where messages go; what would have to wait there for a reader is lost.
struct Unread<T> {
    out: T,
    /// Messages lost since the last that was not.
    lost: u64,
    for_journal: bool,
}

impl<T: AsFd> Unread<T> {
    /// Writes all of it, or false. That there is room is asked each time: to set
    /// `O_NONBLOCK` would be for all who share the file, too.
    fn put(&self, message: &[u8]) -> bool {
        message.chunks(libc::PIPE_BUF).all(|piece| {
            let mut room = [PollFd::new(&self.out, PollFlags::OUT)];
            let has_room = poll(&mut room, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
            has_room && rustix::io::write(&self.out, piece) == Ok(piece.len())
        })
    }
}

impl<T: AsFd> Write for Unread<T> {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        if self.lost > 0 {
            let lost = format!("{} messages before this one found no reader", self.lost);
            if self.put(text(Level::Warn, &lost, self.for_journal).as_bytes()) {
                self.lost = 0;
            }
        }
        self.lost += u64::from(!self.put(message));
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
    fn what_nobody_reads_is_counted_and_waits_for_nobody() {
        use std::io::Read;
        use std::os::unix::net::UnixStream;
        let (out, mut reader) = UnixStream::pair().unwrap();
        let mut log = Unread { out, lost: 0, for_journal: false };
        while log.lost == 0 {
            log.write_all(&[b'x'; 1000]).unwrap();
        }
        log.write_all(b"nuksm: nobody reads this\n").unwrap();
        assert_eq!(log.lost, 2);
        reader.set_nonblocking(true).unwrap();
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap_err();
        read.clear();
        log.write_all(b"nuksm: and this\n").unwrap();
        reader.read_to_end(&mut read).unwrap_err();
        let expected = "nuksm: 2 messages before this one found no reader\nnuksm: and this\n";
        assert_eq!(String::from_utf8(read).unwrap(), expected);
    }

    #[test]
    fn another_ones_journal_is_not_ours() {
        assert!(!is_journal(None) && !is_journal(Some("1:1")) && !is_journal(Some("")));
        let stat = fstat(std::io::stderr()).unwrap();
        assert!(is_journal(Some(&format!("{}:{}", stat.st_dev, stat.st_ino))));
    }
}
