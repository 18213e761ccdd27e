// SPDX-License-Identifier: GPL-2.0-only
//! A machine made of files, for tests.

use nuksm_sysroot::Root;
use std::fs;
use std::path::PathBuf;
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

/// A file below the root, such as `proc/7/pagemap`, that does not answer whoever opens it,
/// until somebody opens it for writing. Who is held up by a process is known by its pid,
/// in all tests of a program: each test needs its own.
pub fn silent(name: &str) -> (TempDir, Root, PathBuf) {
    let (dir, root) = tree(&[]);
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    (dir, root, path)
}
