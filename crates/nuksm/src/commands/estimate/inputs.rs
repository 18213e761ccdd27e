// SPDX-License-Identifier: GPL-2.0-only
//! Whose memory is looked at.

use super::args::EstimateArgs;
use crate::shared::output::is_same;
use crate::shared::tenants;
use anyhow::{Context, Result, bail};
use nuksm_fingerprint::{Error, Label, MemoryFile, Page, Process, TableReader};
use nuksm_numafs::{TaskStat, Topology, home_node};
use nuksm_sysroot::Root;
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
    /// Reads the next pages into `pages`; false at the end.
    pub fn next_batch(&mut self, pages: &mut Vec<Page>) -> Result<bool, Error> {
        match self {
            Self::Process(process) => process.next_batch(pages),
            Self::File(file) => file.next_batch(pages),
        }
    }
}

/// Opens what the arguments name, or all large processes; and remarks.
pub fn find(root: &Root, args: &EstimateArgs) -> Result<(Vec<Input>, Vec<String>)> {
    let machine = Topology::read(root).context("cannot read the machine's nodes")?;
    let mut inputs = Vec::new();
    let mut notes = Vec::new();
    let mut pids = args.pid.clone();
    pids.sort_unstable();
    pids.dedup();
    for pid in pids {
        let Some(input) = open_process(root, pid, 0, &machine)? else {
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
        find_processes(root, args.all, &machine, &mut inputs, &mut notes)?;
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
    Ok((inputs, notes))
}

fn find_processes(
    root: &Root,
    all: bool,
    machine: &Topology,
    inputs: &mut Vec<Input>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let least = if all { 1 } else { LARGE_KIB };
    let mut denied = 0;
    let mut unread = Vec::new();
    for pid in root.numbered("proc", "")? {
        if pid == std::process::id() {
            continue;
        }
        match open_process(root, pid, least, machine) {
            Ok(input) => inputs.extend(input),
            Err(Error::NotAllowed(_)) => denied += 1,
            Err(Error::NoProcess(_)) => {}
            // None may keep the others from being seen.
            Err(error) => unread.push((pid, error.to_string())),
        }
    }
    notes.extend(tenants::passed_over(&unread));
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
        let (inputs, _) = find(root, &args)?;
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
    fn when_there_is_nothing_to_look_at_it_says_what_to_do() {
        let (_dir, root) = machine(&[(8, "RssAnon:\t  1000 kB\n")]);
        let message = found(&root, "").unwrap_err().to_string();
        assert!(message.contains("no process has 64 MiB") && message.contains("--all"), "{message}");
        assert_eq!(found(&root, "--pid 5").unwrap_err().to_string(), "there is no process 5");
    }
}
