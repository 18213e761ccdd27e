// SPDX-License-Identifier: GPL-2.0-only
//! Limits of memory cgroups (version 2).

use anyhow::Result;
use nuksm_sysroot::Root;

/// The cgroup of a process and all above it that can have a limit, the
/// innermost first; none with cgroups of version 1.
pub fn chain(root: &Root, pid: u32) -> Result<Vec<String>> {
    let text = root.text(format!("proc/{pid}/cgroup"))?.unwrap_or_default();
    let Some(mut path) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Ok(Vec::new());
    };
    let mut chain = Vec::new();
    while !path.is_empty() {
        chain.push(path.to_owned());
        path = path.rsplit_once('/').map_or("", |(above, _)| above);
    }
    Ok(chain)
}

/// The most bytes that a cgroup may take; `None` without a limit.
pub fn limit_bytes(root: &Root, cgroup: &str) -> Result<Option<u64>> {
    let path = format!("sys/fs/cgroup/{cgroup}/memory.max");
    match root.text(&path)? {
        Some(text) if text.trim() != "max" => Ok(root.value(&path, "bytes or max")?),
        _ => Ok(None),
    }
}

/// Bytes that a cgroup may still take before something of it is killed: up to
/// its limit, with what it has of files given back. `None` without a limit.
pub fn room_bytes(root: &Root, cgroup: &str) -> Result<Option<u64>> {
    let Some(limit) = limit_bytes(root, cgroup)? else {
        return Ok(None);
    };
    let dir = format!("sys/fs/cgroup/{cgroup}");
    let used = root.value::<u64>(format!("{dir}/memory.current"), "bytes")?.unwrap_or(0);
    let stat = root.text(format!("{dir}/memory.stat"))?.unwrap_or_default();
    let files: u64 = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(key, _)| ["active_file", "inactive_file"].contains(key))
        .filter_map(|(_, bytes)| bytes.parse::<u64>().ok())
        .sum();
    Ok(Some(limit.saturating_sub(used.saturating_sub(files))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_cgroup_and_all_above_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/7")).unwrap();
        fs::write(dir.path().join("proc/7/cgroup"), "1:cpu:/x\n0::/a/b/c\n").unwrap();
        let root = Root::at(dir.path());
        assert_eq!(chain(&root, 7).unwrap(), ["a/b/c", "a/b", "a"]);
        assert!(chain(&root, 8).unwrap().is_empty());
    }

    #[test]
    fn room_is_what_the_limit_leaves_with_files_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let cgroup = dir.path().join("sys/fs/cgroup/a");
        fs::create_dir_all(&cgroup).unwrap();
        let root = Root::at(dir.path());
        assert_eq!(room_bytes(&root, "a").unwrap(), None, "no memory controller");
        let write = |name: &str, text: &str| fs::write(cgroup.join(name), text).unwrap();
        write("memory.max", "max\n");
        assert_eq!(room_bytes(&root, "a").unwrap(), None);
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        write("memory.stat", "anon 500\nactive_file 200\ninactive_file 100\nfile 400\n");
        assert_eq!(room_bytes(&root, "a").unwrap(), Some(400));
        write("memory.current", "2000\n");
        assert_eq!(room_bytes(&root, "a").unwrap(), Some(0));
    }
}
