// SPDX-License-Identifier: GPL-2.0-only
//! Whose memory is looked at.

use super::args::EstimateArgs;
use crate::shared::output::is_same;
use crate::shared::tenants;
use anyhow::{Context, Result, bail};
use nuksm_fingerprint::{Error, Label, MemoryFile, Process, TableReader};
use nuksm_numafs::{TaskStat, Topology, home_node};
use nuksm_sysroot::{Root, ask, patiently};
use std::collections::BTreeMap;
use std::path::Path;

/// Anonymous memory of a process that is looked at without being named: virtual
/// machines and large services have more, the many small helpers of a system
/// less.
const LARGE_KIB: u64 = 64 << 10;

/// Memory that can be read, and whose it is.
pub enum Input {
    /// Of a process; opened at its turn, since there may be more of them than files
    /// that may be open.
    Process(Candidate),
    /// Of one tenant, in a file.
    File { label: Label, memory: MemoryFile },
    /// Fingerprints of any number of tenants.
    Table(TableReader),
}

/// A process to be looked at.
pub struct Candidate {
    pub label: Label,
    pub pid: u32,
    /// By which its memory is to be seen.
    pub task: u32,
    /// Its cgroup (version 2), a path from the root; empty when it has none.
    pub cgroup: String,
    /// Roughly how many pages that is.
    pages: u64,
    /// Somebody asked for this one: without it there is no report.
    pub is_named: bool,
}

/// What is to be looked at, and what cannot be.
pub struct Found {
    pub inputs: Vec<Input>,
    /// Processes that are passed over, and why.
    pub unread: Vec<(u32, String)>,
    /// Those that this user may not read.
    pub denied: usize,
    /// Why nobody knows which of them share one memory, if so.
    pub untold: Option<String>,
}

impl Input {
    /// Pages that there are to be read, roughly.
    pub fn pages(&self) -> u64 {
        match self {
            Self::Process(candidate) => candidate.pages,
            Self::File { memory, .. } => memory.pages_left(),
            Self::Table(table) => table.rows(),
        }
    }
}

/// Finds what the arguments name, or all large processes. `stop` is asked as
/// [`crate::shared::view::View::collect`] does.
pub fn find(root: &Root, args: &EstimateArgs, stop: &dyn Fn() -> bool) -> Result<Found> {
    let machine = Topology::read(root).context("cannot read the machine's nodes")?;
    let mut found = Found { inputs: Vec::new(), unread: Vec::new(), denied: 0, untold: None };
    let inputs = &mut found.inputs;
    let mut pids = args.pid.clone();
    pids.sort_unstable();
    pids.dedup();
    for pid in pids {
        let (there, topology) = (root.clone(), machine.clone());
        let asked = ask(pid, move || candidate(&there, pid, 0, &topology));
        let Some(candidate) = asked.unwrap_or_else(|| Err(root.unanswered(pid).into()))? else {
            bail!(
                "process {pid} has no memory of its own: it is a kernel thread, or has ended and waits for its parent"
            );
        };
        inputs.push(Input::Process(Candidate { is_named: true, ..candidate }));
    }
    for file in &args.files {
        inputs.push(open_file(&file.path, file.node)?);
    }
    if args.dump.is_some() && inputs.iter().any(|input| matches!(input, Input::Table(_))) {
        bail!(
            "--dump writes what was read from processes, images and cores; one of the files is a dump already"
        );
    }
    for file in &args.files {
        if args.dump.as_ref().is_some_and(|dump| is_same(dump, &file.path)) {
            bail!("{} is to be read: let --dump name another file", file.path.display());
        }
    }
    if inputs.is_empty() {
        find_processes(root, args.all, &machine, stop, &mut found)?;
    }
    keep_one_of_each(root, &mut found, stop)?;
    Ok(found)
}

/// What else is needed to read more.
const PRIVILEGE: &str = "run as root, or with CAP_SYS_PTRACE";

/// One process of each memory, the lowest; and all else.
fn keep_one_of_each(root: &Root, found: &mut Found, stop: &dyn Fn() -> bool) -> Result<()> {
    let task = |input: &Input| match input {
        Input::Process(candidate) => Some(candidate.task),
        _ => None,
    };
    let tasks: Vec<u32> = found.inputs.iter().filter_map(task).collect();
    let (firsts, untold) = tenants::first_of_memory(root, &tasks, stop)?;
    found.untold = untold;
    let mut firsts = firsts.into_iter();
    found.inputs.retain(|input| task(input).is_none_or(|task| firsts.next() == Some(task)));
    Ok(())
}

fn find_processes(
    root: &Root,
    all: bool,
    machine: &Topology,
    stop: &dyn Fn() -> bool,
    found: &mut Found,
) -> Result<()> {
    let least = if all { 1 } else { LARGE_KIB };
    let mut pids = root.numbered("proc", "")?;
    pids.retain(|&pid| pid != std::process::id());
    let (there, topology) = (root.clone(), machine.clone());
    let mut candidates = BTreeMap::new();
    patiently(
        pids.iter().map(|&pid| (pid, pid)),
        move |pid, _| candidate(&there, pid, least, &topology),
        stop,
        |number, candidate| {
            let pid = pids[number];
            match candidate.unwrap_or_else(|| Err(root.unanswered(pid).into())) {
                Ok(candidate) => candidates.extend(candidate.map(|candidate| (pid, candidate))),
                Err(Error::NotAllowed(_)) => found.denied += 1,
                Err(Error::NoProcess(_)) => {}
                // None may keep the others from being seen.
                Err(error) => found.unread.push((pid, tenants::with_cause(&error))),
            }
        },
    )
    .map_err(nuksm_pagemap::Error::from)?;
    found.inputs.extend(candidates.into_values().map(Input::Process));
    // Who could not be read is told with the others that cannot, at their turn.
    if !found.inputs.is_empty() || !found.unread.is_empty() {
        return Ok(());
    }
    if found.denied > 0 {
        bail!("this user may read none of the {} processes in question: {PRIVILEGE}", found.denied);
    }
    bail!("no process has {} MiB of anonymous memory: name some with --pid, or use --all", LARGE_KIB >> 10);
}

/// Who is left out.
pub fn notes(denied: usize, unread: &[(u32, String)]) -> Vec<String> {
    let denied = (denied > 0)
        .then(|| format!("{denied} processes are left out, this user may not read them: {PRIVILEGE}"));
    tenants::passed_over(unread).into_iter().chain(denied).collect()
}

/// Resident anonymous memory, as `task` sees it; `None` when that has ended.
fn anonymous_kib(root: &Root, task: u32) -> Result<Option<u64>, Error> {
    let status = root.text(format!("proc/{task}/status"))?.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    Ok(line.and_then(|line| line.split_whitespace().next()?.parse().ok()))
}

/// Process `pid`, if it has so much anonymous memory and this user may read it; `None`
/// also when it can have none.
fn candidate(root: &Root, pid: u32, least_kib: u64, machine: &Topology) -> Result<Option<Candidate>, Error> {
    let stat = TaskStat::read(root, pid)?.ok_or(Error::NoProcess(pid))?;
    let Some(task) = stat.memory_task(root, pid)? else {
        return Ok(None);
    };
    let anonymous_kib = anonymous_kib(root, task)?.unwrap_or(0);
    if anonymous_kib < least_kib {
        return Ok(None);
    }
    Process::check(root, task)?;
    let node = home_node(root, pid, machine)?.and_then(|node| machine.memory_node(node));
    // A kernel without NUMA has one node, and no directory for it.
    let node = if machine.nodes.is_empty() { Some(0) } else { node };
    let (tenant, cgroup) = (tenants::name(root, task, &stat)?, tenants::cgroup(root, task)?);
    let label = Label { tenant, source: format!("pid {pid}"), node, nice: stat.nice };
    let pages = (anonymous_kib << 10) / nuksm_pagemap::page_size();
    Ok(Some(Candidate { label, pid, task, cgroup, pages, is_named: false }))
}

fn open_file(path: &Path, node: Option<u32>) -> Result<Input> {
    if let Some(table) = TableReader::open(path)? {
        if let Some(node) = node {
            bail!("{} knows its tenants' nodes: leave out @{node}", path.display());
        }
        return Ok(Input::Table(table));
    }
    let memory = MemoryFile::open(path)?;
    let tenant = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let label = Label { tenant, source: path.display().to_string(), node, nice: 0 };
    Ok(Input::File { label, memory })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::estimate::args::tests::args;
    use std::fs;

    /// Processes (pid, anonymous memory as in status) without any areas.
    fn machine(processes: &[(u32, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, anonymous) in processes {
            let proc = dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&proc).unwrap();
            fs::write(proc.join("status"), format!("Name:\tname{pid}\n{anonymous}")).unwrap();
            let words = |word, count| vec![word; count].join(" ");
            let memory = words(if anonymous.is_empty() { "0" } else { "1" }, 30);
            fs::write(proc.join("stat"), format!("{pid} (name{pid}) S {} 7 {memory}", words("0", 15)))
                .unwrap();
            for file in ["mem", "pagemap", "smaps"] {
                fs::write(proc.join(file), "").unwrap();
            }
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn found(root: &Root, line: &str) -> Result<Vec<String>> {
        Ok(find(root, &args(line), &|| false)?
            .inputs
            .into_iter()
            .map(|input| match input {
                Input::Process(Candidate { label, .. }) | Input::File { label, .. } => label.tenant,
                Input::Table(_) => "table".into(),
            })
            .collect())
    }

    #[test]
    fn without_names_the_large_processes_are_looked_at() {
        let (_dir, root) = machine(&[
            (7, "RssAnon:\t  65536 kB\n"),
            (8, "RssAnon:\t  65535 kB\n"),
            (9, "RssAnon:\t      0 kB\n"),
            (10, ""), // a kernel thread
        ]);
        assert_eq!(found(&root, "").unwrap(), ["name7"]);
        assert_eq!(found(&root, "--all").unwrap(), ["name7", "name8"]);
        let message = found(&root, "--pid 10").unwrap_err().to_string();
        assert!(message.contains("process 10 has no memory of its own: it is a kernel thread"), "{message}");
        assert_eq!(found(&root, "--pid 9 --pid 8 --pid 9").unwrap(), ["name8", "name9"]);
    }

    #[test]
    fn who_does_not_answer_is_passed_over_and_the_rest_is_read() {
        // Who is held up is known by pid, in all tests of this process.
        let (dir, root) = machine(&[(5007, "RssAnon:\t  1 kB\n"), (5008, "RssAnon:\t  1 kB\n")]);
        let memory = dir.path().join("proc/5007/mem");
        fs::remove_file(&memory).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &memory, rustix::fs::Mode::RUSR).unwrap();
        let found = find(&root, &args("--all"), &|| false).unwrap();
        let notes = notes(found.denied, &found.unread);
        assert_eq!((found.inputs.len(), notes.len()), (1, 1));
        assert!(notes[0].contains("process 5007 is passed over: ") && notes[0].contains("does not answer"));
        let error = find(&root, &args("--pid 5007"), &|| false).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("proc/5007 does not answer"), "{error}");
        assert!(find(&root, &args("--all"), &|| true).is_err(), "it was stopped");
        // Lets the thread that waits go.
        let _ = fs::OpenOptions::new().write(true).open(memory);
    }

    #[test]
    fn one_that_cannot_be_read_is_passed_over_with_the_cause() {
        let (dir, root) = machine(&[(7, "RssAnon:\t  65536 kB\n"), (8, "RssAnon:\t  65536 kB\n")]);
        fs::remove_file(dir.path().join("proc/8/stat")).unwrap();
        fs::create_dir(dir.path().join("proc/8/stat")).unwrap();
        let found = find(&root, &args(""), &|| false).unwrap();
        assert_eq!(found.inputs.len(), 1);
        let notes = notes(found.denied, &found.unread);
        assert!(notes[0].starts_with("process 8 is passed over: cannot read "), "{notes:?}");
        assert!(notes[0].ends_with("/proc/8/stat: Is a directory (os error 21)"), "{notes:?}");
    }

    #[test]
    fn when_there_is_nothing_to_look_at_it_says_what_to_do() {
        let (_dir, root) = machine(&[(8, "RssAnon:\t  1000 kB\n")]);
        let message = found(&root, "").unwrap_err().to_string();
        assert!(message.contains("no process has 64 MiB") && message.contains("--all"), "{message}");
        assert_eq!(found(&root, "--pid 5").unwrap_err().to_string(), "there is no process 5");
    }
}
