// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm estimate`: what merging would save, before anyone turns it on.

mod args;
mod gather;
mod inputs;
mod progress;
mod report;
mod text;

pub use args::EstimateArgs;

use crate::shared::output;
use crate::shared::stop::Stop;
use crate::shared::view;
use anyhow::Result;
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
    let gathered = match inputs::find(root, args, &|| stop.is_requested()) {
        Err(error) if view::was_stopped(&error) => None,
        found => {
            let (inputs, notes) = found?;
            gather::gather(root, args, inputs, &stop)?.map(|gathered| (gathered, notes))
        }
    };
    let Some((gathered, mut notes)) = gathered else {
        return Ok(interrupted());
    };
    if let Some((pid, why)) = gathered.unread.first() {
        let others = match gathered.unread.len() {
            1 => " counts".into(),
            unread => format!(", and {} others count", unread - 1),
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
