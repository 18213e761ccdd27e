// SPDX-License-Identifier: GPL-2.0-only
//! Has this kernel merge domains?

use anyhow::{Result, bail};
use nuksm_cgroupfs::Default;
use nuksm_sysroot::Root;

/// What can be done about it where the kernel has none.
pub const INSTEAD: &str = "on such a kernel, who must not share is kept out of merging instead: <nosharepages/> for \
     libvirt's guests, mem-merge=off for QEMU, no MemoryKSM= for services, `nuksm unmerge` for who merged already";

/// What cgroups have that were given no domain, or the error that this kernel, or its
/// cgroups, have none.
pub fn require(root: &Root) -> Result<Default> {
    let Some(default) = Default::read(root)? else {
        bail!("this kernel has no merge domains (they are of the nuKSM engine): {INSTEAD}");
    };
    if !root.path("sys/fs/cgroup/cgroup.controllers").exists() {
        bail!("cgroups of version 2 are not mounted at /sys/fs/cgroup: merge domains are of those");
    }
    Ok(default)
}
