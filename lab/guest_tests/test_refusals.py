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


@pytest.mark.parametrize(
    "arguments",
    [
        ("domain",),
        ("domain", "set", "guest:*", "own"),
        ("domain", "apply", "--config", "{rules}"),
        ("domain", "apply", "--watch", "--config", "{rules}"),
        ("serve", "--config", "{rules}"),
        ("estimate", "--domains", "--all"),
    ],
)
def test_a_kernel_without_merge_domains_says_so(
    merged: list[Tenant], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    rules = tmp_path / "nuksm.toml"
    rules.write_text("[domains]\nrules = []\n")
    before = program.read_json("sharing")["pairs"]
    done = program.run(*(word.format(rules=rules) for word in arguments))
    assert done.returncode == 1
    assert "this kernel has no merge domains" in done.stderr
    assert "<nosharepages/>" in done.stderr  # what to do instead
    assert program.read_json("sharing")["pairs"] == before
    assert all(tenant.bad_pages() == 0 for tenant in merged)


def test_a_partition_has_its_price_on_any_kernel(
    merged: list[Tenant], tmp_path: Path
) -> None:
    rules = tmp_path / "nuksm.toml"
    rules.write_text("[domains]\ndefault = 'shared'\nrules = []\n")
    pids = [f"--pid={tenant.pid}" for tenant in merged]
    domains = program.read_json("estimate", f"--domains={rules}", *pids)["domains"]
    assert [row["name"] for row in domains["domains"]] == ["shared"]
    assert domains["border_pages"]["value"] == 0
