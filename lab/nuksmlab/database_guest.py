# SPDX-License-Identifier: GPL-2.0-only
"""A virtual machine whose processes are MariaDB and sysbench, as one instance.

Its user space is a small Debian in memory, of packages that are installed here; the
server and its table are those of database.py.
"""

from pathlib import Path

from nuksmlab import database, debian_guest, initramfs, paths
from nuksmlab.virtual import VirtualMachine

ROOTS = ("mariadb-server-core", "mariadb-client-core", "sysbench", "bash", "coreutils")
INIT = Path(__file__).with_suffix(".sh")
# The server asks who that is.
ROOT = "root:x:0:0:root:/root:/bin/bash\n"


class DatabaseMachine(VirtualMachine):
    """Which of its pages are equal to another one's is not known beforehand."""

    spare_mib = 384  # with the user space

    def _entries(self, kib: int) -> list[bytes]:
        packages = debian_guest.closure(debian_guest.installed(), ROOTS)
        environment = [f"{name}={value}" for name, value in database.ALLOCATION.items()]
        texts = {
            "etc/passwd": ROOT,
            "server": "\n".join(["env", *environment, *database.SERVER]),
            "table.sql": database.TABLE.format(rows=database.rows(kib)),
        }
        return [
            *debian_guest.entries(debian_guest.files(packages)),
            *(
                initramfs.entry(name, initramfs.FILE, text.encode())
                for name, text in texts.items()
            ),
            initramfs.entry("bound", initramfs.PROGRAM, paths.BOUND.read_bytes()),
            initramfs.entry("init", initramfs.PROGRAM, INIT.read_bytes()),
        ]

    def _arguments(self, name: str, number: int, kib: int) -> str:  # noqa: ARG002
        return f"{number} {database.rows(kib)}"
