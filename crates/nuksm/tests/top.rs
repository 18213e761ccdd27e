// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm top --replay` on a terminal. On any host, also without KSM.

// All of this file is a test.
#![allow(clippy::unwrap_used)]

#[path = "common/terminal.rs"]
mod terminal;

use flate2::{Compression, write::GzEncoder};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use terminal::terminal;

/// A recording of two samples, a second apart, without nodes and tenants.
fn recording() -> String {
    let sample = |seconds: u32| {
        format!(
            "{{\"unix_time\":{seconds},\"kernel\":\"6.12.0\",\"ksm\":{{\"run\":1}},\"savings\":{{\"saved_bytes\":16384,\
             \"zero_page_saved_bytes\":0}},\"load\":{{}},\"notes\":[]}}\n"
        )
    };
    let header = "{\"nuksm_recording\":2,\"host\":\"big\",\"kernel\":\"6.12.0\",\"page_bytes\":4096,\
                  \"start_unix_time\":1764000000,\"interval_seconds\":1}\n";
    [header.into(), sample(1_764_000_000), sample(1_764_000_001)].concat()
}

/// Plays a file until it ends; how that was, and all that was said.
fn play(path: &Path, keys: &[u8]) -> (ExitStatus, String) {
    let (mut terminal, side) = terminal();
    terminal.write_all(keys).unwrap(); // before it could have come to its end
    let mut child: Child = Command::new(env!("CARGO_BIN_EXE_nuksm"))
        .args(["top", "--replay"])
        .arg(path)
        .env("TERM", "xterm")
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let mut piece = [0; 4096];
    // The last one to hold the other side ends it with an error.
    while let Ok(count @ 1..) = terminal.read(&mut piece) {
        said.extend(&piece[..count]);
    }
    (child.wait().unwrap(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_packed_recording_is_played_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ksm.jsonl.1.gz");
    let mut packed = GzEncoder::new(File::create(&path).unwrap(), Compression::default());
    packed.write_all(recording().as_bytes()).unwrap();
    packed.finish().unwrap();
    let (status, said) = play(&path, b"");
    assert!(status.success(), "{said}");
    for words in ["recording of big, 2025-11-24 16:00:00 UTC, 1/2", "--counters", "showed 2 of 2 samples"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn keys_end_it_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ksm.jsonl");
    fs::write(&path, recording()).unwrap();
    let (status, said) = play(&path, b" q");
    assert!(status.success() && said.contains("showed 1 of 2 samples"), "{said}");
}

/// Anybody may have written it.
#[test]
fn counters_as_large_as_can_be_are_shown() {
    let most = u64::MAX;
    let ksm = format!(
        "\"run\":1,\"pages_shared\":{most},\"pages_sharing\":{most},\"pages_unshared\":{most},\
         \"pages_volatile\":{most},\"pages_to_scan\":1,\"sleep_millisecs\":{most}"
    );
    let used = format!("\"merged_pages\":{most},\"local_mappings\":{most},\"remote_mappings\":{most}");
    let node = format!("{{\"node\":0,{used},\"free_bytes\":{most}}}");
    let tenant = |pid| {
        format!(
            "{{\"pid\":{pid},\"name\":\"t\",\"node\":0,\"nice\":0,{used},\"saved_bytes\":{most},\
             \"tracked_pages\":{most},\"ksm_merged_local\":{most},\"ksm_merged_remote\":{most}}}"
        )
    };
    let more = format!(
        "\"engine\":{{\"index\":\"checksum\",\"replicas_by_node\":{{\"0\":{most},\"1\":{most}}}}},\"nodes\":[{node}],\
         \"tenants\":[{},{}],\"notes\"",
        tenant(1),
        tenant(2)
    );
    let text = recording()
        .replace("\"run\":1", &ksm)
        .replace("\"zero_page_saved_bytes\":0", &format!("\"zero_page_saved_bytes\":{most}"))
        .replace("\"notes\"", &more);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ksm.jsonl");
    fs::write(&path, text).unwrap();
    let (status, said) = play(&path, b"");
    assert!(status.success() && said.contains("showed 2 of 2 samples"), "{said}");
    assert!(said.contains(&most.to_string()), "{said}");
}

#[test]
fn without_a_sample_there_is_nothing_to_show() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ksm.jsonl");
    fs::write(&path, "").unwrap();
    let (status, said) = play(&path, b"");
    assert!(!status.success() && said.contains("has no sample"), "{said}");
}
