# SPDX-License-Identifier: GPL-2.0-only
"""MariaDB with a table in memory, and sysbench reading it, as one instance."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType

from nuksmlab import numa, paths, wait
from nuksmlab.tenant import ANYWHERE
from nuksmlab.workload import Answer, WorkloadError

NAME = "mysql"
ROW_BYTES = 192  # of sysbench's table in the MEMORY engine
# What each instance has of everything is small and the same.
SERVER = (
    *("mariadbd", "--no-defaults", "--user=root", "--skip-networking"),
    *("--skip-grant-tables", "--skip-log-bin", "--innodb=OFF"),
    *("--default-storage-engine=MEMORY", "--max-heap-table-size=4G"),
    *("--tmp-table-size=4G", "--query-cache-size=0", "--performance-schema=OFF"),
    *("--aria-pagecache-buffer-size=1M", "--key-buffer-size=64K"),
)
# As `sysbench prepare` would make it, but the same each time.
TABLE = """
CREATE TABLE sbtest.sbtest1 (
    id INTEGER NOT NULL, k INTEGER NOT NULL,
    c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL, PRIMARY KEY (id)
);
INSERT INTO sbtest.sbtest1
    SELECT seq, 1 + CRC32(seq) % {rows}, CONCAT(MD5(seq), MD5(-seq)), MD5(seq + 0.5)
    FROM sbtest.seq_1_to_{rows};
"""
# Blocks of the table begin at pages, each time at the same place in them.
ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}


def rows(kib: int) -> int:
    """Of a table of that size."""
    return kib * 1024 // ROW_BYTES


def accepts(address: Path) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as client:
        return client.connect_ex(str(address)) == 0


class Database:
    """Started with its table filled; ends with the `with` block."""

    def __init__(self, number: int, node: int, kib: int, *, merged: bool) -> None:
        self.name = f"{NAME} {number}"
        self.number = number
        self.node = node
        self.rows = rows(kib)
        self.directory = Path(tempfile.mkdtemp(prefix="nuksm-database-"))
        self.socket = self.directory / "socket"
        self.server = self._start(merged)
        try:
            wait.until(self._is_up, self._log)
            self._query(TABLE.format(rows=self.rows))
        except BaseException:
            self._end()
            raise
        self.pid = self.server.pid
        self.client: subprocess.Popen[str] | None = None

    def _start(self, merged: bool) -> subprocess.Popen[bytes]:
        data = self.directory / "data"
        data.mkdir()
        first = self.directory / "init.sql"
        first.write_text("CREATE DATABASE sbtest;\n")
        with (self.directory / "log").open("wb") as log:
            return subprocess.Popen(
                [
                    *self._bound("-"),
                    *((str(paths.NUKSM), "exec", "--") if merged else ()),
                    *SERVER,
                    *(f"--datadir={data}", f"--socket={self.socket}"),
                    *(f"--pid-file={self.directory / 'pid'}", f"--init-file={first}"),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, **ALLOCATION},
            )

    def _bound(self, tenant: str) -> list[str]:
        node = "-" if self.node == ANYWHERE else str(self.node)
        return [str(paths.BOUND), node, tenant]

    def _log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-1000:]

    def _is_up(self) -> bool:
        if self.server.poll() is not None:
            raise WorkloadError(f"{self.name} ended: {self._log()}")
        return accepts(self.socket)

    def _query(self, text: str) -> str:
        done = subprocess.run(
            [
                *self._bound("-"),
                *("mariadb", "--no-defaults", "-uroot", f"-S{self.socket}", "-NB"),
                *("-e", text),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise WorkloadError(f"{self.name}: {done.stderr}")
        return done.stdout

    def _checksum(self) -> str:
        """Of the table, row by row, by the server."""
        return self._query("CHECKSUM TABLE sbtest.sbtest1").split()[-1]

    @property
    def equal_pages(self) -> int:
        """How many are the same as in other instances is not known beforehand."""
        return 0

    @property
    def pages(self) -> int:
        return sum(self.pages_by_node().values())

    def pages_by_node(self) -> dict[int, int]:
        """Of all of the server's memory that belongs to no file."""
        return numa.anonymous_pages_by_node(self.pid)

    def renice(self, nice: int) -> None:
        os.setpriority(os.PRIO_PROCESS, self.pid, nice)

    def warm(self) -> None:
        """Reads the table, so that reading it takes no faults later."""
        self._checksum()

    def begin(self, operations: int) -> None:
        """Starts a measured phase, whose answer `end` waits for."""
        self.operations = operations
        self.began = time.monotonic()
        self.client = subprocess.Popen(
            [
                *self._bound(str(self.number)),
                *("sysbench", "oltp_read_only", "--db-driver=mysql", "--threads=1"),
                *(f"--mysql-socket={self.socket}", "--mysql-user=root"),
                *("--mysql-db=sbtest", f"--table_size={self.rows}", "--skip_trx=on"),
                *("--rand-seed=42", "--time=0", f"--events={operations}", "run"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )

    def end(self) -> Answer:
        assert self.client is not None
        said, _ = self.client.communicate()
        took = time.monotonic() - self.began
        if self.client.returncode != 0:
            raise WorkloadError(f"{self.name}: sysbench: {said}")
        return {
            "operations": self.operations,
            "operation": "transaction",
            "checksum": self._checksum(),
            "seconds": took,
        }

    def run(self, operations: int) -> Answer:
        self.begin(operations)
        return self.end()

    def _end(self) -> None:
        self.server.kill()
        self.server.wait()
        shutil.rmtree(self.directory)

    def __enter__(self) -> "Database":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
