# SPDX-License-Identifier: GPL-2.0-only
"""`nuksm exec`: merging for programs that never asked for it."""

from pathlib import Path

import pytest

from nuksmlab import paths, program
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant, Tenant

pytestmark = pytest.mark.anywhere

EXEC = (str(paths.NUKSM), "exec", "--")


def merging_pages(tenant: Tenant) -> int:
    return int(Path(f"/proc/{tenant.pid}/ksm_merging_pages").read_text())


def test_unmodified_program_merges(start: StartTenant, ksm: Ksm) -> None:
    tenants = [
        start(f"plain-{node}", node, prefix=EXEC, madvised=False) for node in (0, 1)
    ]
    equal = sum(tenant.equal_pages for tenant in tenants)
    ksm.merge(equal)
    assert all(merging_pages(tenant) >= tenant.equal_pages for tenant in tenants)
    program.place_once("fair")
    assert [tenant.bad_pages() for tenant in tenants] == [0, 0]


def test_without_exec_it_does_not_merge(start: StartTenant, ksm: Ksm) -> None:
    asking = [start(f"asks-{node}", node) for node in (0, 1)]
    plain = start("plain", 0, madvised=False)
    ksm.merge(sum(tenant.equal_pages for tenant in asking))
    assert merging_pages(plain) == 0


@pytest.mark.parametrize("status", [0, 3])
def test_exit_status_is_the_program_s(status: int) -> None:
    assert program.run("exec", "--", "sh", "-c", f"exit {status}").returncode == status


def test_no_variable_keeps_the_program_from_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NUKSM_EXEC_PROBE", "1")
    assert program.run("exec", "--", "echo", "here").stdout == "here\n"


def test_program_that_is_not_there() -> None:
    done = program.run("exec", "--", "no-such-program")
    assert done.returncode != 0
    assert "no-such-program" in done.stderr
