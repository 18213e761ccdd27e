// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm estimate`: what merging would save, before anyone turns it on.

mod args;
mod gather;
mod inputs;
mod progress;
mod report;
mod text;
mod uses;
mod wanted;

pub use args::EstimateArgs;

use crate::shared::output;
use crate::shared::stop::Stop;
use crate::shared::view;
use anyhow::{Result, bail};
use inputs::Found;
use log::warn;
use nuksm_model::estimate::Settings;
use nuksm_sysroot::{Root, unless_stopped};
use std::process::ExitCode;

/// What a shell says of a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Looks at the memory and prints what merging it would save.
pub fn run(root: &Root, args: &EstimateArgs) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let ksm = nuksm_ksmfs::Ksm::read(root)?.unwrap_or_default();
    // The kernel's own defaults where there is no KSM (yet).
    let settings = Settings {
        max_page_sharing: ksm.max_page_sharing.unwrap_or(256),
        use_zero_pages: ksm.use_zero_pages == Some(1),
        page_size: nuksm_pagemap::page_size(),
    };
    let Found { inputs, mut unread, denied, untold } = match inputs::find(root, args, &|| stop.is_requested())
    {
        Err(error) if view::was_stopped(&error) => return Ok(interrupted()),
        found => found?,
    };
    let Some(mut gathered) = gather::gather(root, args, inputs, &stop)? else {
        return Ok(interrupted());
    };
    unread.append(&mut gathered.unread);
    let mut notes = inputs::notes(denied, &unread);
    if gathered.labels.is_empty() && !unread.is_empty() {
        bail!("nothing could be looked at: {}", notes.join("; "));
    }
    notes.extend(untold);
    notes
        .extend(gathered.use_unknown.take().map(|why| format!("what replicas would buy is left out: {why}")));
    if let Some((pid, why)) = gathered.cut_short.first() {
        let others = match gathered.cut_short.len() {
            1 => " counts".into(),
            several => format!(", and {} others count", several - 1),
        };
        notes.push(format!("process {pid}{others} as far as could be read only: {why}"));
    }
    let figures = move || report::Report::new(gathered, settings, notes);
    let Ok(report) = unless_stopped(figures, &|| stop.is_requested()) else {
        return Ok(interrupted());
    };
    output::print_report(args.json, &report, text::text)?;
    Ok(ExitCode::SUCCESS)
}

fn interrupted() -> ExitCode {
    warn!("interrupted, nothing is reported");
    ExitCode::from(INTERRUPTED)
}
