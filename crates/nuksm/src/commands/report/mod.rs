// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm report`: pictures and averages of recordings, on one page.

mod axis;
mod figures;
mod page;
mod pictures;
#[cfg(feature = "png")]
mod png;
mod svg;

use crate::shared::output;
use crate::shared::recording::Recording;
use crate::shared::replace::replace;
use anyhow::{Result, bail};
use clap::Args;
use log::warn;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

#[cfg(feature = "png")]
const EXAMPLES: &str = "Examples:\n  nuksm report ksm.jsonl\n  nuksm report without.jsonl with.jsonl --output compare.html --png pictures";
#[cfg(not(feature = "png"))]
const EXAMPLES: &str =
    "Examples:\n  nuksm report ksm.jsonl\n  nuksm report without.jsonl with.jsonl --output compare.html";

/// Make a page with pictures and averages of recordings.
///
/// One HTML file that needs nothing else and no network: savings, pages by
/// state, CPU time, places by node and by tenant over time, and of a kernel with the
/// engine use and replicas, with averages, least and most as tables. Of several recordings, such as one with merging
/// and one without, it shows each picture side by side on the same axes, and
/// each figure side by side; of two also the difference.
///
/// Files that a crash or a full disk cut off are read as far as they go; lines
/// that cannot be understood are named.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// Recordings in JSON lines; several are set side by side, on the same axes.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where to write the page.
    #[arg(long, value_name = "FILE", default_value = "nuksm-report.html")]
    pub output: PathBuf,
    /// Write each picture as a PNG file into DIR, too; takes a font.
    #[cfg(feature = "png")]
    #[arg(long, value_name = "DIR")]
    pub png: Option<PathBuf>,
}

/// Writes the page, and the pictures.
pub fn run(args: &ReportArgs) -> Result<ExitCode> {
    if args.files.iter().any(|file| output::is_same(file, &args.output)) {
        bail!("{} is a recording: let --output name another file", args.output.display());
    }
    let mut recordings = args.files.iter().map(|path| Recording::read(path)).collect::<Result<Vec<_>>>()?;
    name_apart(&mut recordings, &args.files);
    if recordings.iter().all(|recording| recording.runs.is_empty()) {
        bail!("there is nothing to report: no file has a sample");
    }
    for recording in &recordings {
        for problem in &recording.problems {
            warn!("{}: {problem}", recording.name);
        }
    }
    let figures = figures::Figures::of(&recordings);
    let pictures = pictures::all(&recordings, &figures);
    let page = page::render(&recordings, &figures, &pictures);
    replace(&args.output, page.as_bytes())?;
    output::print(&format!("wrote {}\n", args.output.display()))?;
    #[cfg(feature = "png")]
    if let Some(directory) = &args.png {
        let count = png::paint(&recordings, &pictures, directory)?;
        output::print(&format!("wrote {count} pictures into {}\n", directory.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Recordings are called by their files' names; by the whole path where two
/// have the same.
fn name_apart(recordings: &mut [Recording], paths: &[PathBuf]) {
    let mut count = BTreeMap::<String, usize>::new();
    for recording in recordings.iter() {
        *count.entry(recording.name.clone()).or_default() += 1;
    }
    for (recording, path) in recordings.iter_mut().zip(paths) {
        if count[&recording.name] > 1 {
            recording.name = path.display().to_string();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::cost::tests::least_cpu_seconds;
    use crate::shared::sample::TenantRow;
    use crate::shared::sample::tests::sample;
    use crate::shared::view::tests::view;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn a_recording_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ksm.jsonl");
        std::fs::write(&path, "").unwrap();
        std::fs::hard_link(&path, dir.path().join("link.jsonl")).unwrap();
        for name in ["./ksm.jsonl", "link.jsonl"] {
            let args = ReportArgs {
                files: vec![path.clone()],
                output: dir.path().join(name),
                #[cfg(feature = "png")]
                png: None,
            };
            let message = run(&args).unwrap_err().to_string();
            assert!(message.contains("is a recording: let --output name another file"), "{message}");
        }
        assert!(!output::is_same(&path, &dir.path().join("report.html")));
    }

    #[test]
    fn the_page_is_for_this_user_alone_and_goes_through_no_link() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let name = |name: &str| dir.path().join(name);
        std::fs::write(name("ksm.jsonl"), serde_json::to_string(&sample()).unwrap()).unwrap();
        let report = |output: &str| {
            run(&ReportArgs {
                files: vec![name("ksm.jsonl")],
                output: name(output),
                #[cfg(feature = "png")]
                png: None,
            })
        };
        std::fs::write(name("old.html"), "old").unwrap();
        std::fs::set_permissions(name("old.html"), std::fs::Permissions::from_mode(0o644)).unwrap();
        for output in ["new.html", "old.html"] {
            report(output).unwrap();
            assert_eq!(std::fs::metadata(name(output)).unwrap().permissions().mode() & 0o777, 0o600);
            assert!(std::fs::read_to_string(name(output)).unwrap().starts_with("<!DOCTYPE html>"));
        }
        std::fs::write(name("another's"), "precious").unwrap();
        symlink(name("another's"), name("link.html")).unwrap();
        let said = format!("{:#}", report("link.html").unwrap_err());
        assert!(said.ends_with("link.html: it is no regular file: choose another name"), "{said}");
        assert_eq!(std::fs::read_to_string(name("another's")).unwrap(), "precious");
    }

    #[test]
    fn recordings_of_one_name_are_told_apart_by_their_paths() {
        let paths: Vec<PathBuf> = ["a/ksm.jsonl", "b/ksm.jsonl", "other.jsonl"].map(PathBuf::from).into();
        let recording = |name: &str| Recording { name: name.into(), ..Recording::default() };
        let mut recordings = [recording("ksm"), recording("ksm"), recording("other")];
        name_apart(&mut recordings, &paths);
        let names: Vec<&str> = recordings.iter().map(|recording| recording.name.as_str()).collect();
        assert_eq!(names, ["a/ksm.jsonl", "b/ksm.jsonl", "other"]);
    }

    /// `cargo test --release --package nuksm measure_report -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement: it takes a minute"]
    #[allow(clippy::print_stdout)]
    fn measure_report_over_tenants() {
        const SAMPLES: u32 = 10;
        let dir = tempfile::tempdir().unwrap();
        let mut sample = sample();
        sample.place(&view());
        let row = sample.tenants.as_ref().unwrap()[0].clone();
        println!("tenants  ms: report  reading  us a tenant: report  reading");
        for tenants in [1_000, 4_000, 16_000, 40_000] {
            let tenant = |pid: u32| TenantRow { pid, name: format!("tenant-{pid}"), ..row.clone() };
            sample.tenants = Some((0..tenants).map(tenant).collect());
            let path = dir.path().join("ksm.jsonl");
            let mut file = File::create(&path).unwrap();
            for _ in 0..SAMPLES {
                sample.unix_time += 10.0;
                writeln!(file, "{}", serde_json::to_string(&sample).unwrap()).unwrap();
            }
            let args = ReportArgs {
                files: vec![path.clone()],
                output: dir.path().join("report.html"),
                #[cfg(feature = "png")]
                png: None,
            };
            let report = least_cpu_seconds(|| assert!(run(&args).is_ok()));
            let reading = least_cpu_seconds(|| drop(Recording::read(&path).unwrap()));
            let us = |seconds: f64| seconds * 1e6 / f64::from(tenants);
            println!(
                "{tenants:7} {:11.1} {:8.1} {:20.1} {:8.1}",
                report * 1e3,
                reading * 1e3,
                us(report),
                us(reading)
            );
        }
    }
}
