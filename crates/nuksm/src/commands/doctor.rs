// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm doctor`: why nothing merges or moves here.

use crate::shared::domains;
use crate::shared::memcg;
use crate::shared::output;
use crate::shared::privilege;
use crate::shared::tenants::{self, Found, Tenant};
use crate::shared::yama;
use anyhow::{Context, Result};
use clap::Args;
use nuksm_ksmfs::{Engine, Ksm};
use nuksm_numafs::Topology;
use nuksm_pagemap::KpageFlags;
use nuksm_sysroot::Root;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Find out why nothing merges or moves here, and what to do about it.
///
/// Exit status 0 only when nothing stands in the way of merging and
/// placing.
#[derive(Debug, Args)]
#[command(after_help = "Example: nuksm doctor && nuksm place --once")]
pub struct DoctorArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// As it should be.
    Ok,
    /// Works, but one should know.
    Note,
    /// Nothing merges or moves because of this.
    Problem,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    severity: Severity,
    what: String,
    remedy: Option<String>,
}

/// As --json prints them.
#[derive(Serialize)]
struct Findings<'a> {
    findings: &'a [Finding],
}

impl Findings<'_> {
    fn text(&self) -> String {
        let text = |finding: &Finding| {
            let mark = match finding.severity {
                Severity::Ok => "ok     ",
                Severity::Note => "note   ",
                Severity::Problem => "PROBLEM",
            };
            let remedy = finding.remedy.as_ref().map(|remedy| format!("         -> {remedy}\n"));
            format!("{mark}  {}\n{}", finding.what, remedy.unwrap_or_default())
        };
        self.findings.iter().map(text).collect()
    }
}

fn ok(what: impl Into<String>) -> Finding {
    Finding { severity: Severity::Ok, what: what.into(), remedy: None }
}

fn note(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { severity: Severity::Note, what: what.into(), remedy: Some(remedy.into()) }
}

fn problem(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { severity: Severity::Problem, what: what.into(), remedy: Some(remedy.into()) }
}

/// Prints the findings; success only without a problem among them.
pub fn run(root: &Root, args: &DoctorArgs) -> Result<ExitCode> {
    let findings = examine(root)?;
    let report = Findings { findings: &findings };
    // Whether all is well does not depend on who reads of it.
    output::unless_closed(output::print_report(args.json, &report, Findings::text))?;
    let well = findings.iter().all(|finding| finding.severity != Severity::Problem);
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn examine(root: &Root) -> Result<Vec<Finding>> {
    let Some(ksm) = Ksm::read(root)? else {
        let remedy = "boot a kernel with CONFIG_KSM=y: all large distributions' have it";
        return Ok(vec![problem("this kernel has no KSM", remedy)]);
    };
    let machine = Topology::read(root).context("cannot read the machine's nodes")?;
    let mut findings = vec![ok("this kernel has KSM")];
    findings.push(engine(Engine::read(root)?.as_ref()));
    findings.extend(settings(&ksm));
    findings.extend(privileges(root)?);
    findings.extend(reading(root)?);
    findings.extend(nodes(&machine));
    findings.extend(registered(root, &ksm, &machine)?);
    findings.extend(strangers(root, &machine)?);
    findings.extend(huge_pages(root)?);
    findings.extend(ksm_flag(root)?);
    Ok(findings)
}

/// Does the kernel place pages when it merges them? It need not.
fn engine(engine: Option<&Engine>) -> Finding {
    let remedy = "nothing to do: `nuksm place` corrects placement on any kernel";
    match engine.map(|engine| engine.placement.as_ref()) {
        None => note("no nuKSM engine in this kernel: scan order decides where merged pages are", remedy),
        Some(None) => note("this kernel's nuKSM engine does not place merged pages", remedy),
        Some(Some(placement)) if placement.current == "first" => note(
            "this kernel's nuKSM engine leaves it to scan order where merged pages are",
            "nothing to do if that is wanted; else: nuksm engine set placement=fair",
        ),
        Some(Some(placement)) => {
            ok(format!("this kernel's nuKSM engine places merged pages ({})", placement.current))
        }
    }
}

/// Is ksmd at work, and may it merge over nodes?
fn settings(ksm: &Ksm) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(match ksm.run {
        Some(1) => ok("KSM is merging"),
        Some(2) => problem("KSM has un-merged everything (run is 2)", "echo 1 > /sys/kernel/mm/ksm/run"),
        _ => problem("KSM is stopped (run is 0)", "echo 1 > /sys/kernel/mm/ksm/run"),
    });
    if ksm.merge_across_nodes == Some(0) {
        let remedy = "nothing to do if that is wanted; else, with run at 2 and nothing merged: \
                      echo 1 > /sys/kernel/mm/ksm/merge_across_nodes";
        findings.push(note("pages of different nodes are never merged: nothing to place", remedy));
    }
    findings
}

/// May this user look, and move?
fn privileges(root: &Root) -> Result<Vec<Finding>> {
    let missing = privilege::missing(root, true)?;
    let remedy = privilege::remedy(root)?;
    let finding = |(name, purpose): &(&str, &str)| problem(format!("{name} is missing ({purpose})"), remedy);
    let mut findings: Vec<Finding> = missing.iter().map(finding).collect();
    if findings.is_empty() {
        findings.push(ok("all capabilities for looking and moving"));
    }
    Ok(findings)
}

/// May any process read another's memory? Looking and placing do without.
fn reading(root: &Root) -> Result<Option<Finding>> {
    let what = "yama's ptrace_scope 3 keeps processes from reading each other's memory: `nuksm unmerge` and \
                `nuksm estimate` of running processes refuse";
    Ok(yama::forbids_all(root)?.then(|| note(what, yama::REMEDY)))
}

/// Are there nodes to move between, with room?
fn nodes(machine: &Topology) -> Vec<Finding> {
    let with_memory: Vec<_> = machine.nodes.iter().filter(|node| node.total_bytes > 0).collect();
    if with_memory.len() < 2 {
        let remedy = "nothing to do: merging works, and every page is local; only placement needs more nodes";
        return vec![problem("memory on one node only: nothing to place", remedy)];
    }
    let mut findings = vec![ok(format!("{} nodes with memory", with_memory.len()))];
    for node in with_memory {
        if node.room_pages == 0 {
            let what =
                format!("node {} has no free memory above its high watermark: no page moves there", node.id);
            findings.push(problem(what, "free memory on that node, or move a tenant to another"));
        }
    }
    findings
}

/// Has anybody asked for merging, with what result, within what limits?
fn registered(root: &Root, ksm: &Ksm, machine: &Topology) -> Result<Vec<Finding>> {
    let Found { tenants, unread, untold } = tenants::find(root, machine, &|| false)?;
    let unread = tenants::passed_over(&unread)
        .map(|what| note(what, "see what is wrong with it: its pages are neither shown nor moved"));
    let untold = untold
        .map(|what| note(what, "a kernel with CONFIG_KCMP=y, or an end of the process that does not answer"));
    let unknown = unread.into_iter().chain(untold);
    if tenants.is_empty() {
        let remedy = "start programs by `nuksm exec -- CMD`, services with MemoryKSM=yes, QEMU without \
                      mem-merge=off (libvirt: without <nosharepages/>); ksmd then needs a full scan";
        let what = "no process that this user may see has mergeable memory that ksmd has scanned";
        return Ok([problem(what, remedy)].into_iter().chain(unknown).collect());
    }
    let mut findings = vec![ok(format!("{} processes with mergeable memory", tenants.len()))];
    if ksm.pages_sharing == Some(0) && ksm.ksm_zero_pages.unwrap_or(0) == 0 {
        let what = format!(
            "nothing is merged yet: {} pages are unique, {} change too fast, after {} full scans",
            output::known(ksm.pages_unshared),
            output::known(ksm.pages_volatile),
            output::known(ksm.full_scans)
        );
        let remedy = "equal pages merge in the second full scan after they appear: wait, or raise \
                      /sys/kernel/mm/ksm/pages_to_scan";
        findings.push(note(what, remedy));
    }
    findings.extend(unknown);
    let mut limited = BTreeSet::new();
    for tenant in &tenants {
        limited.extend(nearly_full_cgroups(root, tenant.task)?);
    }
    for cgroup in limited {
        let what = format!(
            "memory cgroup {cgroup} is within 5 % of its limit: un-merging there ends in reclaim or OOM"
        );
        findings.push(note(what, "raise its memory.max before pages are written to or KSM is switched off"));
    }
    Ok(findings)
}

/// Cgroups of a process, or above its own, that are nearly full.
fn nearly_full_cgroups(root: &Root, pid: u32) -> Result<Vec<String>> {
    let mut full = Vec::new();
    for cgroup in memcg::chain(root, pid)? {
        let limit = memcg::limit_bytes(root, &cgroup)?.zip(memcg::room_bytes(root, &cgroup)?);
        if limit.is_some_and(|(limit, room)| room <= limit / 20) {
            full.push(format!("/{cgroup}"));
        }
    }
    Ok(full)
}

/// Do tenants of several users share with each other? Each can find out what the others
/// have in memory.
fn strangers(root: &Root, machine: &Topology) -> Result<Option<Finding>> {
    let mut owners = BTreeMap::<Option<u64>, BTreeSet<String>>::new();
    for tenant in tenants::find(root, machine, &|| false)?.tenants {
        if let Some(owner) = owner(root, &tenant)? {
            owners.entry(tenant.ksm.domain).or_default().insert(owner);
        }
    }
    let Some(together) = owners.into_values().filter(|owners| owners.len() > 1).max_by_key(BTreeSet::len)
    else {
        return Ok(None);
    };
    let some: Vec<&str> = together.iter().take(3).map(String::as_str).collect();
    let more = if together.len() > some.len() { ", …" } else { "" };
    let what = format!(
        "{} users and guests may share pages ({}{more}): by the time of a write each can tell what another has \
         in memory",
        together.len(),
        some.join(", ")
    );
    let remedy = if nuksm_cgroupfs::Default::read(root)?.is_some() {
        "nothing to do if they trust each other; else put them into merge domains: nuksm domain --help"
            .to_owned()
    } else {
        format!(
            "nothing to do if they trust each other; this kernel has no merge domains: {}",
            domains::INSTEAD
        )
    };
    Ok(Some(note(what, remedy)))
}

/// Whose a tenant is, if not the system's own: the guest, or else the user.
fn owner(root: &Root, tenant: &Tenant) -> Result<Option<String>> {
    if tenant.cgroup.contains("machine-qemu") || tenant.cgroup.contains("/qemu.slice/") {
        return Ok(Some(format!("guest {} with pid {}", tenant.name, tenant.pid)));
    }
    let status = root.text(format!("proc/{}/status", tenant.task))?.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user = line.and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok());
    Ok(user.filter(|user| *user != 0).map(|user| format!("user {user}")))
}

/// ksmd splits huge pages to merge their parts; khugepaged makes new ones of
/// areas in which some pages are merged, each with a copy of its own again.
fn huge_pages(root: &Root) -> Result<Option<Finding>> {
    let enabled = root.text("sys/kernel/mm/transparent_hugepage/enabled")?.unwrap_or_default();
    let file = "sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_shared";
    let shared = root.text(file)?.and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(0);
    Ok((shared > 0 && !enabled.contains("[never]")).then(|| {
        note(
            format!(
                "khugepaged undoes merging: it makes a huge page of any area with up to {shared} merged pages"
            ),
            format!("echo 0 > /{file}"),
        )
    }))
}

/// Does /proc/kpageflags tell merged pages from others? Nobody knows without
/// the privileges that another finding asks for.
fn ksm_flag(root: &Root) -> Result<Option<Finding>> {
    if !privilege::missing(root, false)?.is_empty() {
        return Ok(None);
    }
    Ok(Some(match KpageFlags::open(root) {
        Ok(flags) if flags.ksm_flag_reliable() => ok("/proc/kpageflags tells merged pages from others"),
        Ok(_) => note(
            "/proc/kpageflags of this kernel flags every anonymous page as KSM",
            "nothing to do: nuksm goes by equal page frames in mergeable memory instead (pages that a fork shares \
             there count as merged)",
        ),
        Err(error) => {
            problem(error.to_string(), "mount /proc, and build the kernel with CONFIG_PROC_PAGE_MONITOR=y")
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tree::tree;

    fn severities(findings: &[Finding]) -> Vec<Severity> {
        findings.iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn a_kernel_without_ksm_ends_the_examination() {
        let (_dir, root) = tree(&[]);
        let findings = examine(&root).unwrap();
        assert_eq!(severities(&findings), [Severity::Problem]);
        assert!(findings[0].remedy.as_ref().unwrap().contains("CONFIG_KSM"));
    }

    #[test]
    fn an_engine_is_never_a_problem_nor_is_its_absence() {
        let with = |placement: Option<&str>| {
            let placement = placement.map(|text| text.parse().unwrap());
            engine(Some(&Engine { placement, ..Engine::default() }))
        };
        assert_eq!(engine(None).severity, Severity::Note);
        assert!(engine(None).remedy.unwrap().contains("`nuksm place`"));
        assert_eq!(with(None).severity, Severity::Note);
        assert!(with(Some("[first] fair")).remedy.unwrap().contains("placement=fair"));
        let placing = with(Some("first [fair]"));
        assert_eq!((placing.severity, placing.remedy), (Severity::Ok, None));
    }

    #[test]
    fn each_state_of_ksm_has_its_remedy() {
        let with = |run, across| Ksm { run: Some(run), merge_across_nodes: Some(across), ..Ksm::default() };
        assert_eq!(severities(&settings(&with(1, 1))), [Severity::Ok]);
        assert_eq!(severities(&settings(&with(0, 1))), [Severity::Problem]);
        assert_eq!(severities(&settings(&with(2, 0))), [Severity::Problem, Severity::Note]);
        assert!(settings(&with(0, 1))[0].remedy.as_ref().unwrap().contains("echo 1"));
    }

    #[test]
    fn one_node_and_full_nodes_are_problems() {
        let machine = crate::shared::view::tests::view().machine;
        assert_eq!(severities(&nodes(&machine)), [Severity::Ok]);
        let mut full = machine.clone();
        full.nodes[1].room_pages = 0;
        assert_eq!(severities(&nodes(&full)), [Severity::Ok, Severity::Problem]);
        let mut single = machine;
        single.nodes[1].total_bytes = 0;
        assert_eq!(severities(&nodes(&single)), [Severity::Problem]);
    }

    #[test]
    fn tenants_of_several_users_are_told_of_domains_or_what_to_do_without() {
        let stat =
            |pid: u32| format!("{pid} (t) S {} 0 {}", vec!["0"; 15].join(" "), vec!["1"; 30].join(" "));
        let found = |users: &[(&str, u64)], has_domains: bool| {
            let mut files = Vec::new();
            for (pid, (user, domain)) in (7..).zip(users) {
                let domain = if has_domains { format!("ksm_domain {domain}\n") } else { String::new() };
                files.push((format!("proc/{pid}/ksm_stat"), format!("ksm_rmap_items 5\n{domain}")));
                files.push((format!("proc/{pid}/stat"), stat(pid)));
                let guest = user.strip_prefix("guest");
                let cgroup =
                    guest.map_or("/a".to_owned(), |n| format!("/machine.slice/machine-qemu\\x2d{n}.scope"));
                files.push((format!("proc/{pid}/cgroup"), format!("0::{cgroup}\n")));
                let user = if guest.is_some() { "64055" } else { user };
                files.push((format!("proc/{pid}/status"), format!("Uid:\t{user}\t{user}\t{user}\t{user}\n")));
            }
            if has_domains {
                files.push(("sys/kernel/mm/ksm/default_domain".into(), "[shared] own\n".into()));
            }
            let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
            let (_dir, root) = tree(&files);
            strangers(&root, &Topology::default()).unwrap()
        };
        assert_eq!(
            found(&[("1000", 0), ("1000", 0), ("0", 0)], true),
            None,
            "one user, and the system's own"
        );
        assert_eq!(found(&[("1000", 1), ("1001", 2)], true), None, "they are in domains");
        let two = found(&[("1000", 1), ("1001", 1)], true).unwrap();
        assert!(two.what.starts_with("2 users and guests may share pages (user 1000, user 1001)"), "{two:?}");
        assert!(two.remedy.unwrap().contains("nuksm domain --help"));
        let guests = found(&[("guest1", 0), ("guest2", 0)], false).unwrap();
        assert_eq!(guests.severity, Severity::Note);
        assert!(guests.remedy.unwrap().contains("<nosharepages/>"));
    }

    #[test]
    fn nothing_registered_nothing_merged_and_tight_limits() {
        let ksm = Ksm { pages_sharing: Some(0), ..Ksm::default() };
        let (_dir, empty) = tree(&[]);
        assert_eq!(severities(&registered(&empty, &ksm, &Topology::default()).unwrap()), [Severity::Problem]);

        let stat = format!("7 (db) S {} 0 {}", vec!["0"; 15].join(" "), vec!["1"; 30].join(" "));
        let process = [
            ("proc/7/ksm_stat", "ksm_rmap_items 5\n"),
            ("proc/7/stat", stat.as_str()),
            ("proc/7/cgroup", "0::/db.slice\n"),
            ("sys/fs/cgroup/db.slice/memory.current", "96\n"),
        ];
        let limit = |max| [&process[..], &[("sys/fs/cgroup/db.slice/memory.max", max)]].concat();
        let (_dir, tight) = tree(&limit("100\n"));
        let found = registered(&tight, &ksm, &Topology::default()).unwrap();
        assert_eq!(severities(&found), [Severity::Ok, Severity::Note, Severity::Note]);
        assert!(found[2].what.contains("/db.slice"), "{found:?}");
        let (_dir, unread) = tree(&[&process[..], &[("proc/8/stat", "no stat")]].concat());
        let found = registered(&unread, &ksm, &Topology::default()).unwrap();
        assert!(found.iter().any(|found| found.what.starts_with("process 8 is passed over")), "{found:?}");
        let (_dir, alone) = tree(&[("proc/8/stat", "no stat")]);
        let found = registered(&alone, &ksm, &Topology::default()).unwrap();
        assert_eq!(severities(&found), [Severity::Problem, Severity::Note], "{found:?}");
        let (_dir, unlimited) = tree(&limit("max\n"));
        // As libvirt has it: the limit is above the process's own cgroup.
        let mut below = limit("100\n");
        below[2].1 = "0::/db.slice/machine-1.scope/libvirt/emulator\n";
        let (_dir, tight) = tree(&below);
        let found = registered(&tight, &ksm, &Topology::default()).unwrap();
        assert!(found.iter().any(|finding| finding.what.contains("cgroup /db.slice is")), "{found:?}");
        assert_eq!(registered(&unlimited, &ksm, &Topology::default()).unwrap().len(), 2);
    }

    #[test]
    fn who_may_read_nobody_is_told() {
        let scope = |scope| tree(&[("proc/sys/kernel/yama/ptrace_scope", scope)]);
        let (_dir, strict) = scope("3\n");
        let found = reading(&strict).unwrap().unwrap();
        assert_eq!(found.severity, Severity::Note);
        assert!(found.remedy.unwrap().contains("boot again"));
        let (_dir, lax) = scope("1\n");
        assert_eq!(reading(&lax).unwrap(), None);
    }

    #[test]
    fn huge_pages_made_of_merged_ones_are_worth_a_note() {
        let found = |enabled, shared| {
            let (_dir, root) = tree(&[
                ("sys/kernel/mm/transparent_hugepage/enabled", enabled),
                ("sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_shared", shared),
            ]);
            huge_pages(&root).unwrap()
        };
        let note = found("always [madvise] never\n", "256\n").unwrap();
        assert_eq!(note.severity, Severity::Note);
        assert!(note.what.contains("up to 256 merged pages"), "{note:?}");
        assert_eq!(found("[always] madvise never\n", "0\n"), None);
        assert_eq!(found("always madvise [never]\n", "256\n"), None);
    }
}
