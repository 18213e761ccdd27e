// SPDX-License-Identifier: GPL-2.0-only
//! A terminal for tests.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::path::Path;

/// A terminal of 80 columns: our side, and what opens the other.
pub fn terminal() -> (File, impl Fn() -> File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let its = move || File::options().read(true).write(true).open(Path::new(&name)).unwrap();
    (File::from(ours), its)
}
