// SPDX-License-Identifier: GPL-2.0-only
//! The security module yama, which can keep every process, root's too, from
//! reading another's memory (Documentation/admin-guide/LSM/Yama.rst).

use anyhow::Result;
use nuksm_sysroot::Root;

const FILE: &str = "proc/sys/kernel/yama/ptrace_scope";

/// What to do about it.
pub const REMEDY: &str = "it stays so until the next boot: remove kernel.yama.ptrace_scope = 3 from \
                          /etc/sysctl.d and boot again";

/// Does it keep even root from that?
pub fn forbids_all(root: &Root) -> Result<bool> {
    Ok(root.value::<u32>(FILE, "0 to 3")?.is_some_and(|scope| scope >= 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_the_last_scope_holds_for_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        assert!(!forbids_all(&root).unwrap(), "no yama");
        fs::create_dir_all(dir.path().join("proc/sys/kernel/yama")).unwrap();
        for (scope, forbids) in [("0\n", false), ("1\n", false), ("2\n", false), ("3\n", true)] {
            fs::write(dir.path().join(FILE), scope).unwrap();
            assert_eq!(forbids_all(&root).unwrap(), forbids, "{scope}");
        }
    }
}
