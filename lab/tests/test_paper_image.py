# SPDX-License-Identifier: GPL-2.0-only
"""A guest's image in memory, compared with its file."""

import os
import subprocess
import sys
from pathlib import Path

from gone import is_gone

from nuksmlab import wait
from nuksmlab.guard import descendants
from nuksmlab.paper.merging import image
from nuksmlab.tenant import Controlled


def test_pages_that_are_not_what_the_file_has_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "image"
    pages = 2 * image.CHUNK // image.PAGE_BYTES + 3
    path.write_bytes(os.urandom(pages * image.PAGE_BYTES))
    hold = (sys.executable, "-m", image.__name__, str(path))
    with Controlled("image", hold) as holder:
        assert holder.command("verify")["bad"] == 0
        with path.open("r+b") as file:
            for page in (0, 1, pages - 1):
                file.seek(page * image.PAGE_BYTES + 5)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 1]))
        assert holder.command("verify")["bad"] == 3


CAPTURES = """
import sys
from pathlib import Path
from nuksmlab.paper.merging import capture
guest = f"echo $$ >{sys.argv[1]}; exec sleep 1000"
capture.command = lambda *_: ["sh", "-c", guest]
capture.capture(Path(), Path(), 1, [Path()])
"""


def test_guests_end_with_who_captures_their_memory_though_he_is_killed(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    process = subprocess.Popen([sys.executable, "-c", CAPTURES, str(pid)])
    wait.until(lambda: pid.exists() and "\n" in pid.read_text(), lambda: "a guest")
    (guest,) = descendants(process.pid)
    assert guest == int(pid.read_text())
    process.kill()
    process.wait()
    wait.until(lambda: is_gone(guest), lambda: "its end")
