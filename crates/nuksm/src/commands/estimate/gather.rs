// SPDX-License-Identifier: GPL-2.0-only
//! Reads all memory once, and keeps what the estimate needs of it.

use super::args::EstimateArgs;
use super::inputs::{Candidate, Input};
use super::progress::Progress;
use super::uses::{self, Used, Watched};
use super::wanted::Wanted;
use crate::shared::privilege;
use crate::shared::stop::Stop;
use crate::shared::tenants;
use anyhow::Result;
use nuksm_fingerprint::{Error, Label, MemoryFile, Page, Process, TableReader, TableWriter};
use nuksm_model::estimate::{Contents, Tenant};
use nuksm_sysroot::{Root, ask};
use std::time::Duration;

/// What was read.
pub struct Gathered {
    /// Whose memory it is, and the process, in the order of `tenants`.
    pub labels: Vec<(Label, Option<u32>)>,
    /// Their merge domains, if those were asked for; one for each of `tenants`.
    pub domains: Option<Vec<String>>,
    /// Their pages, counted.
    pub tenants: Vec<Tenant>,
    /// Contents of pages that are not all zeroes.
    pub contents: Contents,
    /// Frames that several places map.
    pub frames: Contents,
    /// Places that map one of those.
    pub shared_places: u64,
    /// Did every page come from a process, and were frames to be seen?
    pub frames_known: bool,
    /// How contents are used, when that was asked for.
    pub used: Option<Used>,
    /// Why nobody knows how, if so.
    pub use_unknown: Option<String>,
    /// Pages that were gone before they could be read.
    pub vanished: u64,
    /// Zero pages that take no memory of their own.
    pub zero_already: u64,
    /// Processes that could not be opened at their turn, and why.
    pub unread: Vec<(u32, String)>,
    /// Processes that did not answer before they were read to their end, and why.
    pub cut_short: Vec<(u32, String)>,
}

/// Batches of a process that are read at once: another thread reads them, and takes
/// about as long to begin as for one of them.
const BATCHES: usize = 16;

/// Where a tenant's pages are.
enum Memory {
    Process(Box<Process>),
    File(MemoryFile),
}

impl Memory {
    /// The next pages, and what is left to be read, if anything. Whoever does not answer
    /// is an error.
    fn next_batch(self, root: &Root) -> Result<(Vec<Page>, Self, bool), Error> {
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

/// Reads `inputs`; `None` when interrupted.
pub fn gather(root: &Root, args: &EstimateArgs, inputs: Vec<Input>, stop: &Stop) -> Result<Option<Gathered>> {
    let mut wanted = args.domains.as_ref().map(|borders| Wanted::new(root, borders)).transpose()?;
    let processes_only = inputs.iter().all(|input| matches!(input, Input::Process(_)));
    let frames_known = processes_only && privilege::missing(root, false)?.is_empty();
    let dump = args.dump.as_deref().map(TableWriter::create).transpose()?;
    // Before anything is read: who reads a page uses it.
    let watched = args.replicas.as_ref().map(|_| uses::watch(root, &inputs, stop)).transpose()?;
    if matches!(watched, Some(Watched::Interrupted)) {
        return Ok(None);
    }
    let mut reading = Reading {
        dump,
        progress: Progress::new(inputs.iter().map(Input::pages).sum()),
        root,
        stop,
        gathered: Gathered::new(args, frames_known, watched),
    };
    for input in inputs {
        let goes_on = match input {
            Input::Process(candidate) => {
                let domain = wanted.as_mut().map(|wanted| wanted.domain(&candidate)).transpose()?;
                let before = reading.gathered.tenants.len();
                let goes_on = reading.process(candidate)?;
                // Unless it was gone by now.
                let is_there = reading.gathered.tenants.len() > before;
                if let (Some(domains), Some(domain), true) = (&mut reading.gathered.domains, domain, is_there)
                {
                    domains.push(domain);
                }
                goes_on
            }
            Input::File { label, memory } => reading.memory(label, None, Memory::File(memory))?,
            Input::Table(table) => reading.table(table)?,
        };
        if !goes_on {
            return Ok(None);
        }
    }
    reading.dump.map(TableWriter::finish).transpose()?;
    reading.progress.finish();
    Ok(Some(reading.gathered))
}

struct Reading<'a> {
    dump: Option<TableWriter>,
    progress: Progress,
    root: &'a Root,
    stop: &'a Stop,
    gathered: Gathered,
}

impl Reading<'_> {
    /// Reads the memory of a process, unless it ended meanwhile; false when interrupted.
    fn process(&mut self, candidate: Candidate) -> Result<bool> {
        let Candidate { label, pid, task, is_named, .. } = candidate;
        let there = self.root.clone();
        let opened = ask(task, move || Process::open(&there, task));
        match opened.unwrap_or_else(|| Err(self.root.unanswered(task).into())) {
            Ok(process) => return self.memory(label, Some(pid), Memory::Process(Box::new(process))),
            Err(error) if is_named => return Err(error.into()),
            Err(Error::NoProcess(_)) => {}
            // None may keep the others from being seen.
            Err(error) => self.gathered.unread.push((pid, tenants::with_cause(&error))),
        }
        Ok(true)
    }

    /// Reads a tenant's memory; false when interrupted.
    fn memory(&mut self, label: Label, pid: Option<u32>, mut memory: Memory) -> Result<bool> {
        let name = label.tenant.clone();
        if let Some(dump) = &mut self.dump {
            dump.set_label(label.clone())?;
        }
        let tenant = self.gathered.add_tenant(label, pid);
        let mut goes_on = true;
        while goes_on {
            let pages;
            (pages, memory, goes_on) = match (memory.next_batch(self.root), pid) {
                (Err(Error::Proc(error @ nuksm_sysroot::Error::Unanswered { .. })), Some(pid)) => {
                    self.gathered.cut_short.push((pid, error.to_string()));
                    return Ok(true);
                }
                (read, _) => read?,
            };
            if let Some(dump) = &mut self.dump {
                dump.add(&pages)?;
            }
            for page in &pages {
                self.gathered.add(tenant, page);
            }
            self.progress.add(pages.len(), &name);
            if self.stop.wait(Duration::ZERO) {
                return Ok(false);
            }
        }
        if let Memory::Process(process) = memory {
            self.gathered.vanished += process.vanished();
            self.gathered.zero_already += process.zero_already();
        }
        Ok(true)
    }

    /// Reads fingerprints; false when interrupted.
    fn table(&mut self, mut table: TableReader) -> Result<bool> {
        let first = self.gathered.tenants.len();
        while let Some(rows) = table.next_batch()? {
            for label in &table.labels()[self.gathered.tenants.len() - first..] {
                self.gathered.add_tenant(label.clone(), None);
            }
            for (tenant, page) in &rows {
                self.gathered.add(first + *tenant as usize, page);
            }
            self.progress.add(rows.len(), "fingerprints");
            if self.stop.wait(Duration::ZERO) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Gathered {
    fn new(args: &EstimateArgs, frames_known: bool, watched: Option<Watched>) -> Self {
        // Where many places share frames there are few contents for that, and
        // the other way round; this much holds a host on which a third of all
        // pages is merged.
        let frames = args.memory.0 / 4;
        let (mut used, mut use_unknown) = (None, None);
        match (watched, &args.replicas) {
            (Some(Watched::Frames(watch)), Some(percents)) => {
                used = Some(Used::new(watch, percents.clone(), frames, args.sample.0));
            }
            (Some(Watched::Unknown(why)), _) => use_unknown = Some(why),
            _ => {}
        }
        let for_use = if used.is_some() { frames } else { 0 };
        Self {
            labels: Vec::new(),
            domains: args.domains.as_ref().map(|_| Vec::new()),
            tenants: Vec::new(),
            contents: Contents::new(args.memory.0 - frames - for_use, args.sample.0),
            frames: Contents::new(frames, args.sample.0),
            shared_places: 0,
            frames_known,
            used,
            use_unknown,
            vanished: 0,
            zero_already: 0,
            unread: Vec::new(),
            cut_short: Vec::new(),
        }
    }

    /// Adds a tenant; returns its index.
    fn add_tenant(&mut self, label: Label, pid: Option<u32>) -> usize {
        self.tenants.push(Tenant { node: label.node, nice: label.nice, ..Tenant::default() });
        self.labels.push((label, pid));
        self.tenants.len() - 1
    }

    fn add(&mut self, index: usize, page: &Page) {
        let tenant = &mut self.tenants[index];
        if page.is_zero {
            tenant.zero_pages += 1;
            return;
        }
        tenant.pages += 1;
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.contents.add(index, page.fingerprint);
        if let Some(used) = &mut self.used {
            used.add(index, page);
        }
        if let Some(frame) = page.frame.filter(|_| page.is_shared) {
            self.shared_places += 1;
            self.frames.add(index, nuksm_fingerprint::fingerprint(&frame.to_ne_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::estimate::args::tests::args;
    use crate::commands::estimate::inputs;
    use crate::shared::tree::tree;
    use std::sync::mpsc::{Sender, channel};

    /// From now on, processes with this number do not answer. Who is held up is known by
    /// pid, in all tests of this process.
    fn silence(pid: u32) -> Sender<()> {
        let (sender, receiver) = channel();
        assert_eq!(ask(pid, move || receiver.recv().is_ok()), None);
        sender
    }

    #[test]
    fn who_does_not_answer_at_its_turn_is_passed_over_unless_it_is_named() {
        let stat = |pid: u32| format!("{pid} (t) S {} 7 {}", ["0"; 15].join(" "), ["1"; 30].join(" "));
        let (stat, other) = (stat(5010), stat(5011));
        let status = "RssAnon:\t  1 kB\n";
        let (_dir, root) = tree(&[
            ("proc/self/status", "CapEff:\t0\n"),
            ("proc/5010/stat", &stat),
            ("proc/5010/status", status),
            ("proc/5010/mem", ""),
            ("proc/5011/stat", &other),
            ("proc/5011/status", status),
            ("proc/5011/mem", ""),
            ("proc/5011/pagemap", ""),
            ("proc/5011/smaps", ""),
        ]);
        let found = |line| inputs::find(&root, &args(line), &|| false).unwrap().inputs;
        let (all, named) = (found("--all"), found("--pid 5010"));
        let _sender = silence(5010);
        let (_stopper, stop) = Stop::by_hand();
        let gather = |inputs| gather(&root, &args(""), inputs, &stop);
        let gathered = gather(all).unwrap().unwrap();
        assert_eq!((gathered.labels.len(), gathered.unread.len(), gathered.unread[0].0), (1, 1, 5010));
        let error = gather(named).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("proc/5010 does not answer"), "{error}");
    }

    #[test]
    fn who_falls_silent_counts_as_far_as_it_was_read() {
        let (_dir, root) = tree(&[("proc/5009/mem", ""), ("proc/5009/pagemap", ""), ("proc/5009/smaps", "")]);
        let process = Box::new(Process::open(&root, 5009).unwrap());
        let _sender = silence(5009);
        let (_stopper, stop) = Stop::by_hand();
        let gathered = Gathered::new(&args(""), true, None);
        let mut reading =
            Reading { dump: None, progress: Progress::new(1), root: &root, stop: &stop, gathered };
        let label = Label { tenant: "silent".into(), source: "pid 5009".into(), node: None, nice: 0 };
        assert!(reading.memory(label, Some(5009), Memory::Process(process)).unwrap(), "the others are read");
        let Gathered { labels, unread, cut_short, .. } = reading.gathered;
        assert_eq!((labels.len(), unread.len(), cut_short.len()), (1, 0, 1));
        assert!(cut_short[0].1.ends_with("proc/5009 does not answer: its memory is locked"), "{cut_short:?}");
    }
}
