// SPDX-License-Identifier: GPL-2.0-only
//! Where the policies of a process put its pages: `/proc/PID/numa_maps`.

use crate::CpuList;
use nuksm_sysroot::{Result, Root};
use std::collections::BTreeMap;

/// The areas of a process whose policy names one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policies {
    /// By first address; up to the next.
    nodes: BTreeMap<u64, Option<u32>>,
}

impl Policies {
    /// Reads them; none when the process has ended, or the kernel has no NUMA.
    pub fn read(root: &Root, pid: u32) -> Result<Self> {
        let path = format!("proc/{pid}/numa_maps");
        let mut nodes = BTreeMap::new();
        root.lines(&path, |line| {
            let mut words = line.split(' ');
            let start = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
            let start = start.ok_or_else(|| root.malformed(&path, "an address and a policy", line))?;
            nodes.insert(start, words.next().and_then(only_node));
            Ok(())
        })?;
        Ok(Self { nodes })
    }

    /// The one node that the policy of the area around `addr` names, if it
    /// names one only.
    #[must_use]
    pub fn node(&self, addr: u64) -> Option<u32> {
        self.nodes.range(..=addr).next_back().and_then(|(_, &node)| node)
    }
}

/// `bind:1`, `prefer=static:0`; `interleave:0-1` and `default` name no node.
fn only_node(policy: &str) -> Option<u32> {
    let (mode, nodes) = policy.split_once(':')?;
    let relative = mode.contains("relative");
    if relative { None } else { nodes.parse::<CpuList>().ok()?.only() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(text: &str) -> Result<Policies> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/7")).unwrap();
        fs::write(dir.path().join("proc/7/numa_maps"), text).unwrap();
        Policies::read(&Root::at(dir.path()), 7)
    }

    #[test]
    fn only_a_policy_of_one_node_says_where_a_page_goes() {
        let policies = read(
            "1000 bind:1 anon=2 N1=2\n3000 default file=/bin/x\n5000 prefer=static:0\n7000 interleave:0-1\n\
             9000 prefer (many):0\nb000 bind=relative:0 anon=1\n",
        )
        .unwrap();
        let nodes = [0x0, 0x1000, 0x2fff, 0x3000, 0x5000, 0x7000, 0x9000, 0xb000].map(|at| policies.node(at));
        assert_eq!(nodes, [None, Some(1), Some(1), None, Some(0), None, None, None]);
    }

    #[test]
    fn a_process_that_ended_has_none_and_bad_content_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Policies::read(&Root::at(dir.path()), 7).unwrap(), Policies::default());
        assert!(read("x default\n").unwrap_err().to_string().contains("proc/7/numa_maps"));
    }
}
