// SPDX-License-Identifier: GPL-2.0-only
//! What any user's process, or an operator's slip, may do to the program. Nothing
//! here takes a privilege, or changes a setting of the kernel.

// All of this file is a test.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::Process;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

/// The part that the process called [`tenant`] plays.
const PART: &str = "NUKSM_TEST_PART";

/// A process that plays a part of those below.
struct Tenant(Process);

impl Tenant {
    /// This file once more, as a process that plays `part`.
    fn start(part: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tenant", "--ignored", "--nocapture"]).env(PART, part);
        let mut tenant = Self(Process(command.stdout(Stdio::piped()).spawn().unwrap()));
        let lines = BufReader::new(tenant.0.0.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")), "{part} failed");
        tenant
    }

    /// What `nuksm estimate` says of it, with so much address space.
    fn estimate(&self, bytes: u64) -> Output {
        self.command(bytes).output().unwrap()
    }

    fn command(&self, bytes: u64) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nuksm"));
        command.args(["estimate", "--memory", "64M", "--pid", &self.0.0.id().to_string()]);
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        // SAFETY: between fork and exec, setrlimit is a system call and nothing else.
        unsafe { command.pre_exec(move || Ok(setrlimit(Resource::As, limit)?)) };
        command
    }
}

/// The tenant itself.
#[test]
#[ignore = "a process that other tests start"]
fn tenant() {
    // SAFETY: the operation takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    match std::env::var(PART).unwrap().as_str() {
        "long command line" => claim_arguments(8 << 30),
        "no command line" => claim_arguments(0),
        "no leader" => end_leader(),
        "one area" => {}
        "clones" => (0..3).for_each(|_| clone()),
        "30,000 areas" => split_memory(30_000),
        part => panic!("{part}"),
    }
    println!("ready");
    loop {
        std::thread::park();
    }
}

/// Says that its arguments are so many bytes which nobody ever wrote.
fn claim_arguments(bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address the kernel chooses.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes.max(4096), protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let line = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<u64> = line
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .skip(1)
        .map(|word| word.parse().unwrap_or(0))
        .collect();
    // proc(5) counts from 1; the state is field 3.
    let field = |number: usize| fields[number - 4];
    // The order of struct prctl_mm_map; no auxv, and the program stays.
    // SAFETY: asks, and changes nothing.
    let end_of_heap = unsafe { libc::sbrk(0) } as u64;
    let map = [
        field(26),
        field(27),
        field(45),
        field(46),
        field(47),
        end_of_heap,
        field(28),
        start as u64,
        start as u64 + bytes as u64,
        field(50),
        field(51),
        0,
        u64::from(u32::MAX) << 32,
    ];
    // SAFETY: the kernel reads as many bytes as `map` has.
    let answer =
        unsafe { libc::prctl(libc::PR_SET_MM, libc::PR_SET_MM_MAP, map.as_ptr(), size_of_val(&map), 0) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

/// Ends the thread that the process has its number of; the others stay.
fn end_leader() {
    // SAFETY: nobody is told but this process.
    unsafe { libc::signal(libc::SIGUSR1, exit_thread as *const () as libc::sighandler_t) };
    let pid = libc::pid_t::try_from(std::process::id()).unwrap();
    // SAFETY: a signal to a thread of this process, which is there until then.
    assert_eq!(unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, libc::SIGUSR1) }, 0);
    while !std::fs::read_to_string("/proc/self/stat").unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
}

extern "C" fn exit_thread(_signal: libc::c_int) {
    // SAFETY: ends this thread, and leaves everything to the others as it is.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Another process with this one's memory, which ends with it.
fn clone() {
    extern "C" fn wait(_: *mut libc::c_void) -> libc::c_int {
        // SAFETY: system calls that touch no memory.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            loop {
                libc::pause();
            }
        }
    }
    // Never freed: the clone stands on it.
    let stack = Box::leak(vec![0_u8; 64 << 10].into_boxed_slice());
    // SAFETY: the stack is the clone's alone, and it does system calls only.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end;
        let top = top.sub(top.addr() % 16);
        libc::clone(wait, top.cast(), libc::CLONE_VM | libc::SIGCHLD, std::ptr::null_mut())
    };
    assert!(pid > 0, "{}", std::io::Error::last_os_error());
}

/// Memory whose pages may be read by turns: each is an area of its own.
fn split_memory(areas: usize) {
    let (bytes, flags) = (areas * 4096, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at an address the kernel chooses.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    for area in (0..areas).step_by(2) {
        // SAFETY: inside the mapping, which nobody uses.
        let answer =
            unsafe { libc::mprotect(start.cast::<u8>().add(area * 4096).cast(), 4096, libc::PROT_READ) };
        assert_eq!(answer, 0);
    }
}

fn assert_seen(output: &Output) {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("tenant"), "{text}");
}

/// The children of a process.
fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split(' ').nth(1) == Some(parent.to_string().as_str())
    };
    pids.filter(is_child).collect()
}

#[test]
fn processes_of_one_memory_count_once() {
    let tenant = Tenant::start("clones");
    let pid = tenant.0.0.id();
    let clones = children(pid);
    assert_eq!(clones.len(), 3);
    let mut command = tenant.command(4 << 30);
    command.arg("--json").args(clones.iter().flat_map(|clone| ["--pid".into(), clone.to_string()]));
    let output = command.output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pids: Vec<u64> =
        report["tenants"].as_array().unwrap().iter().map(|tenant| tenant["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids.len(), 1, "{pids:?}, {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_command_line_of_gigabytes_is_not_read() {
    assert_seen(&Tenant::start("long command line").estimate(1 << 30));
}

#[test]
fn areas_are_not_kept_as_text() {
    let most_kib = |part: &str| {
        let tenant = Tenant::start(part);
        let mut estimate = tenant.command(4 << 30).stdout(Stdio::null()).spawn().unwrap();
        let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
        let pid = libc::pid_t::try_from(estimate.id()).unwrap();
        // SAFETY: the kernel writes to both, which live on; zeroes are a valid rusage.
        let usage = unsafe {
            assert_eq!(libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()), pid);
            usage.assume_init()
        };
        assert_eq!(status, 0, "{part}");
        // It was waited for: this only lets go.
        let _ = estimate.try_wait();
        usage.ru_maxrss
    };
    let more = most_kib("30,000 areas") - most_kib("one area");
    assert!(more < 10 << 10, "{more} KiB more");
}

#[test]
fn a_process_without_a_command_line_is_one() {
    assert_seen(&Tenant::start("no command line").estimate(1 << 30));
}

#[test]
fn a_process_whose_leader_ended_is_one() {
    assert_seen(&Tenant::start("no leader").estimate(1 << 30));
}

#[test]
fn as_many_tenants_as_there_are_take_the_files_of_one() {
    let tenants: Vec<Tenant> = (0..16).map(|_| Tenant::start("one area")).collect();
    let mut estimate = Command::new(env!("CARGO_BIN_EXE_nuksm"));
    estimate.args(["estimate", "--json", "--memory", "64M"]);
    for tenant in &tenants {
        estimate.args(["--pid", &tenant.0.0.id().to_string()]);
    }
    let limit = Rlimit { current: Some(16), maximum: Some(16) };
    // SAFETY: between fork and exec, setrlimit is a system call and nothing else.
    unsafe { estimate.pre_exec(move || Ok(setrlimit(Resource::Nofile, limit)?)) };
    let output = estimate.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["tenants"].as_array().unwrap().len(), tenants.len());
}

#[test]
fn a_reader_that_goes_away_hides_no_problem() {
    let doctor = |out: Stdio| {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_nuksm"));
        doctor.arg("doctor").stdout(out).stderr(Stdio::null()).status().unwrap()
    };
    let (reader, gone) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(doctor(gone.into()), doctor(Stdio::null()));
}
