// SPDX-License-Identifier: GPL-2.0-only
//! Whose memory is looked at.

use super::args::EstimateArgs;
use crate::shared::output::is_same;
use crate::shared::tenants;
use anyhow::{Context, Result, bail};
use nuksm_fingerprint::{Error, Label, MemoryFile, Page, Process, TableReader};
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
    /// Of one tenant: memory, and roughly how many pages that is.
    Memory { label: Label, pid: Option<u32>, memory: Memory, pages: u64 },
    /// Fingerprints of any number of tenants.
    Table(TableReader),
}

/// Where a tenant's pages are.
pub enum Memory {
    Process(Box<Process>),
    File(MemoryFile),
}

impl Input {
    /// Pages that there are to be read, roughly.
    pub fn pages(&self) -> u64 {
        match self {
            Self::Memory { pages, .. } => *pages,
            Self::Table(table) => table.rows(),
        }
    }
}

impl Memory {
    /// The next pages, and what is left to be read, if anything. Whoever does not answer
    /// is an error.
    pub fn next_batch(self, root: &Root) -> Result<(Vec<Page>, Self, bool), Error> {
        match self {
            Self::Process(mut process) => {
                let pid = process.pid();
                let read = ask(pid, move || {
                    let (mut all, mut pages, mut batches) = (Vec::new(), Vec::new(), BATCHES);
                    let mut goes_on = true;
                    while goes_on && batches > 0 {
                        goes_on = process.next_batch(&mut pages)?;
                        all.append(&mut pages);
                        batches -= 1;
                    }
                    Ok((all, Self::Process(process), goes_on))
                });
                read.unwrap_or_else(|| Err(root.unanswered(pid).into()))
            }
            Self::File(mut file) => {
                let mut pages = Vec::new();
                let goes_on = file.next_batch(&mut pages)?;
                Ok((pages, Self::File(file), goes_on))
            }
        }
    }
}

/// Batches of a process that are read at once: another thread reads them, and takes
/// about as long to begin as for one of them.
const BATCHES: usize = 16;

/// Opens what the arguments name, or all large processes; and remarks. `stop` is asked
/// as [`crate::shared::view::View::collect`] does.
pub fn find(root: &Root, args: &EstimateArgs, stop: &dyn Fn() -> bool) -> Result<(Vec<Input>, Vec<String>)> {
    let machine = Topology::read(root).context("cannot read the machine's nodes")?;
    let mut inputs = Vec::new();
    let mut notes = Vec::new();
    let mut pids = args.pid.clone();
    pids.sort_unstable();
    pids.dedup();
    for pid in pids {
        let (there, topology) = (root.clone(), machine.clone());
        let opened = ask(pid, move || open_process(&there, pid, 0, &topology));
        let Some(input) = opened.unwrap_or_else(|| Err(root.unanswered(pid).into()))? else {
            bail!(
                "process {pid} has no memory of its own: it is a kernel thread, or has ended and waits for its parent"
            );
        };
        inputs.push(input);
    }
    for file in &args.files {
        inputs.push(open_file(&file.path, file.node)?);
    }
    if inputs.is_empty() {
        find_processes(root, args.all, &machine, stop, &mut inputs, &mut notes)?;
    }
    let inputs = once_each(root, inputs, stop, &mut notes)?;
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
    Ok((inputs, notes))
}

/// One process of each memory, the lowest; and all else.
fn once_each(
    root: &Root,
    mut inputs: Vec<Input>,
    stop: &dyn Fn() -> bool,
    notes: &mut Vec<String>,
) -> Result<Vec<Input>> {
    let task = |input: &Input| match input {
        Input::Memory { memory: Memory::Process(process), .. } => Some(process.pid()),
        _ => None,
    };
    let tasks: Vec<u32> = inputs.iter().filter_map(task).collect();
    let (firsts, untold) = tenants::first_of_memory(root, &tasks, stop)?;
    notes.extend(untold);
    let mut firsts = firsts.into_iter();
    inputs.retain(|input| task(input).is_none_or(|task| firsts.next() == Some(task)));
    Ok(inputs)
}

fn find_processes(
    root: &Root,
    all: bool,
    machine: &Topology,
    stop: &dyn Fn() -> bool,
    inputs: &mut Vec<Input>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let least = if all { 1 } else { LARGE_KIB };
    let mut denied = 0;
    let mut unread = Vec::new();
    let mut pids = root.numbered("proc", "")?;
    pids.retain(|&pid| pid != std::process::id());
    let (there, topology) = (root.clone(), machine.clone());
    let mut opened = BTreeMap::new();
    patiently(
        pids.iter().map(|&pid| (pid, pid)),
        move |pid, _| open_process(&there, pid, least, &topology),
        stop,
        |number, input| {
            let pid = pids[number];
            match input.unwrap_or_else(|| Err(root.unanswered(pid).into())) {
                Ok(input) => opened.extend(input.map(|input| (pid, input))),
                Err(Error::NotAllowed(_)) => denied += 1,
                Err(Error::NoProcess(_)) => {}
                // None may keep the others from being seen.
                Err(error) => unread.push((pid, error.to_string())),
            }
        },
    )
    .map_err(nuksm_pagemap::Error::from)?;
    inputs.extend(opened.into_values());
    let passed_over = tenants::passed_over(&unread);
    if let (true, Some(note)) = (inputs.is_empty(), &passed_over) {
        bail!("{note}");
    }
    notes.extend(passed_over);
    let privilege = "run as root, or with CAP_SYS_PTRACE";
    if inputs.is_empty() && denied > 0 {
        bail!("this user may read none of the {denied} processes in question: {privilege}");
    }
    if inputs.is_empty() {
        bail!(
            "no process has {} MiB of anonymous memory: name some with --pid, or use --all",
            LARGE_KIB >> 10
        );
    }
    if denied > 0 {
        notes.push(format!("{denied} processes are left out, this user may not read them: {privilege}"));
    }
    Ok(())
}

/// Resident anonymous memory, as `task` sees it; `None` when that has ended.
fn anonymous_kib(root: &Root, task: u32) -> Result<Option<u64>, Error> {
    let status = root.text(format!("proc/{task}/status"))?.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    Ok(line.and_then(|line| line.split_whitespace().next()?.parse().ok()))
}

/// Opens process `pid`, if it has so much anonymous memory; `None` also when it
/// can have none.
fn open_process(root: &Root, pid: u32, least_kib: u64, machine: &Topology) -> Result<Option<Input>, Error> {
    let stat = TaskStat::read(root, pid)?.ok_or(Error::NoProcess(pid))?;
    let Some(task) = stat.memory_task(root, pid)? else {
        return Ok(None);
    };
    let anonymous_kib = anonymous_kib(root, task)?.unwrap_or(0);
    if anonymous_kib < least_kib {
        return Ok(None);
    }
    let process = Box::new(Process::open(root, task)?);
    let node = home_node(root, pid, machine)?.and_then(|node| machine.memory_node(node));
    // A kernel without NUMA has one node, and no directory for it.
    let node = if machine.nodes.is_empty() { Some(0) } else { node };
    let tenant = tenants::name(root, task, &stat)?;
    let label = Label { tenant, source: format!("pid {pid}"), node, nice: stat.nice };
    let pages = (anonymous_kib << 10) / nuksm_pagemap::page_size();
    Ok(Some(Input::Memory { label, pid: Some(pid), memory: Memory::Process(process), pages }))
}

fn open_file(path: &Path, node: Option<u32>) -> Result<Input> {
    if let Some(table) = TableReader::open(path)? {
        if let Some(node) = node {
            bail!("{} knows its tenants' nodes: leave out @{node}", path.display());
        }
        return Ok(Input::Table(table));
    }
    let file = MemoryFile::open(path)?;
    let tenant = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let label = Label { tenant, source: path.display().to_string(), node, nice: 0 };
    Ok(Input::Memory { label, pid: None, pages: file.pages_left(), memory: Memory::File(file) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::fs;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EstimateArgs,
    }

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
        let args = Line::parse_from(format!("estimate {line}").split_whitespace()).args;
        let (inputs, _) = find(root, &args, &|| false)?;
        Ok(inputs
            .into_iter()
            .map(|input| match input {
                Input::Memory { label, .. } => label.tenant,
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
        fs::create_dir(dir.path().join("proc/self")).unwrap();
        fs::write(dir.path().join("proc/self/status"), "CapEff:\t0\n").unwrap();
        let memory = dir.path().join("proc/5007/mem");
        fs::remove_file(&memory).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &memory, rustix::fs::Mode::RUSR).unwrap();
        let args = |line: &str| Line::parse_from(line.split(' ')).args;
        let (inputs, notes) = find(&root, &args("estimate --all"), &|| false).unwrap();
        assert_eq!((inputs.len(), notes.len()), (1, 1));
        assert!(notes[0].contains("process 5007 is passed over: ") && notes[0].contains("does not answer"));
        let error = find(&root, &args("estimate --pid 5007"), &|| false).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("proc/5007 does not answer"), "{error}");
        assert!(find(&root, &args("estimate --all"), &|| true).is_err(), "it was stopped");

        // In the midst of reading it is no end, either.
        let (_stopper, stop) = crate::shared::stop::Stop::by_hand();
        let (_other, silent) = machine(&[(5007, "RssAnon:\t  1 kB\n")]);
        let process = Box::new(Process::open(&silent, 5007).unwrap());
        let label = Label { tenant: "silent".into(), source: "pid 5007".into(), node: None, nice: 0 };
        let silent = Input::Memory { label, pid: Some(5007), memory: Memory::Process(process), pages: 1 };
        let inputs = std::iter::once(silent).chain(inputs).collect();
        let gathered =
            crate::commands::estimate::gather::gather(&root, &args("estimate --all"), inputs, &stop);
        let gathered = gathered.unwrap().unwrap();
        assert_eq!((gathered.labels.len(), gathered.unread.len(), gathered.unread[0].0), (2, 1, 5007));
        // Lets the thread that waits go.
        let _ = fs::OpenOptions::new().write(true).open(memory);
    }

    #[test]
    fn when_there_is_nothing_to_look_at_it_says_what_to_do() {
        let (_dir, root) = machine(&[(8, "RssAnon:\t  1000 kB\n")]);
        let message = found(&root, "").unwrap_err().to_string();
        assert!(message.contains("no process has 64 MiB") && message.contains("--all"), "{message}");
        assert_eq!(found(&root, "--pid 5").unwrap_err().to_string(), "there is no process 5");
    }
}
