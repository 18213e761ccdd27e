# SPDX-License-Identifier: GPL-2.0-only
from pathlib import Path

import pytest

from nuksmlab import kernels

SEARCH = """\
linux-image-6.12.100+deb12-amd64 - Linux 6.12 for 64-bit PCs (signed)
linux-image-6.12.99+deb12-amd64 - Linux 6.12 for 64-bit PCs (signed)
linux-image-6.12.117+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)
linux-image-6.12.117+deb12-rt-amd64 - Linux 6.12 for 64-bit PCs, PREEMPT_RT
linux-image-6.12.117+deb12-amd64-dbg - Debug symbols
linux-image-6.12.117+deb12-amd64-unsigned - Linux 6.12 for 64-bit PCs
linux-image-6.1.0-50-amd64 - Linux 6.1 for 64-bit PCs (signed)
"""

SPLIT = """\
linux-binary-7.3.4+deb13-amd64 - Linux 7.3.4 for 64-bit PCs (kernel image)
linux-binary-7.3.4+deb13-cloud-amd64 - Linux 7.3.4 for x86-64 cloud (kernel image)
linux-image-7.3.4+deb13-amd64 - Linux 7.3.4 for 64-bit PCs
linux-image-7.3.4+deb13-amd64-dbg - Linux 7.3.4 for 64-bit PCs (debug symbols)
linux-image-7.30.1+deb13-amd64 - Linux 7.30.1 for 64-bit PCs
linux-modules-7.3.4+deb13-amd64 - Linux 7.3.4 for 64-bit PCs (modules)
"""


def put_kernel(release: str) -> Path:
    image = kernels.image(release)
    image.parent.mkdir(parents=True)
    image.touch()
    return image


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUKSM_CACHE", str(tmp_path))


def test_newest_release_is_the_highest_number_of_the_plain_flavour() -> None:
    release, packages = kernels.newest_release(SEARCH, "6.12")
    assert release == "6.12.100+deb12-amd64"
    assert packages == ["linux-image-6.12.100+deb12-amd64"]


def test_a_kernel_in_several_packages() -> None:
    release, packages = kernels.newest_release(SPLIT, "7.3")
    assert release == "7.3.4+deb13-amd64"
    kinds = ("image", "binary", "modules")
    assert packages == [f"linux-{kind}-7.3.4+deb13-amd64" for kind in kinds]


def test_no_release_among_other_packages() -> None:
    assert kernels.newest_release(SEARCH.splitlines()[2], "6.12") == (None, [])


def test_newest_cached_kernel_is_used() -> None:
    put_kernel("6.12.99+deb12-amd64")
    newest = put_kernel("6.12.100+deb12-amd64")
    other = put_kernel("7.3.4+deb13-amd64")
    assert kernels.find(None) == kernels.find("stock") == newest
    assert kernels.find("stock-7.3") == other


def test_half_unpacked_kernel_is_no_kernel() -> None:
    (kernels.store() / ".new-x" / "root" / "boot").mkdir(parents=True)
    assert kernels.cached("6.12") is None


def test_given_kernel_that_is_not_there() -> None:
    for given in ("/nowhere/vmlinuz", "nonsense", "nuksm-5.4"):
        with pytest.raises(kernels.KernelError, match=r"names are stock, .*nuksm-7\.3"):
            kernels.find(given)


def put_build_script(root: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = root / "kernel" / "build.sh"
    for version in ("6.12", "7.3"):
        (root / "kernel" / "base" / version).mkdir(parents=True)
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setattr("nuksmlab.paths.REPOSITORY", root)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("nuksm", "lab 6.12"),
        ("nuksm-debug", "debug 6.12"),
        ("nuksm-7.3", "lab 7.3"),
        ("nuksm-7.3-kcsan", "kcsan 7.3"),
    ],
)
def test_kernel_of_ours_is_built_in_the_user_s_sight(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    config: str,
) -> None:
    put_build_script(tmp_path, 'echo half done >&2; echo "/cache/$*"', monkeypatch)
    assert kernels.find(name) == Path("/cache") / config
    assert capfd.readouterr().err == "half done\n"


def test_kernel_of_a_version_that_is_not_there() -> None:
    with pytest.raises(kernels.KernelError, match=r"no kernel/base/5\.4"):
        kernels.find("nuksm-5.4")


def test_what_runs_races_is_known_by_its_name() -> None:
    assert kernels.needs_parallel_cpus("nuksm-7.3-kcsan")
    assert not kernels.needs_parallel_cpus("nuksm-7.3-debug")
    assert not kernels.needs_parallel_cpus("/somewhere/nuksm-kcsan")


def test_kernel_of_ours_that_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_build_script(tmp_path, "exit 1", monkeypatch)
    with pytest.raises(kernels.KernelError, match=r"build\.sh lab 6\.12 failed"):
        kernels.find("nuksm")


def test_system_without_the_package_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(kernels.KernelError, match="KERNEL=/path/to/vmlinuz"):
        kernels.find(None)
