# SPDX-License-Identifier: GPL-2.0-only
"""Finds, fetches or builds the kernel that the lab boots.

A stock kernel's package is unpacked into the cache, never installed: the host
keeps its own kernel and boot loader settings.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nuksmlab import guard, paths

PACKAGE = re.compile(r"^linux-image-(6\.12\.[0-9]+\+deb[0-9]+-amd64)$")
ENGINE = {"nuksm": "lab", "nuksm-debug": "debug", "nuksm-kcsan": "kcsan"}
HELP = (
    "Get one by hand and say where it is: make demo KERNEL=/path/to/vmlinuz\n"
    "(its modules are looked for in lib/modules beside the boot directory;\n"
    "it needs KSM, NUMA and the 9p file system, as distributions' kernels for\n"
    "servers and desktops have, but those for the cloud have not)."
)


class KernelError(Exception):
    """No kernel to boot."""


def sort_key(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", release))


def newest_release(search_output: str) -> str | None:
    """The newest release among the lines of `apt-cache search`."""
    names = (line.split(" ", 1)[0] for line in search_output.splitlines())
    releases = [match[1] for name in names if (match := PACKAGE.match(name))]
    return max(releases, key=sort_key, default=None)


def store() -> Path:
    return paths.cache() / "kernels"


def image(release: str) -> Path:
    return store() / release / "boot" / f"vmlinuz-{release}"


def cached() -> Path | None:
    """The newest kernel that was fetched before."""
    entries = store().iterdir() if store().is_dir() else iter(())
    releases = [entry.name for entry in entries if image(entry.name).is_file()]
    return image(max(releases, key=sort_key)) if releases else None


@contextmanager
def alone(name: str) -> Iterator[None]:
    """One process at a time, as with flock(1) in kernel/build.sh."""
    paths.cache().mkdir(parents=True, exist_ok=True)
    with (paths.cache() / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def update_package_lists() -> None:
    """As root, or by a sudo that asks nothing; else the lists stay as they are."""
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if not as_root or shutil.which("sudo"):
        with alone("apt.lock"):
            subprocess.run([*as_root, "apt-get", "update", "-qq"], check=False)


def download(directory: Path) -> str:
    """Fetches the newest kernel's package into the directory; tells its release."""
    search = ["apt-cache", "search", "--names-only", r"^linux-image-6\.12\."]
    found = subprocess.run(search, capture_output=True, text=True, check=True)
    release = newest_release(found.stdout)
    if release is None:
        raise KernelError("this system's package lists have no linux-image-6.12 kernel")
    print(f"fetching the package linux-image-{release}", flush=True)
    fetch = subprocess.run(
        ["apt-get", "download", "-qq", f"linux-image-{release}"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if fetch.returncode != 0:
        raise KernelError(f"cannot download linux-image-{release}: {fetch.stderr}")
    return release


def unpack(directory: Path) -> None:
    (package,) = directory.glob("*.deb")
    subprocess.run(["dpkg", "-x", package, directory / "root"], check=True)


def fetch() -> Path:
    """Downloads the newest stock kernel into the cache."""
    if not shutil.which("apt-get"):
        raise KernelError("this system has no apt-get to fetch a Debian kernel with")
    store().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store(), prefix=".new-") as name:
        directory = Path(name)
        try:
            release = download(directory)
        except KernelError:
            # Lists that are missing or out of date are the usual reason.
            update_package_lists()
            release = download(directory)
        unpack(directory)
        root = directory / "root"
        depmod = ["depmod", "-b", str(root), release]
        sbin = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        subprocess.run(depmod, env=sbin, check=True)
        root.rename(store() / release)
    return image(release)


def build(config: str) -> Path:
    """The engine's own kernel, from the cache or built now; its progress is shown."""
    script = str(paths.REPOSITORY / "kernel" / "build.sh")
    building = guard.start([script, config], grace=30, stdout=subprocess.PIPE)
    try:
        assert building.stdout
        said = building.stdout.read().decode()
    finally:
        guard.end(building)
    if building.returncode != 0:
        raise KernelError(f"kernel/build.sh {config} failed")
    return Path(said.strip())


def needs_parallel_cpus(given: str | None) -> bool:
    """It looks for races, which are none where CPUs take turns."""
    return given == "nuksm-kcsan"


def find(given: str | None) -> Path:
    """The kernel to boot: the one asked for, a cached one, or one fetched now."""
    if given in ENGINE:
        return build(ENGINE[given])
    if given:
        path = Path(given).absolute()
        if not path.is_file():
            raise KernelError(f"KERNEL={given}: there is no such file")
        if not os.access(path, os.R_OK):
            raise KernelError(f"KERNEL={given}: this user may not read it")
        return path
    try:
        with alone("stock.lock"):
            return cached() or fetch()
    except KernelError as error:
        raise KernelError(f"{error}\n{HELP}") from error
