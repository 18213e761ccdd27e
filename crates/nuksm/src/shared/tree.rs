// SPDX-License-Identifier: GPL-2.0-only
//! A machine made of files, for tests.

use nuksm_sysroot::Root;
use std::fs;
use tempfile::TempDir;

/// Files by their names below the root, which are there as long as the directory.
pub fn tree(files: &[(&str, &str)]) -> (TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = Root::at(dir.path());
    (dir, root)
}
