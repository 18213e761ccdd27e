// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm record` as logrotate meets it. On any host whose kernel has KSM.

// All of this file is a test.
#![allow(clippy::unwrap_used)]

mod common;

use common::Process;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(600);

/// Waits until a file has so many whole lines.
fn wait_for_lines(path: &Path, lines: usize) -> String {
    let end = Instant::now() + DEADLINE;
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.matches('\n').count() >= lines {
            return text;
        }
        assert!(Instant::now() < end, "{}: {text}", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_file_that_was_moved_away_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("ksm.jsonl"), dir.path().join("ksm.jsonl.1"));
    let recorder = Command::new(env!("CARGO_BIN_EXE_nuksm"))
        .args(["record", "--counters", "--interval", "1s", "--output"])
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut recorder = Process(recorder);
    wait_for_lines(&path, 2);
    fs::rename(&path, &moved).unwrap();
    let new = wait_for_lines(&path, 2);
    assert!(
        new.starts_with("{\"nuksm_recording\":") && new.lines().nth(1).unwrap().contains("unix_time"),
        "{new}"
    );
    let old = fs::read_to_string(&moved).unwrap();
    assert!(old.ends_with('\n') && old.matches("nuksm_recording").count() == 1, "{old}");
    kill_process(Pid::from_child(&recorder.0), Signal::TERM).unwrap();
    assert!(recorder.0.wait().unwrap().success());
}
