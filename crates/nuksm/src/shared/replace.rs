// SPDX-License-Identifier: GPL-2.0-only
//! Files that are made anew, all at once.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// Writes a file that only this user can read: it names tenants. What is there stays
/// until the new one is complete. Only a regular file is replaced: who names a device
/// or a link means what is behind it.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let write = || {
        if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            bail!("it is no regular file: choose another name");
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut partial = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
        partial.write_all(content)?;
        partial.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
