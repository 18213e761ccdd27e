// SPDX-License-Identifier: GPL-2.0-only
//! Tenants: processes with mergeable memory, by the names operators know.

use anyhow::Result;
use log::debug;
use nuksm_ksmfs::ProcessKsm;
use nuksm_numafs::{TaskStat, Topology, home_node};
use nuksm_sysroot::{Root, Wanted, patiently};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::sync::Once;

/// A process that KSM tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Process number; of several that share one memory, the lowest.
    pub pid: u32,
    /// The others, and the starts of each.
    pub twins: Vec<(u32, u64)>,
    /// The task by which its memory is to be seen: [`TaskStat::memory_task`].
    pub task: u32,
    /// Virtual machine, container or service; else the program's name.
    pub name: String,
    /// Its cgroup (version 2), a path from the root; empty when it has none.
    pub cgroup: String,
    /// The node with memory nearest to where it runs.
    pub node: Option<u32>,
    /// Nice value of its group leader.
    pub nice: i32,
    /// With the pid, this identifies the process.
    pub start_ticks: u64,
    /// What KSM counts for it.
    pub ksm: ProcessKsm,
}

/// What was found of them.
#[derive(Debug, Default)]
pub struct Found {
    /// Ascending by pid.
    pub tenants: Vec<Tenant>,
    /// Processes that could not be looked at, and why.
    pub unread: Vec<(u32, String)>,
    /// Why nobody knows which of them share one memory, if so.
    pub untold: Option<String>,
}

/// All tenants, unless `stop` says so, as [`nuksm_pagemap::Scan::run`] does.
///
/// A process counts from the first time ksmd scanned it; without `ksm_stat`
/// (before Linux 6.1) every process is looked at. One that ends meanwhile is passed
/// over. One that cannot be read is so, too, and named: none may keep the rest from
/// being seen.
pub fn find(root: &Root, machine: &Topology, stop: &dyn Fn() -> bool) -> Result<Found> {
    let mut found = BTreeMap::new();
    let mut unread = Vec::new();
    let pids = root.numbered("proc", "")?;
    let (there, nodes) = (root.clone(), machine.clone());
    patiently(
        pids.iter().map(|&pid| (pid, pid)),
        move |pid, _| tenant(&there, &nodes, pid),
        stop,
        |number, tenant| {
            let pid = pids[number];
            match tenant.unwrap_or_else(|| Err(root.unanswered(pid))) {
                Ok(tenant) => found.extend(tenant.map(|tenant| (pid, tenant))),
                Err(error) => unread.push((pid, with_cause(&error))),
            }
        },
    )
    .map_err(nuksm_pagemap::Error::from)?;
    let found: Vec<Tenant> = found.into_values().collect();
    let tasks: Vec<u32> = found.iter().map(|tenant| tenant.task).collect();
    let (firsts, untold) = first_of_memory(root, &tasks, stop)?;
    Ok(Found { tenants: once_each(found, &firsts), unread, untold })
}

impl Tenant {
    /// When process `pid` started, if it is this one; in ticks.
    pub fn start_of(&self, pid: u32) -> Option<u64> {
        let own = (self.pid, self.start_ticks);
        std::iter::once(&own).chain(&self.twins).find(|(process, _)| *process == pid).map(|(_, start)| *start)
    }
}

/// One tenant of each memory; `firsts` has for each the first task with its memory.
fn once_each(tenants: Vec<Tenant>, firsts: &[u32]) -> Vec<Tenant> {
    let mut kept = Vec::<Tenant>::with_capacity(tenants.len());
    let mut places = HashMap::new();
    for (tenant, &first) in tenants.into_iter().zip(firsts) {
        if tenant.task == first {
            places.insert(first, kept.len());
            kept.push(tenant);
        } else if let Some(&place) = places.get(&first) {
            debug!("process {} has the memory of process {}", tenant.pid, kept[place].pid);
            kept[place].twins.push((tenant.pid, tenant.start_ticks));
        }
    }
    kept
}

/// For each of `tasks` the first of them that has the same memory. Where that cannot be
/// known it is each itself, and why is told.
pub fn first_of_memory(
    root: &Root,
    tasks: &[u32],
    stop: &dyn Fn() -> bool,
) -> Result<(Vec<u32>, Option<String>)> {
    static UNKNOWN: Once = Once::new();
    let (mut firsts, mut untold) = (tasks.to_vec(), None);
    if !root.is_real() {
        return Ok((firsts, untold));
    }
    // No process has this number, so that who holds this up hides nobody.
    let asked = [(0, firsts.clone())];
    let compare = |tasks: Vec<u32>, _: &Wanted| nuksm_pagemap::first_of_memory(&tasks);
    patiently(asked, compare, stop, |_, told| match told {
        Some(Ok(told)) => firsts = told,
        // That stays so: it is told once.
        Some(Err(error)) => UNKNOWN.call_once(|| {
            let why = "this kernel does not tell which processes share one memory, so each of them counts";
            untold = Some(format!("{why} (CONFIG_KCMP: {error})"));
        }),
        None => {
            let why = "which processes share one memory is not known, so each of them counts";
            untold = Some(format!("{why}: one does not answer"));
        }
    })
    .map_err(nuksm_pagemap::Error::from)?;
    Ok((firsts, untold))
}

/// An error in one line.
pub fn with_cause(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// Says of processes that they could not be read.
pub fn passed_over(unread: &[(u32, String)]) -> Option<String> {
    let (pid, why) = unread.first()?;
    let others =
        if unread.len() > 1 { format!(", and {} others are", unread.len() - 1) } else { " is".into() };
    Some(format!("process {pid}{others} passed over: {why}"))
}

/// Process `pid`, if KSM tracks it.
fn tenant(root: &Root, machine: &Topology, pid: u32) -> nuksm_sysroot::Result<Option<Tenant>> {
    let is_tracked = |ksm: &ProcessKsm| ksm.rmap_items.or(ksm.merging_pages) != Some(0);
    let mut ksm = ProcessKsm::read(root, pid)?;
    if !is_tracked(&ksm) {
        return Ok(None);
    }
    let Some(stat) = TaskStat::read(root, pid)? else {
        return Ok(None);
    };
    let Some(task) = stat.memory_task(root, pid)? else {
        return Ok(None);
    };
    if task != pid {
        // Of a leader that ended the kernel tells nothing.
        ksm = ProcessKsm::read(root, task)?;
        if !is_tracked(&ksm) {
            return Ok(None);
        }
    }
    let node = home_node(root, pid, machine)?.and_then(|node| machine.memory_node(node));
    let cgroup = cgroup(root, task)?;
    let name = name_in(root, task, &cgroup, &stat)?;
    Ok(Some(Tenant {
        pid,
        twins: Vec::new(),
        task,
        name,
        cgroup,
        node,
        nice: stat.nice,
        start_ticks: stat.start_ticks,
        ksm,
    }))
}

/// The name of the process that `task` belongs to: of the virtual machine, the
/// container or the service that it is, or else of the program.
pub fn name(root: &Root, task: u32, stat: &TaskStat) -> nuksm_sysroot::Result<String> {
    name_in(root, task, &cgroup(root, task)?, stat)
}

/// How much of a command line is looked at. Any process may say that its own are
/// all of its memory, and QEMU is given its name among the first words.
const COMMAND_LINE: u64 = 16 << 10;

fn name_in(root: &Root, task: u32, cgroup: &str, stat: &TaskStat) -> nuksm_sysroot::Result<String> {
    let guest = if is_qemu(root, task) {
        let cmdline = root.text_up_to(format!("proc/{task}/cmdline"), COMMAND_LINE)?;
        // The last word has no end, or was cut.
        cmdline.and_then(|line| guest_name(line.rsplit_once('\0')?.0))
    } else {
        None
    };
    let name = guest.or_else(|| unit_name(cgroup)).unwrap_or_else(|| stat.comm.clone());
    // No name looks like a gap in a table, and no metric has it.
    let name = if name.trim().is_empty() { format!("task {task}") } else { name };
    // Whoever runs a program may call it anything.
    Ok(cut(&nuksm_sysroot::printable(&name)))
}

/// Longer names of virtual machines or units are no help to anybody, and would make
/// every line of a table as wide.
const LONGEST_NAME: usize = 128;

fn cut(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Does this process run QEMU as it was installed? What it calls itself says
/// nothing: any program may.
fn is_qemu(root: &Root, task: u32) -> bool {
    let exe = root.path(format!("proc/{task}/exe"));
    let name = std::fs::read_link(&exe).ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    // A wrapper may hide the program behind a dot.
    let is_named = name.is_some_and(|name| {
        let name = name.trim_start_matches('.');
        name.starts_with("qemu") || name == "kvm" || name == "kvm (deleted)"
    });
    // The link leads to the program itself, even where its file is gone.
    is_named && std::fs::metadata(&exe).is_ok_and(|file| file.uid() == 0)
}

/// The path of the cgroup (version 2) of a task.
pub fn cgroup(root: &Root, task: u32) -> nuksm_sysroot::Result<String> {
    let text = root.text(format!("proc/{task}/cgroup"))?.unwrap_or_default();
    Ok(text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned())
}

/// Is the process that was tenant `tenant` still there?
pub fn is_alive(root: &Root, tenant: &Tenant) -> bool {
    matches!(TaskStat::read(root, tenant.pid), Ok(Some(stat)) if stat.start_ticks == tenant.start_ticks)
}

/// The name in QEMU's `-name NAME` or `-name guest=NAME,…`.
fn guest_name(cmdline: &str) -> Option<String> {
    let mut words = cmdline.split('\0');
    let program = words.next()?.rsplit('/').next()?;
    if !program.starts_with("qemu") && program != "kvm" {
        return None;
    }
    let value = words.skip_while(|word| *word != "-name" && *word != "--name").nth(1)?;
    let name =
        value.split(',').find_map(|part| part.strip_prefix("guest=")).or_else(|| value.split(',').next())?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Scopes in which container engines put containers, before the id.
const CONTAINER_SCOPES: [&str; 4] = ["docker-", "libpod-", "crio-", "cri-containerd-"];

/// The container (`docker:0123456789ab`) or service (`nginx.service`) in a
/// path of a cgroup; the innermost counts.
fn unit_name(cgroup: &str) -> Option<String> {
    cgroup.rsplit('/').find_map(|part| {
        let container = CONTAINER_SCOPES.iter().find_map(|prefix| {
            let id = part.strip_prefix(prefix)?.strip_suffix(".scope")?;
            Some(format!("{}:{}", prefix.trim_end_matches('-'), id.get(..12).unwrap_or(id)))
        });
        container.or_else(|| part.ends_with(".service").then(|| part.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn guests_by_the_name_qemu_was_given() {
        let name = |line: &str| guest_name(&line.replace(' ', "\0"));
        assert_eq!(
            name("/usr/bin/qemu-system-x86_64 -m 1G -name guest=web1,debug-threads=on").as_deref(),
            Some("web1")
        );
        assert_eq!(name("/usr/bin/kvm -id 100 -name db,debug-threads=on").as_deref(), Some("db"));
        assert_eq!(name("qemu-kvm -name plain").as_deref(), Some("plain"));
        assert_eq!(name("qemu-system-x86_64 -m 1G"), None);
        assert_eq!(name("editor -name guest=web1"), None);
    }

    #[test]
    fn a_guest_is_what_qemu_runs_and_not_what_calls_itself_so() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let proc = dir.path().join("proc/7");
        fs::create_dir_all(&proc).unwrap();
        let line = ["qemu-system-x86_64", "-name", "guest=web1", ""].join("\0");
        fs::write(proc.join("cmdline"), line).unwrap();
        let stat = format!("7 (co\u{1b}[2Jmm) S {} 0 {}", ["0"; 15].join(" "), ["0"; 30].join(" "));
        fs::write(proc.join("stat"), stat).unwrap();
        let stat = TaskStat::read(&root, 7).unwrap().unwrap();
        let nameless = TaskStat { comm: " ".into(), ..stat.clone() };
        assert_eq!(name(&root, 7, &nameless).unwrap(), "task 7");
        let called = || name(&root, 7, &stat).unwrap();
        assert_eq!(called(), "co\u{fffd}[2Jmm", "what it is, nobody knows");
        let exe = |path: &std::path::Path| {
            let _ = fs::remove_file(proc.join("exe"));
            std::os::unix::fs::symlink(path, proc.join("exe")).unwrap();
        };
        exe(std::path::Path::new("/bin/sh"));
        assert_eq!(called(), "co\u{fffd}[2Jmm");
        let own = dir.path().join("qemu-system-x86_64");
        fs::write(&own, "").unwrap();
        exe(&own);
        let is_root = fs::metadata(&own).unwrap().uid() == 0;
        assert_eq!(called() == "web1", is_root, "installed by root, or by nobody");
        if is_root {
            let head = "x\0".repeat(usize::try_from(COMMAND_LINE / 2 - 9).unwrap());
            fs::write(proc.join("cmdline"), format!("kvm\0{head}-name\0guest=web1\0")).unwrap();
            assert_eq!(called(), "co\u{fffd}[2Jmm", "half a name is none");
            std::os::unix::fs::chown(&own, Some(1), None).unwrap();
            assert_eq!(called(), "co\u{fffd}[2Jmm");
        }
    }

    #[test]
    fn containers_and_services_by_their_cgroup() {
        let id = "0123456789abcdef0123";
        let docker = format!("/system.slice/docker-{id}.scope");
        assert_eq!(unit_name(&docker).as_deref(), Some("docker:0123456789ab"));
        let pod = format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope");
        assert_eq!(unit_name(&pod).as_deref(), Some("cri-containerd:0123456789ab"));
        assert_eq!(unit_name("/system.slice/nginx.service").as_deref(), Some("nginx.service"));
        let nested = "/system.slice/nginx.service/worker";
        assert_eq!(unit_name(nested).as_deref(), Some("nginx.service"));
        assert_eq!(unit_name("/user.slice/session-1.scope"), None);
    }

    /// A line of /proc/PID/stat, of a task that has so much memory.
    fn stat(pid: u32, memory: u32) -> String {
        format!("{pid} (name{pid}) S {} 7 0 0 0 {memory} {}", ["0"; 15].join(" "), ["0"; 26].join(" "))
    }

    /// Processes with so much memory and this `ksm_stat`.
    fn machine(processes: &[(u32, u32, Option<&str>)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, memory, ksm) in processes {
            let proc = dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&proc).unwrap();
            fs::write(proc.join("stat"), stat(*pid, *memory)).unwrap();
            fs::write(proc.join("cgroup"), "1:cpu:/x.service\n0::/a/b\n").unwrap();
            ksm.inspect(|text| fs::write(proc.join("ksm_stat"), text).unwrap());
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn found(root: &Root) -> Found {
        find(root, &Topology::default(), &|| false).unwrap()
    }

    #[test]
    fn only_processes_that_ksm_tracks_whether_or_not_they_have_a_command_line() {
        let (_dir, root) = machine(&[
            (1, 4096, Some("ksm_rmap_items 0\nksm_merging_pages 0\n")),
            (2, 4096, Some("ksm_rmap_items 5\nksm_merging_pages 0\n")),
            (3, 0, None),
            (4, 4096, None),
        ]);
        let Found { tenants, unread, .. } = found(&root);
        let names: Vec<_> = tenants.iter().map(|tenant| (tenant.name.as_str(), tenant.nice)).collect();
        assert_eq!((names, unread), (vec![("name2", 7), ("name4", 7)], vec![]));
        assert_eq!(tenants[0].cgroup, "/a/b", "not that of a hierarchy of version 1");
        assert!(is_alive(&root, &tenants[0]));
        assert!(!is_alive(&root, &Tenant { start_ticks: 1, ..tenants[0].clone() }), "the pid was used again");
    }

    #[test]
    fn a_process_whose_leader_ended_is_seen_by_another_thread() {
        let (dir, root) =
            machine(&[(7, 0, Some("")), (9, 4096, Some("ksm_rmap_items 5\nksm_merging_pages 4\n"))]);
        // As the kernel has it: a thread has a directory in /proc that is not listed.
        for thread in [7, 9] {
            let task = dir.path().join(format!("proc/7/task/{thread}"));
            fs::create_dir_all(&task).unwrap();
            fs::copy(dir.path().join(format!("proc/{thread}/stat")), task.join("stat")).unwrap();
        }
        let tenants = found(&root).tenants;
        let seen = |tenant: &Tenant| (tenant.pid, tenant.task, tenant.ksm.merging_pages);
        assert_eq!(seen(&tenants[0]), (7, 9, Some(4)));
        assert_eq!(tenants[0].name, "name7");
    }

    #[test]
    fn one_that_cannot_be_read_is_named_and_keeps_nobody_from_being_seen() {
        let (dir, root) = machine(&[(2, 4096, None), (3, 4096, None), (4, 4096, None)]);
        for pid in [2, 4] {
            let stat = dir.path().join(format!("proc/{pid}/stat"));
            fs::remove_file(&stat).unwrap();
            fs::create_dir(&stat).unwrap();
        }
        let Found { tenants, unread, .. } = found(&root);
        assert_eq!(tenants.iter().map(|tenant| tenant.pid).collect::<Vec<_>>(), [3]);
        let note = passed_over(&unread).unwrap();
        assert!(note.starts_with("process 2, and 1 others are passed over: cannot read "), "{note}");
        assert!(note.ends_with("/proc/2/stat: Is a directory (os error 21)"), "{note}");
    }

    #[test]
    fn processes_of_one_memory_are_one_tenant() {
        let (_dir, root) = machine(&[(2, 4096, None), (3, 4096, None), (4, 4096, None), (5, 4096, None)]);
        let tenants = once_each(found(&root).tenants, &[2, 3, 2, 2]);
        let pids: Vec<_> = tenants.iter().map(|tenant| (tenant.pid, tenant.twins.as_slice())).collect();
        assert_eq!(pids, [(2, [(4, 0), (5, 0)].as_slice()), (3, &[])]);
        assert_eq!([2, 5, 3].map(|pid| tenants[0].start_of(pid)), [Some(0), Some(0), None]);
    }

    #[test]
    fn one_that_this_user_may_not_read_is_named_too() {
        use std::os::unix::fs::PermissionsExt;
        let (dir, root) = machine(&[(2, 4096, None), (3, 4096, None)]);
        let mode = |name: &str, mode| {
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        mode("", 0o755);
        mode("proc/2/stat", 0);
        let look = || {
            // SAFETY: takes a number, and is for this thread alone.
            unsafe { libc::syscall(libc::SYS_setfsuid, 65_534) };
            found(&root)
        };
        let Found { tenants, unread, .. } = std::thread::scope(|scope| scope.spawn(look).join().unwrap());
        assert_eq!(tenants.iter().map(|tenant| tenant.pid).collect::<Vec<_>>(), [3]);
        let note = passed_over(&unread).unwrap();
        assert!(note.starts_with("process 2 is ") && note.contains("Permission denied"), "{note}");
    }

    #[test]
    fn a_search_that_is_stopped_says_so() {
        let (_dir, root) = machine(&[(2, 4096, None)]);
        let error = find(&root, &Topology::default(), &|| true).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(nuksm_pagemap::Error::Stopped)));
    }
}
