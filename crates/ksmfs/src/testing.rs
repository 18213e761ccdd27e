// SPDX-License-Identifier: GPL-2.0-only
//! What several tests need.

use crate::control::DIR;
use nuksm_sysroot::Root;
use std::fs;

/// A tree with these files of KSM, and nothing else.
pub fn root(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(DIR)).unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(DIR).join(name), text).unwrap();
    }
    let root = Root::at(dir.path());
    (dir, root)
}
