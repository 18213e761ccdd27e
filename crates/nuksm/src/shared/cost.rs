// SPDX-License-Identifier: GPL-2.0-only
//! What this thread's work costs.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Runs from its making on.
#[derive(Debug)]
pub struct Meter {
    started: Instant,
    cpu: Duration,
}

impl Meter {
    /// Starts measuring.
    pub fn start() -> Self {
        Self { started: Instant::now(), cpu: usage(libc::RUSAGE_THREAD).0 }
    }

    /// Wall-clock seconds so far.
    pub fn wall_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// CPU seconds of this thread, in user mode and in the kernel, so far.
    pub fn cpu_seconds(&self) -> f64 {
        usage(libc::RUSAGE_THREAD).0.saturating_sub(self.cpu).as_secs_f64()
    }
}

/// The most memory this process ever had resident, in bytes.
pub fn peak_memory_bytes() -> u64 {
    usage(libc::RUSAGE_SELF).1
}

/// CPU time of this process, all threads, so far.
pub fn process_cpu_seconds() -> f64 {
    usage(libc::RUSAGE_SELF).0.as_secs_f64()
}

/// CPU time used and peak resident bytes.
fn usage(whose: libc::c_int) -> (Duration, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure it is given; all-zero is a valid
    // value of it, too, should the call fail.
    let usage = unsafe {
        libc::getrusage(whose, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |value: libc::timeval| {
        let part = |number: i64| u64::try_from(number).unwrap_or(0);
        Duration::from_secs(part(value.tv_sec)) + Duration::from_micros(part(value.tv_usec))
    };
    (time(usage.ru_utime) + time(usage.ru_stime), u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024)
}
