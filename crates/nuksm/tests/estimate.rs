// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm estimate` as users call it, on memory of this test and on files.

// All of this file is a test.
#![allow(clippy::unwrap_used)]

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PAGE: usize = 4096;

fn nuksm(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nuksm")).arg("estimate").args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = nuksm(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn error(arguments: &[&str]) -> String {
    let output = nuksm(arguments);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A page that no other test and no library has.
fn page(number: u64) -> Vec<u8> {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.iter().copied().cycle().take(PAGE).collect()
}

fn image(directory: &Path, name: &str, pages: impl Iterator<Item = u64>) -> PathBuf {
    let path = directory.join(name);
    let content: Vec<u8> =
        pages.flat_map(|number| if number == 0 { vec![0; PAGE] } else { page(number) }).collect();
    fs::write(&path, content).unwrap();
    path
}

/// Pages of this process, which is made readable for its children.
fn own_pages(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    // SAFETY: the operation takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    let content: Vec<u8> = numbers.flat_map(page).collect();
    let mut memory = vec![0; content.len() + PAGE];
    let start = memory.as_ptr().align_offset(PAGE);
    memory[start..start + content.len()].copy_from_slice(&content);
    memory
}

fn value(value: &Value) -> i64 {
    assert_eq!((&value["low"], &value["high"]), (&value["value"], &value["value"]), "not exact");
    value["value"].as_i64().unwrap()
}

#[test]
fn a_running_process_is_compared_with_an_image() {
    let directory = tempfile::tempdir().unwrap();
    let memory = own_pages(1000..1600);
    // 100 pages that the process has as well, 50 of its own, and 7 zero pages.
    let numbers = (1500..1600).chain(5000..5050).chain([0; 7]);
    let image = image(directory.path(), "guest.img", numbers);
    let pid = std::process::id().to_string();
    let file = format!("{}@1", image.display());
    let report = json(&["--pid", &pid, &file]);
    assert!(!memory.is_empty());

    let [process, guest] = [0, 1].map(|tenant| &report["tenants"][tenant]);
    assert_eq!((&process["pid"], &guest["node"]), (&std::process::id().into(), &1.into()));
    assert_eq!(
        (&guest["name"], &guest["pages"], &guest["zero_pages"]),
        (&"guest".into(), &157.into(), &7.into())
    );
    assert_eq!((value(&guest["unique_pages"]), value(&guest["merged_mappings"])), (50, 100));
    assert!(process["pages"].as_u64().unwrap() >= 600);
    assert_eq!(value(&report["pairs"][0]["pages"]), 100);
}

#[test]
fn images_are_merged_across_nodes_and_within_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name, numbers: std::ops::Range<u64>, node| {
        format!("{}@{node}", image(directory.path(), name, numbers).display())
    };
    let files = [path("a.img", 1..101, 0), path("b.img", 51..151, 0), path("c.img", 1..101, 1)];
    let report = json(&files.each_ref().map(String::as_str));
    let (across, within) = (&report["totals"]["across_nodes"], &report["totals"]["within_nodes"]);
    assert_eq!((value(&across["saved_pages"]), value(&within["saved_pages"])), (150, 50));
    // Without KSM, or as the kernel has it by default, zero pages are tracked as well.
    assert_eq!(across["metadata_bytes"], 300 * 64);
    assert_eq!(value(&across["net_saved_bytes"]), 150 * 4096 - 300 * 64);
    let remote = |tenant: usize, policy: &str| report["tenants"][tenant]["remote"][policy]["value"].as_f64();
    assert_eq!((remote(2, "fair"), remote(2, "first_worst")), (Some(0.5), Some(1.0)));
    assert_eq!((remote(1, "fair"), remote(1, "first")), (Some(0.5), Some(0.0)));

    let text = String::from_utf8(nuksm(&files.each_ref().map(String::as_str)).stdout).unwrap();
    assert!(
        text.contains("across nodes  within nodes\n  merged            600.0 KiB     200.0 KiB"),
        "{text}"
    );
}

#[test]
fn without_nodes_there_is_a_note_instead_of_figures() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path(), "a.img", 1..10);
    let report = json(&[image.to_str().unwrap()]);
    assert!(report["totals"]["within_nodes"].is_null() && report["tenants"][0]["remote"].is_null());
    assert!(report["notes"][0].as_str().unwrap().contains("write FILE@NODE"));
}

#[test]
fn a_dump_is_read_again_and_gives_the_same_report() {
    let directory = tempfile::tempdir().unwrap();
    let a = image(directory.path(), "a.img", (0..300).map(|number| number % 100));
    let b = image(directory.path(), "b.img", 50..150);
    let dump = directory.path().join("pages.parquet");
    let files = [format!("{}@0", a.display()), format!("{}@1", b.display())];
    let first = json(&[&files[0], &files[1], "--dump", dump.to_str().unwrap()]);
    assert_eq!(json(&[dump.to_str().unwrap()]), first);
    let again = error(&[dump.to_str().unwrap(), "--dump", dump.to_str().unwrap()]);
    assert!(again.contains("is a dump already"), "{again}");
}

#[test]
fn samples_say_how_far_they_may_be_off() {
    let directory = tempfile::tempdir().unwrap();
    let a = image(directory.path(), "a.img", 1..4001);
    let b = image(directory.path(), "b.img", 2001..6001);
    let report = json(&[a.to_str().unwrap(), b.to_str().unwrap(), "--sample", "1/8"]);
    let saved = &report["totals"]["across_nodes"]["saved_pages"];
    let [value, low, high] = ["value", "low", "high"].map(|name| saved[name].as_i64().unwrap());
    assert_eq!(report["sampled"], 0.125);
    assert!(low < value && value < high && low < 2000 && 2000 < high, "{saved}");
    assert_eq!(report["totals"]["pages"], 8000, "pages are counted, not estimated");
}

#[test]
fn an_interruption_ends_it_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("huge.img");
    // All holes: nothing on the disk, and minutes to be read.
    fs::File::create(&image).unwrap().set_len(1 << 40).unwrap();
    let dump = directory.path().join("pages.parquet");
    let mut child = Command::new(env!("CARGO_BIN_EXE_nuksm"))
        .args(["estimate".as_ref(), image.as_os_str(), "--dump".as_ref(), dump.as_os_str()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let files = || fs::read_dir(directory.path()).unwrap().count();
    while files() == 1 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began to read");
        std::thread::yield_now();
    }
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: a signal to our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    assert_eq!(files(), 1, "only the image");
}

#[test]
fn wrong_inputs_are_named_with_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let odd = directory.path().join("odd.img");
    fs::write(&odd, [0; 100]).unwrap();
    assert!(
        error(&[odd.to_str().unwrap()]).contains("odd.img: is neither an ELF core nor a raw memory image")
    );
    assert!(error(&[env!("CARGO_BIN_EXE_nuksm")]).contains("is an ELF file, but no core"));
    assert!(error(&["/nonexistent.core"]).contains("cannot read /nonexistent.core"));
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let pid = child.id().to_string();
    assert!(error(&["--pid", &pid]).contains(&format!("there is no process {pid}")));
}

#[test]
fn a_process_of_another_user_needs_privilege() {
    use std::os::unix::process::CommandExt;
    // Where another user may run it; the build directory may be closed to it.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), open).unwrap();
    let binary = directory.path().join("nuksm");
    // Copied by a process of its own: what another thread forks meanwhile would
    // hold our copy open for writing, and nobody may run a file that is.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_nuksm")).arg(&binary).status().unwrap();
    assert!(copied.success());
    let mut command = Command::new(&binary);
    command.args(["estimate", "--pid", "1"]);
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("may not look into process 1: run as root"), "{message}");
}

#[test]
fn a_dump_replaces_none_of_what_is_read_and_no_device() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path(), "guest.img", 1..4);
    let before = fs::read(&image).unwrap();
    let (hard, link) = (directory.path().join("hard.img"), directory.path().join("link.img"));
    fs::hard_link(&image, &hard).unwrap();
    std::os::unix::fs::symlink(&image, &link).unwrap();
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    for dump in [&image, &hard, &link] {
        let said = error(&[&name(&image), "--dump", &name(dump)]);
        assert!(said.contains("guest.img is to be read: let --dump name another file"), "{said}");
    }
    // No device of the machine: as root, a broken program would replace that.
    let fifo = directory.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let said = error(&[&name(&image), "--dump", &name(&fifo)]);
    assert!(said.contains("fifo: it is no regular file"), "{said}");
    assert!(!fs::metadata(&fifo).unwrap().is_file());
    assert_eq!(fs::read(&image).unwrap(), before);
}
