// SPDX-License-Identifier: GPL-2.0-only
//! `/proc/meminfo`, and each node's in the same form.

use nuksm_sysroot::{Result, Root};

/// Memory of the machine or of a node, in bytes; `None` where the kernel does
/// not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total_bytes: Option<u64>,
    /// Memory that nobody uses.
    pub free_bytes: Option<u64>,
    /// Memory that programs could have without swapping; of the machine only.
    pub available_bytes: Option<u64>,
}

impl Memory {
    /// The machine's; `None` when `/proc` is not mounted.
    pub fn of_machine(root: &Root) -> Result<Option<Self>> {
        Ok(root.text("proc/meminfo")?.map(|text| Self::parse(&text)))
    }

    /// From lines `MemTotal: 1024 kB`; a node's begin with `Node 0`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut memory = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let bytes = value
                .trim()
                .strip_suffix(" kB")
                .and_then(|kib| kib.parse::<u64>().ok())
                .map(|kib| kib.saturating_mul(1024));
            match name.rsplit(' ').next() {
                Some("MemTotal") => memory.total_bytes = bytes,
                Some("MemFree") => memory.free_bytes = bytes,
                Some("MemAvailable") => memory.available_bytes = bytes,
                _ => {}
            }
        }
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_s_and_a_node_s() {
        let machine = Memory::parse(
            "MemTotal:       4 kB\nMemFree:        2 kB\nMemAvailable:   3 kB\nActive(anon): 1 kB\n",
        );
        let kib = |kib: u64| Some(kib << 10);
        assert_eq!(machine, Memory { total_bytes: kib(4), free_bytes: kib(2), available_bytes: kib(3) });
        let node = Memory::parse(
            "Node 1 MemTotal:        8 kB\nNode 1 MemFree: few kB\nNode 1 HugePages_Total: 0\n",
        );
        assert_eq!(
            node,
            Memory { total_bytes: kib(8), ..Memory::default() },
            "what is no number is not known"
        );
    }

    #[test]
    fn without_proc_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Memory::of_machine(&Root::at(dir.path())).unwrap(), None);
    }
}
