// SPDX-License-Identifier: GPL-2.0-only
//! CPU time and memory of the whole host, whoever uses them.

use anyhow::Result;
use nuksm_numafs::{Memory, TICKS_PER_SECOND};
use nuksm_sysroot::Root;
use serde::{Deserialize, Serialize};

/// What the whole host uses; `None` where the kernel does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// CPU time that all CPUs were busy since boot.
    pub cpu_busy_seconds: Option<f64>,
    /// The same with the time they were idle.
    pub cpu_total_seconds: Option<f64>,
    /// Memory that could not be had without swapping.
    pub memory_used_bytes: Option<u64>,
    /// All memory.
    pub memory_total_bytes: Option<u64>,
}

impl Load {
    /// Reads `/proc/stat` and `/proc/meminfo`.
    pub fn read(root: &Root) -> Result<Self> {
        let mut load = Self::default();
        if let Some(text) = root.text("proc/stat")? {
            let fields: Option<Vec<u64>> = text
                .lines()
                .next()
                .and_then(|line| line.strip_prefix("cpu "))
                .map(|fields| fields.split_whitespace().map_while(|field| field.parse().ok()).collect());
            // User, nice, system, idle, iowait, irq, softirq, steal; what guests
            // use, which follows, is part of user.
            let [user, nice, system, idle, iowait, rest @ ..] = fields.as_deref().unwrap_or_default() else {
                return Err(root.malformed("proc/stat", "the times of all CPUs", &text).into());
            };
            let busy = user + nice + system + rest.iter().take(3).sum::<u64>();
            load.cpu_busy_seconds = Some(busy as f64 / TICKS_PER_SECOND);
            load.cpu_total_seconds = Some((busy + idle + iowait) as f64 / TICKS_PER_SECOND);
        }
        let memory = Memory::of_machine(root)?.unwrap_or_default();
        load.memory_total_bytes = memory.total_bytes;
        let used = memory.total_bytes.zip(memory.available_bytes);
        load.memory_used_bytes = used.map(|(all, available)| all.saturating_sub(available));
        Ok(load)
    }

    /// Part of the memory that could be had without swapping, 0 to 1.
    pub fn available_part(&self) -> Option<f64> {
        let (total, used) = self.memory_total_bytes.zip(self.memory_used_bytes)?;
        Some(total.saturating_sub(used) as f64 / total.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn load(files: &[(&str, &str)]) -> Result<Load> {
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join("proc"))?;
        for (name, text) in files {
            fs::write(dir.path().join("proc").join(name), text)?;
        }
        Load::read(&Root::at(dir.path()))
    }

    #[test]
    fn guests_count_once_and_waiting_is_idle() {
        let load = load(&[
            ("stat", "cpu  100 10 50 800 40 5 3 2 90 9\ncpu0 1 2 3\n"),
            ("meminfo", "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:    512 kB\n"),
        ]);
        let expected = Load {
            cpu_busy_seconds: Some(1.7),
            cpu_total_seconds: Some(10.1),
            memory_used_bytes: Some(1536 << 10),
            memory_total_bytes: Some(2048 << 10),
        };
        assert_eq!(expected.available_part(), Some(0.25));
        assert_eq!(load.unwrap(), expected);
    }

    #[test]
    fn what_the_kernel_does_not_say_is_not_zero_and_nonsense_is_named() {
        assert_eq!(load(&[]).unwrap(), Load::default());
        let message = load(&[("stat", "intr 1 2\n")]).unwrap_err().to_string();
        assert!(message.contains("proc/stat: expected the times of all CPUs"), "{message}");
    }
}
