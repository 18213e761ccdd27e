# SPDX-License-Identifier: GPL-2.0-only
import os
from pathlib import Path

import pytest

from nuksmlab import processes, stress

REPORT = """\
unreferenced object 0xffff888004c2e5a0 (size 96):
  comm "ksmd", pid 31, jiffies 4294937300
  backtrace (crc 0):
    ksm_do_scan+0x12/0x30
unreferenced object 0xffff888004c2e600 (size 64):
  comm "swapper/0", pid 1, jiffies 4294937301
"""


def test_each_suspect_is_one_entry() -> None:
    suspects = stress.split_leaks(REPORT)
    assert [line.split()[2] for line in suspects] == [
        "0xffff888004c2e5a0",
        "0xffff888004c2e600",
    ]
    assert "ksm_do_scan" in suspects[0]


def test_no_suspects() -> None:
    assert stress.split_leaks("") == []


def test_processes_are_found_by_name() -> None:
    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert processes.pid_of(name) > 0
    with pytest.raises(ProcessLookupError, match="no process is called"):
        processes.pid_of("no such process")
