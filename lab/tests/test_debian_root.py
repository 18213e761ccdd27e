# SPDX-License-Identifier: GPL-2.0-only
"""Making a Debian root is ended: what its maker has mounted is not left."""

import signal
import subprocess
import sys
from pathlib import Path

from nuksmlab import wait

MAKER = """
import os, sys
from nuksmlab import debian_root, guard
os.geteuid = lambda: 0
guard.unwind_when_terminated()
debian_root.as_root("sh", "-c", sys.argv[1])
"""
DEBOOTSTRAP = "trap 'echo >{0}/undone; exit' TERM; echo >{0}/mounted; sleep 1000 & wait"


def test_who_mounts_has_time_to_undo_it(tmp_path: Path) -> None:
    command = DEBOOTSTRAP.format(tmp_path)
    maker = subprocess.Popen([sys.executable, "-c", MAKER, command])
    wait.until((tmp_path / "mounted").exists, lambda: "the mount")
    maker.send_signal(signal.SIGTERM)
    assert maker.wait() == 128 + signal.SIGTERM
    assert (tmp_path / "undone").exists()
