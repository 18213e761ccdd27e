# SPDX-License-Identifier: GPL-2.0-only
"""What nuksm must refuse: clearly, with a failure, and changing nothing."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nuksmlab import paths, program
from nuksmlab.tenant import Tenant

pytestmark = pytest.mark.anywhere

NOBODY = 65534


@pytest.fixture(scope="module")
def public_nuksm() -> Iterator[Path]:
    """A copy that any user may run, wherever the repository is."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield Path(shutil.copy(paths.NUKSM, directory))


@pytest.mark.parametrize(
    "arguments",
    [
        ("place", "--once", "--policy", "fair"),
        ("place", "--interval", "1"),
        ("sharing",),
    ],
)
def test_unprivileged_user(
    merged: list[Tenant], public_nuksm: Path, arguments: tuple[str, ...]
) -> None:
    before = [tenant.equal_pages_by_node() for tenant in merged]
    done = subprocess.run(
        [public_nuksm, *arguments],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "root" in done.stderr or "CAP_SYS_" in done.stderr
    assert [tenant.equal_pages_by_node() for tenant in merged] == before


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("place", "--once", "--only", "4194000"), "4194000"),
        (("place", "--once", "--rate", "fast"), "fast"),
        (("place", "--once", "--rate", "0"), "rate"),
        (("place", "--once", "--policy", "whim"), "whim"),
        (("sing",), "sing"),
    ],
)
def test_impossible_order(
    merged: list[Tenant], arguments: tuple[str, ...], word: str
) -> None:
    before = [tenant.equal_pages_by_node() for tenant in merged]
    done = program.run(*arguments)
    assert done.returncode != 0
    assert word in done.stderr
    assert [tenant.equal_pages_by_node() for tenant in merged] == before
