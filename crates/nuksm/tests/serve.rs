// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm serve` attacked: whatever one client does, another one gets the metrics,
//! and SIGTERM ends the daemon. On any host whose kernel has KSM.

// All of this file is a test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::Process;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit, setrlimit};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// After which an attacker gives up to write.
const SECOND: Duration = Duration::from_secs(1);
const STALLED: Duration = Duration::from_secs(5);
/// For what hangs: how fast an answer comes is measured elsewhere.
const DEADLINE: Duration = Duration::from_secs(600);
/// What the daemon may grow by, whatever clients send.
const GROWTH_KIB: u64 = 16 << 10;

struct Daemon {
    process: Process,
    address: SocketAddr,
    messages: Receiver<String>,
}

impl Daemon {
    /// Starts it with so many open files at the most, and waits until it works.
    fn start(files: u64) -> Self {
        Self::start_with(files, &[])
    }

    /// The same with further arguments.
    fn start_with(files: u64, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nuksm"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--interval", "1s"]).args(arguments);
        command.stderr(Stdio::piped());
        let limit = Rlimit { current: Some(files), maximum: getrlimit(Resource::Nofile).maximum };
        // SAFETY: between fork and exec, setrlimit is a system call and nothing else.
        unsafe { command.pre_exec(move || Ok(setrlimit(Resource::Nofile, limit)?)) };
        let mut process = command.spawn().unwrap();
        let (sender, messages) = channel();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        let mut daemon = Self { process: Process(process), address: ([127, 0, 0, 1], 0).into(), messages };
        let line = daemon.said("listening on");
        let address = line.split_once("http://").unwrap().1.strip_suffix("/metrics").unwrap();
        daemon.address = address.parse().unwrap();
        until("a first collection", || daemon.get("/healthz").is_some_and(|answer| answer.contains(" 200 ")));
        daemon
    }

    /// Waits for a message with these words.
    fn said(&self, words: &str) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.messages.recv_timeout(left).unwrap_or_else(|_| panic!("never said: {words}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process.0)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.address, DEADLINE).unwrap();
        stream.set_write_timeout(Some(SECOND)).unwrap();
        stream
    }

    /// The answer to a request; `None` when there is none.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, DEADLINE).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        (!answer.is_empty()).then_some(answer)
    }

    /// Another client gets the metrics, now.
    fn serves_others(&self, meanwhile: &str) {
        let first = Instant::now();
        let answer = loop {
            let began = Instant::now();
            match self.get("/metrics") {
                Some(answer) => break answer,
                // Who stalls for ten seconds before it asks is not heard.
                None => assert!(
                    began.elapsed() >= STALLED && first.elapsed() < DEADLINE,
                    "no answer: {meanwhile}"
                ),
            }
        };
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("nuksm_build_info"), "{answer}");
    }

    /// A figure of /proc/PID/status.
    fn status(&self, key: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
        value.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn ends(mut self) {
        kill_process(self.pid(), Signal::TERM).unwrap();
        let mut status = None;
        until("the end", || {
            status = self.process.0.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{status:?}");
    }
}

/// Waits for a state.
fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !reached() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// For as many connections as the attacks have.
fn with_many_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[test]
fn idle_connections_do_not_use_up_its_files() {
    with_many_files();
    let daemon = Daemon::start(1024);
    let idle: Vec<TcpStream> = (0..1_200).map(|_| daemon.connect()).collect();
    daemon.serves_others("1200 idle connections");
    drop(idle);
    daemon.serves_others("after 1200 idle connections");
    daemon.ends();
}

#[test]
fn files_that_are_used_up_are_said_and_survived() {
    with_many_files();
    let daemon = Daemon::start(1024);
    let idle: Vec<TcpStream> = (0..100).map(|_| daemon.connect()).collect();
    daemon.serves_others("100 idle connections");
    let few = Rlimit { current: Some(8), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(Some(daemon.pid()), Resource::Nofile, few).unwrap();
    let waiting = daemon.connect();
    let line = daemon.said("cannot accept a connection");
    assert!(line.contains("Too many open files"), "{line}");
    prlimit(Some(daemon.pid()), Resource::Nofile, before).unwrap();
    daemon.said("accepted again");
    until("metrics", || daemon.get("/metrics").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")));
    drop((idle, waiting));
    daemon.ends();
}

#[test]
fn who_asks_and_never_reads_delays_nobody() {
    let daemon = Daemon::start(1024);
    let mut stream = daemon.connect();
    // So that little is answered before somebody would have to take it.
    set_socket_recv_buffer_size(&stream, 4 << 10).unwrap();
    let requests = "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n".repeat(20_000);
    // Once the first is answered, nobody takes the rest.
    let _ = stream.write_all(requests.as_bytes());
    for round in 0..20 {
        daemon.serves_others(&format!("20,000 requests and no reader, round {round}"));
    }
    assert!(daemon.get("/healthz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")));
    daemon.ends();
}

#[test]
fn an_endless_request_is_not_kept() {
    let daemon = Daemon::start(1024);
    daemon.serves_others("nothing");
    let before = daemon.status("VmHWM");
    let mut stream = daemon.connect();
    let piece = vec![b'a'; 1 << 20];
    let _ = stream.write_all(b"GET /");
    for _ in 0..200 {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    daemon.serves_others("a request of 200 MB");
    let grown = daemon.status("VmHWM") - before;
    assert!(grown < GROWTH_KIB, "{grown} KiB more");
    daemon.ends();
}

#[test]
fn slow_clients_take_no_threads_and_little_memory() {
    with_many_files();
    let daemon = Daemon::start(4096);
    daemon.serves_others("nothing");
    let (threads, memory) = (daemon.status("Threads"), daemon.status("VmHWM"));
    let mut slow: Vec<TcpStream> = (0..1_500)
        .map(|_| {
            let mut stream = daemon.connect();
            // Some are closed by now, to make room.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow: ");
            stream
        })
        .collect();
    for round in 0..5 {
        for stream in &mut slow {
            let _ = stream.write_all(b"a");
        }
        daemon.serves_others(&format!("1500 slow clients, round {round}"));
    }
    let grown = daemon.status("VmHWM") - memory;
    assert!(daemon.status("Threads") <= threads && grown < GROWTH_KIB, "{grown} KiB more");
    daemon.ends();
}

/// What a process ended with whose standard error or output is a full disk.
fn on_a_full_disk(arguments: &[&str], end: impl FnOnce(&Child)) -> Option<i32> {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuksm"));
    let mut process = Process(command.args(arguments).stdout(full()).stderr(full()).spawn().unwrap());
    end(&process.0);
    process.0.wait().unwrap().code()
}

#[test]
fn messages_that_nobody_takes_end_nothing() {
    let ready = tempfile::tempdir().unwrap();
    let config = ready.path().join("nuksm.toml");
    // Free a moment ago, and nobody else here takes ports by number.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fs::write(&config, format!("[serve]\nlisten = \"{port}\"\n")).unwrap();
    let code = on_a_full_disk(&["serve", "--config", config.to_str().unwrap()], |process| {
        until("an answer", || TcpStream::connect(port).is_ok());
        kill_process(Pid::from_child(process), Signal::HUP).unwrap();
        // Reading a configuration that is wrong is said, too.
        fs::write(&config, "[serve]\nlisten = 7\n").unwrap();
        kill_process(Pid::from_child(process), Signal::HUP).unwrap();
        until("still there", || TcpStream::connect(port).is_ok());
        kill_process(Pid::from_child(process), Signal::TERM).unwrap();
    });
    assert_eq!(code, Some(0));
    assert_eq!(on_a_full_disk(&["doctor"], |_| ()), Some(1), "what cannot be printed is an error, no panic");
    assert_eq!(on_a_full_disk(&["status", "--no-such-option"], |_| ()), Some(2));
}

#[test]
fn messages_that_nobody_reads_hold_nothing_up() {
    let (mut full, _reader) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(b"x").is_ok() {}
    full.set_nonblocking(false).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuksm"));
    command.args(["serve", "--listen", &port.to_string(), "--interval", "1s"]).stderr(OwnedFd::from(full));
    let process = Process(command.spawn().unwrap());
    let daemon = Daemon { process, address: port, messages: channel().1 };
    until("metrics", || daemon.get("/metrics").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")));
    kill_process(daemon.pid(), Signal::HUP).unwrap();
    daemon.ends();
}

#[test]
fn a_configuration_that_became_a_fifo_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("nuksm.toml");
    fs::write(&config, "").unwrap();
    let daemon = Daemon::start_with(1024, &["--config", config.to_str().unwrap()]);
    fs::remove_file(&config).unwrap();
    mknodat(CWD, &config, FileType::Fifo, Mode::RUSR, 0).unwrap();
    kill_process(daemon.pid(), Signal::HUP).unwrap();
    daemon.ends();
}

#[test]
fn a_reader_of_messages_that_is_gone_ends_nothing() {
    let mut daemon = Daemon::start(1024);
    // The pipe's other end closes with the thread that reads it, at the next line.
    daemon.messages = channel().1;
    for _ in 0..3 {
        kill_process(daemon.pid(), Signal::HUP).unwrap();
        daemon.serves_others("SIGHUP without a reader");
    }
    daemon.ends();
}
