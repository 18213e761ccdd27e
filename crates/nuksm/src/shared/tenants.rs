// SPDX-License-Identifier: GPL-2.0-only
//! Tenants: processes with mergeable memory, by the names operators know.

use anyhow::Result;
use nuksm_ksmfs::ProcessKsm;
use nuksm_numafs::{TaskStat, Topology, home_node};
use nuksm_sysroot::Root;
use std::os::unix::fs::MetadataExt;

/// A process that KSM tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Process number.
    pub pid: u32,
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

/// All tenants, ascending by pid.
///
/// A process counts from the first time ksmd scanned it; without `ksm_stat`
/// (before Linux 6.1) every process is looked at. Processes that this user may
/// not look into, or that end meanwhile, are passed over.
pub fn find(root: &Root, machine: &Topology) -> Result<Vec<Tenant>> {
    let mut tenants = Vec::new();
    for pid in root.numbered("proc", "")? {
        let ksm = match ProcessKsm::read(root, pid) {
            Ok(ksm) => ksm,
            Err(error) if error.is_permission() => continue,
            Err(error) => return Err(error.into()),
        };
        if ksm.rmap_items.or(ksm.merging_pages) == Some(0) {
            continue;
        }
        let Some(stat) = TaskStat::read(root, pid)? else {
            continue;
        };
        let cmdline = root.text(format!("proc/{pid}/cmdline"))?.unwrap_or_default();
        if cmdline.is_empty() {
            // Kernel threads have no memory of their own.
            continue;
        }
        let node = home_node(root, pid, machine)?.and_then(|node| machine.memory_node(node));
        let cgroup = cgroup(root, pid)?;
        let name = name_by(root, pid, &cgroup, &cmdline, &stat);
        tenants.push(Tenant { pid, name, cgroup, node, nice: stat.nice, start_ticks: stat.start_ticks, ksm });
    }
    Ok(tenants)
}

/// The name of process `pid`: of the virtual machine, the container or the
/// service that it is, or else of the program.
pub fn name(root: &Root, pid: u32, stat: &TaskStat) -> nuksm_sysroot::Result<String> {
    let cmdline = root.text(format!("proc/{pid}/cmdline"))?.unwrap_or_default();
    Ok(name_by(root, pid, &cgroup(root, pid)?, &cmdline, stat))
}

fn name_by(root: &Root, pid: u32, cgroup: &str, cmdline: &str, stat: &TaskStat) -> String {
    let guest = guest_name(cmdline).filter(|_| is_qemu(root, pid));
    let name = guest.or_else(|| unit_name(cgroup)).unwrap_or_else(|| stat.comm.clone());
    // Whoever runs a program may call it anything.
    nuksm_sysroot::printable(&name)
}

/// Does this process run QEMU as it was installed? What it calls itself says
/// nothing: any program may.
fn is_qemu(root: &Root, pid: u32) -> bool {
    let exe = root.path(format!("proc/{pid}/exe"));
    let name = std::fs::read_link(&exe).ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    // A wrapper may hide the program behind a dot.
    let is_named = name.is_some_and(|name| {
        let name = name.trim_start_matches('.');
        name.starts_with("qemu") || name == "kvm" || name == "kvm (deleted)"
    });
    // The link leads to the program itself, even where its file is gone.
    is_named && std::fs::metadata(&exe).is_ok_and(|file| file.uid() == 0)
}

/// The path of the cgroup (version 2) of a process.
fn cgroup(root: &Root, pid: u32) -> nuksm_sysroot::Result<String> {
    let text = root.text(format!("proc/{pid}/cgroup"))?.unwrap_or_default();
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
        let line = ["qemu-system-x86_64", "-name", "guest=web1"].join("\0");
        fs::write(proc.join("cmdline"), line).unwrap();
        let stat = format!("7 (co\u{1b}[2Jmm) S {} 0 {}", ["0"; 15].join(" "), ["0"; 30].join(" "));
        fs::write(proc.join("stat"), stat).unwrap();
        let stat = TaskStat::read(&root, 7).unwrap().unwrap();
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

    #[test]
    fn only_processes_that_ksm_tracks() {
        let dir = tempfile::tempdir().unwrap();
        let process = |pid: u32, ksm: Option<&str>, cmdline: &str| {
            let proc = dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&proc).unwrap();
            let stat =
                format!("{pid} (name{pid}) S {} 7 {}", vec!["0"; 15].join(" "), vec!["0"; 30].join(" "));
            fs::write(proc.join("stat"), stat).unwrap();
            fs::write(proc.join("cmdline"), cmdline).unwrap();
            fs::write(proc.join("cgroup"), "1:cpu:/x.service\n0::/a/b\n").unwrap();
            ksm.inspect(|text| fs::write(proc.join("ksm_stat"), text).unwrap());
        };
        process(1, Some("ksm_rmap_items 0\nksm_merging_pages 0\n"), "init");
        process(2, Some("ksm_rmap_items 5\nksm_merging_pages 0\n"), "tracked");
        process(3, None, "");
        process(4, None, "old kernel");
        let root = Root::at(dir.path());
        let found = find(&root, &Topology::default()).unwrap();
        let names: Vec<_> = found.iter().map(|tenant| (tenant.name.as_str(), tenant.nice)).collect();
        assert_eq!(names, [("name2", 7), ("name4", 7)]);
        assert_eq!(found[0].cgroup, "/a/b", "not that of a hierarchy of version 1");
        assert!(is_alive(&root, &found[0]));
        assert!(!is_alive(&root, &Tenant { start_ticks: 1, ..found[0].clone() }), "the pid was used again");
    }
}
