# SPDX-License-Identifier: GPL-2.0-only
"""Runs in a guest: makes a load, or reads all files of its user space, when asked to.

Only with what Debian's smallest Python has. Nothing here waits for time to pass: a
guest that is nested in an emulated machine may lose its timer.
"""

import os
import subprocess
import sys
import zlib


def files() -> list[str]:
    paths = [
        f"{folder}/{name}" for folder, _, names in os.walk("/usr") for name in names
    ]
    return sorted(path for path in paths if not os.path.islink(path))  # noqa: PTH114


def checksum() -> int:
    result = 0
    for path in files():
        with open(path, "rb") as file:  # noqa: PTH123
            result = zlib.crc32(file.read(), result)
    return result


def load() -> int:
    """The exit status of dd."""
    size = ["bs=1M", f"count={os.environ['LOAD_MIB']}", "status=none"]
    return subprocess.call(["dd", "if=/dev/urandom", "of=/tmp/load", *size])


print('{"ready": true}', flush=True)
for line in sys.stdin:
    if line == "load\n":
        print(f'{{"load": {load()}}}', flush=True)
    else:
        print(f'{{"checksum": {checksum()}}}', flush=True)
