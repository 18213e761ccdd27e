// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm exec`: a program with merging switched on.

use anyhow::{Result, bail};
use clap::Args;
use log::error;
use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Run an unmodified program with merging switched on for all its memory.
///
/// Uses `PR_SET_MEMORY_MERGE` of prctl(2), Linux 6.4; from 6.7 on the setting
/// passes to the program (and its children), before that nuksm says so and
/// runs nothing. KSM itself must be running for pages to be merged.
#[derive(Debug, Args)]
#[command(after_help = "Example: nuksm exec -- ./solver --size 4G")]
pub struct ExecArgs {
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// From the kernel's uapi header prctl.h (Linux 6.4).
const PR_SET_MEMORY_MERGE: libc::c_int = 67;
const PR_GET_MEMORY_MERGE: libc::c_int = 68;

/// What the copy of ourselves is called that reports whether it has merging on.
const PROBE: &str = "nuksm: has it merging on?";

/// Switches merging on for this process and becomes the program.
pub fn run(args: &ExecArgs) -> Result<ExitCode> {
    if std::env::args_os().next().is_some_and(|name| name == PROBE) {
        return Ok(if merging(PR_GET_MEMORY_MERGE, 0).is_ok_and(|on| on) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    if let Err(error) = merging(PR_SET_MEMORY_MERGE, 1) {
        match error.kind() {
            ErrorKind::InvalidInput => {
                bail!("this kernel cannot merge a whole process (Linux 6.4 with CONFIG_KSM can)")
            }
            ErrorKind::PermissionDenied => bail!("the kernel refuses to switch merging on: run as root"),
            _ => bail!("cannot switch merging on: {error}"),
        }
    }
    let probe = Command::new("/proc/self/exe").arg0(PROBE).args(["exec", "probe"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        bail!(
            "this kernel drops the setting when a program starts (Linux 6.7 keeps it): \
             let the program call prctl(PR_SET_MEMORY_MERGE) or madvise(MADV_MERGEABLE) itself"
        );
    }
    let (program, arguments) = (&args.command[0], &args.command[1..]);
    let error = Command::new(program).args(arguments).exec();
    error!("cannot run {}: {error}", program.to_string_lossy());
    // As the shell and env(1) do.
    Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 }))
}

/// Asks (or tells) the kernel about merging in this process.
fn merging(operation: libc::c_int, on: libc::c_ulong) -> Result<bool, Error> {
    let zero: libc::c_ulong = 0;
    // SAFETY: both operations take numbers only.
    let answer = unsafe { libc::prctl(operation, on, zero, zero, zero) };
    if answer < 0 { Err(Error::last_os_error()) } else { Ok(answer > 0) }
}
