// SPDX-License-Identifier: GPL-2.0-only
//! What this thread's work costs, with what other threads read for it.

use anyhow::{Context, Result};
use nuksm_sysroot::Root;
use rustix::time::{ClockId, clock_gettime};
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
        Self { started: Instant::now(), cpu: own_cpu_time() }
    }

    /// Wall-clock seconds so far.
    pub fn wall_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// CPU seconds so far, in user mode and in the kernel.
    pub fn cpu_seconds(&self) -> f64 {
        own_cpu_time().saturating_sub(self.cpu).as_secs_f64()
    }
}

fn own_cpu_time() -> Duration {
    cpu_time(ClockId::ThreadCPUTime) + nuksm_sysroot::borrowed_cpu_time()
}

/// The most memory this process ever had resident, in bytes.
pub fn peak_memory_bytes(root: &Root) -> Result<u64> {
    let status = root.text("proc/self/status")?.context("/proc is not mounted")?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")?.trim().parse().ok());
    let kib: u64 = kib.context("no VmHWM in /proc/self/status")?;
    Ok(kib << 10)
}

/// CPU time of this process, all threads, so far.
pub fn process_cpu_seconds() -> f64 {
    cpu_time(ClockId::ProcessCPUTime).as_secs_f64()
}

fn cpu_time(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The least of three: what others do meanwhile only adds.
    pub fn least_cpu_seconds(mut work: impl FnMut()) -> f64 {
        let mut run = || {
            let meter = Meter::start();
            work();
            meter.cpu_seconds()
        };
        run().min(run()).min(run())
    }

    #[test]
    fn work_costs_time_and_memory() {
        let meter = Meter::start();
        let pages: Vec<u64> = (0..1_000_000).collect();
        assert!(pages.iter().sum::<u64>() > 0 && meter.cpu_seconds() > 0.0);
        assert!(meter.cpu_seconds() <= meter.wall_seconds() + 0.01);
        assert!(process_cpu_seconds() >= meter.cpu_seconds());
        assert!(peak_memory_bytes(&Root::default()).unwrap() > 8_000_000);
    }
}
