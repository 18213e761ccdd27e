// SPDX-License-Identifier: GPL-2.0-only
//! Tasks: `/proc/PID/stat`, and the node a process runs on.

use crate::{CpuList, Topology};
use nuksm_sysroot::{Result, Root};
use std::collections::BTreeMap;

/// The unit of times in `/proc`: `USER_HZ`, on every architecture but alpha.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// The fields of `/proc/PID/stat` (or of one thread's) that placement needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStat {
    /// The task's short name.
    pub comm: String,
    /// Nice value, -20 (most favoured) to 19.
    pub nice: i32,
    /// CPU time used so far, in clock ticks.
    pub cpu_ticks: u64,
    /// Start in clock ticks after boot: with the pid it identifies the process.
    pub start_ticks: u64,
    /// The CPU it ran on last.
    pub cpu: u32,
    /// Is it the kernel's own? That it has no command line says nothing: any
    /// process may do without.
    pub is_kernel_thread: bool,
    /// Has it memory? Kernel threads have none, nor have tasks that ended.
    pub has_memory: bool,
}

/// `PF_KTHREAD` of the kernel's linux/sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;

impl TaskStat {
    /// Reads the group leader of process `pid`; `None` when it has ended.
    pub fn read(root: &Root, pid: u32) -> Result<Option<Self>> {
        Self::read_file(root, &format!("proc/{pid}/stat"))
    }

    /// The task by which the memory of process `pid`, of which this is the leader,
    /// is to be seen in `/proc`: the leader, or another thread when the leader
    /// ended before its process. `None` when there is no memory.
    pub fn memory_task(&self, root: &Root, pid: u32) -> Result<Option<u32>> {
        if self.has_memory {
            return Ok(Some(pid));
        }
        if self.is_kernel_thread {
            return Ok(None);
        }
        for thread in root.numbered(format!("proc/{pid}/task"), "")? {
            let stat = Self::read_file(root, &format!("proc/{pid}/task/{thread}/stat"))?;
            if stat.is_some_and(|stat| stat.has_memory) {
                return Ok(Some(thread));
            }
        }
        Ok(None)
    }

    /// CPU time used so far, in seconds.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_ticks as f64 / TICKS_PER_SECOND
    }

    fn read_file(root: &Root, path: &str) -> Result<Option<Self>> {
        let Some(text) = root.text(path)? else {
            return Ok(None);
        };
        match Self::parse(&text) {
            Some(stat) => Ok(Some(stat)),
            None => Err(root.malformed(path, "the fields of a task's stat", &text)),
        }
    }

    /// The name stands in parentheses and may contain any character, so the
    /// fields are counted from the last closing one (proc(5): the name is
    /// field 2).
    fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(')')?;
        let comm = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let field = |at: usize| fields.get(at - 3);
        let number = |at: usize| field(at)?.parse::<u64>().ok();
        Some(Self {
            comm,
            nice: field(19)?.parse().ok()?,
            cpu_ticks: number(14)? + number(15)?,
            start_ticks: number(22)?,
            cpu: field(39)?.parse().ok()?,
            is_kernel_thread: number(9)? & KERNEL_THREAD != 0,
            has_memory: number(23)? > 0,
        })
    }
}

/// The node on which process `pid` spends its CPU time.
///
/// A thread that may run on the CPUs of one node only counts for that node,
/// any other for the node it ran on last; the threads are weighted by the CPU
/// time they used. `None` when the process has ended or no CPU is known.
pub fn home_node(root: &Root, pid: u32, machine: &Topology) -> Result<Option<u32>> {
    let mut ticks_per_node = BTreeMap::<u32, u64>::new();
    for thread in root.numbered(format!("proc/{pid}/task"), "")? {
        let dir = format!("proc/{pid}/task/{thread}");
        let Some(stat) = TaskStat::read_file(root, &format!("{dir}/stat"))? else {
            continue;
        };
        let bound = bound_node(root, &format!("{dir}/status"), machine)?;
        if let Some(node) = bound.or_else(|| machine.node_of_cpu(stat.cpu)) {
            // One tick each, so that threads that never ran count as well.
            *ticks_per_node.entry(node).or_default() += stat.cpu_ticks + 1;
        }
    }
    let busiest = ticks_per_node.into_iter().max_by_key(|&(node, ticks)| (ticks, std::cmp::Reverse(node)));
    Ok(busiest.map(|(node, _)| node))
}

/// The only node whose CPUs the task may use, if there is just one.
fn bound_node(root: &Root, path: &str, machine: &Topology) -> Result<Option<u32>> {
    let status = root.text(path)?.unwrap_or_default();
    let Some(list) = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")) else {
        return Ok(None);
    };
    let allowed: CpuList = list.parse().map_err(|_| root.malformed(path, "a list of CPUs", list))?;
    let mut nodes = machine.nodes.iter().filter(|node| node.cpus.intersects(&allowed));
    Ok(match (nodes.next(), nodes.next()) {
        (Some(node), None) => Some(node.id),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine() -> Topology {
        let node = |id, cpus: &str| crate::Node {
            id,
            cpus: cpus.parse().unwrap(),
            total_bytes: 1,
            free_bytes: 1,
            room_pages: 0,
            distances: Vec::new(),
        };
        Topology { nodes: vec![node(0, "0-1"), node(1, "2-3")], zones: Vec::new() }
    }

    /// A line of /proc/PID/stat with the given nice value, user time and CPU.
    fn stat(comm: &str, nice: i32, ticks: u64, cpu: u32) -> String {
        let zeros = |count| vec!["0"; count].join(" ");
        format!(
            "7 ({comm}) S {} {ticks} {} {nice} {} 99 4096 {} {cpu} {}",
            zeros(10),
            zeros(4),
            zeros(2),
            zeros(15),
            zeros(13)
        )
    }

    fn process(threads: &[(&str, u32, u64)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (number, (allowed, cpu, ticks)) in threads.iter().enumerate() {
            let thread = dir.path().join(format!("proc/7/task/{number}"));
            fs::create_dir_all(&thread).unwrap();
            fs::write(thread.join("stat"), stat("guest", 0, *ticks, *cpu)).unwrap();
            fs::write(thread.join("status"), format!("Name:\tguest\nCpus_allowed_list:\t{allowed}\n"))
                .unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn names_may_hold_anything() {
        let parsed = TaskStat::parse(&stat("a) R (b", -20, 5, 3)).unwrap();
        let expected = TaskStat {
            comm: "a) R (b".into(),
            nice: -20,
            cpu_ticks: 5,
            start_ticks: 99,
            cpu: 3,
            is_kernel_thread: false,
            has_memory: true,
        };
        assert_eq!(parsed, expected);
        assert_eq!(TaskStat::parse("7 (short) S 1 2"), None);
    }

    #[test]
    fn affinity_decides_before_the_last_cpu() {
        let (_dir, root) = process(&[("2-3", 0, 100)]);
        assert_eq!(home_node(&root, 7, &machine()).unwrap(), Some(1));
    }

    #[test]
    fn unbound_threads_are_weighted_by_their_cpu_time() {
        let (_dir, root) = process(&[("0-3", 0, 10), ("0-3", 0, 10), ("0-3", 2, 90)]);
        assert_eq!(home_node(&root, 7, &machine()).unwrap(), Some(1));
    }

    #[test]
    fn a_process_that_ended_has_no_home() {
        let (_dir, root) = process(&[]);
        assert_eq!(home_node(&root, 7, &machine()).unwrap(), None);
        assert_eq!(TaskStat::read(&root, 7).unwrap(), None);
    }

    #[test]
    fn memory_is_seen_by_a_living_thread_and_kernel_threads_have_none() {
        let (dir, root) = process(&[("0", 0, 1), ("0", 0, 1)]);
        let ended = stat("guest", 0, 1, 0).replace(" 99 4096 ", " 99 0 ");
        let task = |leader: &str| TaskStat::parse(leader).unwrap().memory_task(&root, 7).unwrap();
        assert_eq!(task(&stat("guest", 0, 1, 0)), Some(7));
        fs::write(dir.path().join("proc/7/task/0/stat"), &ended).unwrap();
        assert_eq!(task(&ended), Some(1));
        let flags = "7 (guest) S 0 0 0 0 0 ";
        let of_the_kernel = ended.replace(&format!("{flags}0 "), &format!("{flags}{KERNEL_THREAD} "));
        assert_ne!(of_the_kernel, ended);
        assert_eq!(task(&of_the_kernel), None);
        fs::write(dir.path().join("proc/7/task/1/stat"), &ended).unwrap();
        assert_eq!(task(&ended), None);
    }

    #[test]
    fn a_broken_stat_names_the_file() {
        let (dir, root) = process(&[("0", 0, 1)]);
        fs::write(dir.path().join("proc/7/task/0/stat"), "7 (x) S\n").unwrap();
        let message = home_node(&root, 7, &machine()).unwrap_err().to_string();
        assert!(message.contains("proc/7/task/0/stat: expected"), "{message}");
    }
}
