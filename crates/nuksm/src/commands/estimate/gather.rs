// SPDX-License-Identifier: GPL-2.0-only
//! Reads all memory once, and keeps what the estimate needs of it.

use super::args::EstimateArgs;
use super::inputs::{Input, Memory};
use super::progress::Progress;
use crate::shared::privilege;
use crate::shared::stop::Stop;
use anyhow::Result;
use nuksm_fingerprint::{Error, Label, Page, TableReader, TableWriter};
use nuksm_model::estimate::{Contents, Tenant};
use nuksm_sysroot::Root;
use std::time::Duration;

/// What was read.
pub struct Gathered {
    /// Whose memory it is, and the process, in the order of `tenants`.
    pub labels: Vec<(Label, Option<u32>)>,
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
    /// Pages that were gone before they could be read.
    pub vanished: u64,
    /// Zero pages that take no memory of their own.
    pub zero_already: u64,
    /// Processes that did not answer and were not read to their end, and why.
    pub unread: Vec<(u32, String)>,
}

/// Reads `inputs`; `None` when interrupted.
pub fn gather(root: &Root, args: &EstimateArgs, inputs: Vec<Input>, stop: &Stop) -> Result<Option<Gathered>> {
    let processes_only =
        inputs.iter().all(|input| matches!(input, Input::Memory { memory: Memory::Process(_), .. }));
    let frames_known = processes_only && privilege::missing(root, false)?.is_empty();
    let mut reading = Reading {
        dump: args.dump.as_deref().map(TableWriter::create).transpose()?,
        progress: Progress::new(inputs.iter().map(Input::pages).sum()),
        root,
        stop,
        gathered: Gathered::new(args, frames_known),
    };
    for input in inputs {
        let goes_on = match input {
            Input::Memory { label, pid, memory, .. } => reading.memory(label, pid, memory)?,
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
                    self.gathered.unread.push((pid, error.to_string()));
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
    fn new(args: &EstimateArgs, frames_known: bool) -> Self {
        // Where many places share frames there are few contents for that, and
        // the other way round; this much holds a host on which a third of all
        // pages is merged.
        let frames = args.memory.0 / 4;
        Self {
            labels: Vec::new(),
            tenants: Vec::new(),
            contents: Contents::new(args.memory.0 - frames, args.sample.0),
            frames: Contents::new(frames, args.sample.0),
            shared_places: 0,
            frames_known,
            vanished: 0,
            zero_already: 0,
            unread: Vec::new(),
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
        if let Some(frame) = page.shared_frame {
            self.shared_places += 1;
            self.frames.add(index, nuksm_fingerprint::fingerprint(&frame.to_ne_bytes()));
        }
    }
}
