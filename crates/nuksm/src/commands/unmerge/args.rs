// SPDX-License-Identifier: GPL-2.0-only
//! What can be asked of `unmerge`.

use crate::shared::options::Rate;
use clap::Args;

/// Un-merge everything, or one process, only where the memory for it is free.
///
/// Says first what it costs: each mapping of a merged page gets a page of
/// its own, on the node that its memory's policy names, else where its
/// tenant runs. When a node's free memory (above its high watermark) or a
/// memory cgroup's limit does not suffice, nothing is done and the exit
/// status is 1. Then works at --rate and can be interrupted at any time;
/// tenants go on running, and what they write is never touched. What KSM
/// counts for no process in sight has to fit, too: the kernel un-merges it in
/// one go at the end.
///
/// What refuses to be un-merged stays merged, is counted by reason, and the
/// exit status is 1: memory that its process may not read itself or keeps
/// locked, pages that are pinned, or all where a security module (yama with `ptrace_scope` 3)
/// keeps processes from reading each other.
///
/// Without --pid, ksmd is stopped first and stays stopped (as after writing
/// 2 to /sys/kernel/mm/ksm/run): write 1 there to merge again.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  nuksm unmerge --dry-run\n  nuksm unmerge --rate 64M\n  nuksm unmerge --pid 4711"
)]
pub struct UnmergeArgs {
    /// Say what it would cost, but change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Un-merge process PID only; ksmd stays as it is.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Pages (a number) or memory (`64M`) un-merged per second at the most.
    #[arg(long, value_name = "RATE", default_value = "256M")]
    pub rate: Rate,
    /// Go on even where memory does not suffice (the kernel reclaims, and in
    /// the end kills), and let the kernel un-merge what refuses in one go.
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
