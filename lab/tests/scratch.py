# SPDX-License-Identifier: GPL-2.0-only
"""Scripts in a folder of their own, and programs that they take for others."""

import os
from pathlib import Path

# Says that it runs, and goes on until it is told to end.
WAITS = """#!/bin/sh
{before}echo $$ >{place}/new; mv {place}/new {place}/pid
until [ -e {place}/end ]; do sleep 0.05; done
exit 1
"""


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def environment(place: Path, **more: str) -> dict[str, str]:
    """Programs of our own in place/bin come first."""
    return {**os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}", **more}
