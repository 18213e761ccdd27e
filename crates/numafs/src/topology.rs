// SPDX-License-Identifier: GPL-2.0-only
//! Nodes: `/sys/devices/system/node` and `/proc/zoneinfo`.

use crate::{CpuList, Memory};
use nuksm_sysroot::{Result, Root};

const DIR: &str = "sys/devices/system/node";
const ZONEINFO: &str = "proc/zoneinfo";

/// One online node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number in the kernel.
    pub id: u32,
    /// Its CPUs; empty for a node that is memory only.
    pub cpus: CpuList,
    /// Memory of the node in bytes; 0 for a node that is CPUs only.
    pub total_bytes: u64,
    /// Free memory in bytes.
    pub free_bytes: u64,
    /// Pages that programs can still take here before the kernel goes elsewhere
    /// or reclaims: what its zones have free above their high watermarks, less
    /// what they keep for those who can use no other (`lowmem_reserve_ratio`).
    pub room_pages: u64,
    /// Distance to each online node, in the order of [`Topology::nodes`];
    /// 10 is local (ACPI SLIT).
    pub distances: Vec<u32>,
}

/// The page frames of one zone, holes included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneSpan {
    /// The node that owns the zone.
    pub node: u32,
    /// First page frame number.
    pub start_pfn: u64,
    /// The page frame number behind the last.
    pub end_pfn: u64,
}

/// All online nodes in ascending order, and which page frames they own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// Online nodes, ascending by number.
    pub nodes: Vec<Node>,
    /// Zones with memory, ascending by page frame.
    pub zones: Vec<ZoneSpan>,
}

impl Topology {
    /// Reads the machine's nodes; a kernel without NUMA has none.
    pub fn read(root: &Root) -> Result<Self> {
        let zoneinfo = root.text(ZONEINFO)?.unwrap_or_default();
        let (zones, rooms) = parse_zoneinfo(root, &zoneinfo)?;
        let mut nodes = Vec::new();
        for id in root.numbered(DIR, "node")? {
            let (total_bytes, free_bytes) = read_meminfo(root, id)?;
            let path = format!("{DIR}/node{id}/distance");
            let text = root.text(&path)?.unwrap_or_default();
            let distances = text
                .split_whitespace()
                .map(|word| word.parse().map_err(|_| root.malformed(&path, "distances", &text)))
                .collect::<Result<_>>()?;
            let cpulist = root.value(format!("{DIR}/node{id}/cpulist"), "a list of CPUs")?;
            let room_pages = room_pages(rooms.iter().filter(|room| room.node == id));
            let cpus = cpulist.unwrap_or_default();
            nodes.push(Node { id, cpus, total_bytes, free_bytes, room_pages, distances });
        }
        Ok(Self { nodes, zones })
    }

    /// The node that `cpu` belongs to.
    #[must_use]
    pub fn node_of_cpu(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|node| node.cpus.contains(cpu)).map(|node| node.id)
    }

    /// The node that owns page frame `pfn`; `None` when no zone or more than
    /// one node's zones span it (interleaved memory).
    #[must_use]
    pub fn node_of_pfn(&self, pfn: u64) -> Option<u32> {
        let mut owner = None;
        for zone in &self.zones {
            if zone.start_pfn <= pfn && pfn < zone.end_pfn {
                if owner.is_some_and(|node| node != zone.node) {
                    return None;
                }
                owner = Some(zone.node);
            }
        }
        owner
    }

    /// Distance from one node to another; an unknown pair is as far as can be.
    #[must_use]
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let place = |id| self.nodes.iter().position(|node| node.id == id);
        match (place(from), place(to)) {
            (Some(from), Some(to)) => self.nodes[from].distances.get(to).copied().unwrap_or(u32::MAX),
            _ => u32::MAX,
        }
    }

    /// The nearest node with memory to `node`: itself, if it has any.
    #[must_use]
    pub fn memory_node(&self, node: u32) -> Option<u32> {
        let with_memory = self.nodes.iter().filter(|other| other.total_bytes > 0);
        with_memory.map(|other| other.id).min_by_key(|&id| (id != node, self.distance(node, id), id))
    }
}

/// Total and free bytes of a node.
fn read_meminfo(root: &Root, id: u32) -> Result<(u64, u64)> {
    let path = format!("{DIR}/node{id}/meminfo");
    let text = root.text(&path)?.unwrap_or_default();
    let memory = Memory::parse(&text);
    let known = memory.total_bytes.zip(memory.free_bytes);
    known.ok_or_else(|| root.malformed(&path, "MemTotal: and MemFree: in kB", &text))
}

/// What a zone has free, and what of that is not for programs to take.
#[derive(Debug)]
struct ZoneRoom {
    node: u32,
    free: u64,
    high_watermark: u64,
    /// From allocations that any zone would do for, as programs' are.
    protection: u64,
}

/// The room of a node with these zones, in pages. A zone that is below its
/// watermark makes it smaller: programs get pages there even if another zone has
/// more, down to the low watermark.
fn room_pages<'a>(zones: impl Iterator<Item = &'a ZoneRoom>) -> u64 {
    let (mut usable, mut watermarks) = (0, 0);
    for zone in zones.filter(|zone| zone.free > zone.protection) {
        usable += zone.free - zone.protection;
        watermarks += zone.high_watermark;
    }
    usable.saturating_sub(watermarks)
}

/// Spans of all zones with memory, and what each zone can still take.
fn parse_zoneinfo(root: &Root, text: &str) -> Result<(Vec<ZoneSpan>, Vec<ZoneRoom>)> {
    let mut spans = Vec::new();
    let mut rooms = Vec::<ZoneRoom>::new();
    let mut spanned = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| root.malformed(ZONEINFO, "a number", line));
        if let ["Node", id, "zone", _] = words.as_slice() {
            let id = id.trim_end_matches(',').parse();
            let node = id.map_err(|_| root.malformed(ZONEINFO, "Node N, zone NAME", line))?;
            rooms.push(ZoneRoom { node, free: 0, high_watermark: 0, protection: 0 });
            spanned = 0;
        }
        let Some(zone) = rooms.last_mut() else { continue };
        match words.as_slice() {
            ["pages", "free", pages] => zone.free = number(pages)?,
            ["high", pages] => zone.high_watermark = number(pages)?,
            ["protection:", classes @ ..] => {
                for pages in classes {
                    zone.protection = zone.protection.max(number(pages.trim_matches(['(', ',', ')']))?);
                }
            }
            ["spanned", pages] => spanned = number(pages)?,
            ["start_pfn:", pfn] if spanned > 0 => {
                let start_pfn = number(pfn)?;
                spans.push(ZoneSpan { node: zone.node, start_pfn, end_pfn: start_pfn + spanned });
            }
            _ => {}
        }
    }
    spans.sort_unstable_by_key(|span| span.start_pfn);
    Ok((spans, rooms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(zoneinfo: &str, node0: &str) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let node = dir.path().join(DIR);
        for (id, cpulist, distance, meminfo) in [
            (0, "0-1\n", "10 21 31\n", node0),
            (1, "2-3\n", "21 10 21\n", "Node 1 MemTotal: 2048 kB\nNode 1 MemFree: 512 kB\n"),
            (2, "4\n", "31 21 10\n", "Node 2 MemTotal: 0 kB\nNode 2 MemFree: 0 kB\n"),
        ] {
            let node = node.join(format!("node{id}"));
            fs::create_dir_all(&node).unwrap();
            fs::write(node.join("cpulist"), cpulist).unwrap();
            fs::write(node.join("distance"), distance).unwrap();
            fs::write(node.join("meminfo"), meminfo).unwrap();
        }
        fs::create_dir_all(dir.path().join("proc")).unwrap();
        fs::write(dir.path().join(ZONEINFO), zoneinfo).unwrap();
        let root = Root::at(dir.path());
        (dir, root)
    }

    const MEMINFO: &str = "Node 0 MemTotal: 4096 kB\nNode 0 MemFree: 1024 kB\n";
    const ZONES: &str = "\
Node 0, zone      DMA
  pages free     2816
        high     104
        spanned  4095
        protection: (0, 200, 2000, 2000)
  start_pfn:           1
Node 0, zone   Device
  pages free     0
        high     0
        spanned  0
        protection: (0, 0, 0, 0)
  start_pfn:           0
Node 0, zone    DMA32
  pages free     300
        high     200
        spanned  1000
        protection: (0, 0, 0, 0)
  start_pfn:           4096
Node 1, zone   Normal
  pages free     40
        high     50
        spanned  1000
        protection: (0, 0, 0, 0)
  start_pfn:           5096
";

    #[test]
    fn a_machine_of_three_nodes() {
        let (_dir, root) = machine(ZONES, MEMINFO);
        let machine = Topology::read(&root).unwrap();
        assert_eq!(machine.nodes.len(), 3);
        assert_eq!((machine.nodes[1].total_bytes, machine.nodes[1].free_bytes), (2_097_152, 524_288));
        assert_eq!((machine.node_of_cpu(3), machine.node_of_cpu(5)), (Some(1), None));
        assert_eq!((machine.distance(0, 2), machine.distance(0, 9)), (31, u32::MAX));
        assert_eq!(
            (machine.memory_node(0), machine.memory_node(2)),
            (Some(0), Some(1)),
            "the nearest with memory"
        );
    }

    #[test]
    fn a_node_has_the_room_that_its_zones_keep_for_nobody_else() {
        let rooms = |zoneinfo: &str| {
            let (_dir, root) = machine(zoneinfo, MEMINFO);
            let machine = Topology::read(&root).unwrap();
            machine.nodes.iter().map(|node| node.room_pages).collect::<Vec<_>>()
        };
        assert_eq!(rooms(ZONES), [712 + 100, 0, 0]);
        assert_eq!(rooms(&ZONES.replace("free     300", "free     150")), [712 - 50, 0, 0]);
        let protected = ZONES.replace("2000, 2000", "2816, 2816");
        assert_eq!(rooms(&protected), [100, 0, 0], "DMA is kept for devices");
    }

    #[test]
    fn page_frames_belong_to_one_node_or_none() {
        let (_dir, root) = machine(ZONES, MEMINFO);
        let machine = Topology::read(&root).unwrap();
        let node = |pfn| machine.node_of_pfn(pfn);
        assert_eq!((node(0), node(1), node(4096), node(5095)), (None, Some(0), Some(0), Some(0)));
        assert_eq!((node(5096), node(6095), node(6096)), (Some(1), Some(1), None));

        let interleaved = ZONES.replace("start_pfn:           5096", "start_pfn:           5000");
        let (_dir, root) = self::machine(&interleaved, MEMINFO);
        let machine = Topology::read(&root).unwrap();
        assert_eq!((machine.node_of_pfn(5050), machine.node_of_pfn(5099)), (None, Some(1)));
    }

    #[test]
    fn bad_content_names_the_file() {
        let (_dir, root) = machine(ZONES, "Node 0 MemTotal: lots kB\n");
        let message = Topology::read(&root).unwrap_err().to_string();
        assert!(message.contains("node0/meminfo: expected MemTotal"), "{message}");
        let (_dir, root) = machine("Node x, zone DMA\n", MEMINFO);
        assert!(Topology::read(&root).unwrap_err().to_string().contains("zoneinfo: expected Node N"));
    }

    #[test]
    fn a_kernel_without_numa_has_no_nodes() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Topology::read(&Root::at(dir.path())).unwrap(), Topology::default());
    }
}
