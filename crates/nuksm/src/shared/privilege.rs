// SPDX-License-Identifier: GPL-2.0-only
//! Which capabilities this process lacks.

use anyhow::{Context, Result, bail};
use nuksm_sysroot::Root;

/// Capabilities by the kernel's numbers, of which one is enough; the least of
/// them by its name; what it is for.
type Need = (&'static [u32], &'static str, &'static str);

/// What looking at merged pages takes.
const LOOK: [Need; 3] = [
    (&[19], "CAP_SYS_PTRACE", "to read other processes' memory maps"),
    // Else nothing would be said to be mergeable. Or CAP_DAC_OVERRIDE.
    (&[2, 1], "CAP_DAC_READ_SEARCH", "to open other users' pagemap files"),
    (&[21], "CAP_SYS_ADMIN", "to see page frame numbers"),
];
/// What moving them takes besides.
const MOVE: Need = (&[23], "CAP_SYS_NICE", "to move pages that several processes share");

/// The capabilities this process lacks, each with what it is for: those for
/// looking, and with `moving` those for moving.
pub fn missing(root: &Root, moving: bool) -> Result<Vec<(&'static str, &'static str)>> {
    let status = root.text("proc/self/status")?.context("/proc is not mounted")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .context("no CapEff in /proc/self/status")?;
    let effective =
        u64::from_str_radix(line.trim(), 16).context("CapEff in /proc/self/status is no number")?;
    // What one has in a user namespace of one's own is good for nothing here.
    let effective = if in_user_namespace(root)? { 0 } else { effective };
    let wanted = LOOK.iter().chain(moving.then_some(&MOVE));
    Ok(wanted
        .filter(|(numbers, ..)| numbers.iter().all(|number| effective & (1 << number) == 0))
        .map(|&(_, name, purpose)| (name, purpose))
        .collect())
}

/// Fails with one message that names all that is missing for `purpose`.
pub fn require(root: &Root, purpose: &str, moving: bool) -> Result<()> {
    let missing = missing(root, moving)?;
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    bail!("{purpose} needs {}: {}", names.join(", "), remedy(root)?)
}

/// How to get what is missing.
pub fn remedy(root: &Root) -> Result<&'static str> {
    Ok(if in_user_namespace(root)? {
        "run it as root of the host, outside of this user namespace"
    } else {
        "run it as root"
    })
}

/// Is this process in another user namespace than the host's first? Only that
/// one has all users.
fn in_user_namespace(root: &Root) -> Result<bool> {
    let map = root.text("proc/self/uid_map")?;
    Ok(map.is_some_and(|map| !map.split_whitespace().eq(["0", "0", "4294967295"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn root(status: &str) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        fs::write(dir.path().join("proc/self/status"), status).unwrap();
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn capabilities_in_a_user_namespace_are_none() {
        let (dir, root) = root("CapEff:\t000001ffffffffff\n");
        let map = |text| fs::write(dir.path().join("proc/self/uid_map"), text).unwrap();
        map("         0          0 4294967295\n");
        assert!(missing(&root, true).unwrap().is_empty());
        map("         0       1000          1\n");
        assert_eq!(missing(&root, true).unwrap().len(), 4);
        let message = require(&root, "looking", false).unwrap_err().to_string();
        assert!(message.ends_with("outside of this user namespace"), "{message}");
    }

    #[test]
    fn all_that_is_missing_is_named_at_once() {
        let (_dir, nobody) = root("Name:\tx\nCapEff:\t0000000000000000\n");
        let message = require(&nobody, "placing", true).unwrap_err().to_string();
        assert_eq!(
            message,
            "placing needs CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN, CAP_SYS_NICE: run it as root"
        );
        let (_dir, all) = root("CapEff:\t000001ffffffffff\n");
        assert!(require(&all, "placing", true).is_ok());
        let (_dir, looker) = root("CapEff:\t0000000000280004\n");
        assert!(require(&looker, "looking", false).is_ok());
        let (_dir, overrider) = root("CapEff:\t0000000000280002\n");
        assert!(require(&overrider, "looking", false).is_ok());
        let (_dir, blind) = root("CapEff:\t0000000000280000\n");
        assert_eq!(missing(&blind, false).unwrap(), [("CAP_DAC_READ_SEARCH", LOOK[1].2)]);
        assert_eq!(missing(&looker, true).unwrap(), [("CAP_SYS_NICE", MOVE.2)]);
    }
}
