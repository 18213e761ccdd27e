# SPDX-License-Identifier: GPL-2.0-only
"""Finds, fetches or builds the kernel that the lab boots.

A stock kernel's packages are unpacked into the cache, never installed: the host
keeps its own kernel and boot loader settings.

Kernels have names: `stock` is Debian's, `nuksm` ours, `nuksm-debug` and `nuksm-kcsan`
ours that check themselves. A version of Linux after the first word is one of the
folders of kernel/base: `stock-7.3`, `nuksm-7.3`, `nuksm-7.3-debug`.
"""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nuksmlab import guard, paths
from nuksmlab.alone import alone

DEFAULT = "6.12"
NAME = re.compile(r"(nuksm|stock)(?:-([0-9]+\.[0-9]+))?(?:-(debug|kcsan))?")
HELP = (
    "Get one by hand and say where it is: make demo KERNEL=/path/to/vmlinuz\n"
    "(its modules are looked for in lib/modules beside the boot directory;\n"
    "it needs KSM, NUMA and the 9p file system, as distributions' kernels for\n"
    "servers and desktops have, but those for the cloud have not)."
)


class KernelError(Exception):
    """No kernel to boot."""


@dataclass(frozen=True)
class Named:
    """A kernel with a name: stock, or a configuration of kernel/build.sh."""

    version: str
    config: str | None


def teach() -> str:
    """Which names there are."""
    base = paths.REPOSITORY / "kernel" / "base"
    newer = sorted({entry.name for entry in base.iterdir() if entry.is_dir()})
    newer.remove(DEFAULT)
    return "names are stock, nuksm, nuksm-debug, nuksm-kcsan" + "".join(
        f"; stock-{version}, nuksm-{version}, nuksm-{version}-debug, and so on"
        for version in newer
    )


def named(given: str) -> Named | None:
    """What a name stands for; None if it is none."""
    match = NAME.fullmatch(given)
    if not match or (match[1] == "stock" and match[3]):
        return None
    version = match[2] or DEFAULT
    if not (paths.REPOSITORY / "kernel" / "base" / version).is_dir():
        raise KernelError(
            f"KERNEL={given}: there is no kernel/base/{version}; {teach()}"
        )
    return Named(version, None if match[1] == "stock" else match[3] or "lab")


def sort_key(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", release))


def newest_release(search_output: str, version: str) -> tuple[str | None, list[str]]:
    """The newest release among the lines of `apt-cache search`, and its packages.

    Debian 12's is one package; later ones have image and modules in their own.
    """
    names = {line.split(" ", 1)[0] for line in search_output.splitlines()}
    form = re.compile(rf"linux-image-({re.escape(version)}\.[0-9]+\+deb[0-9]+-amd64)")
    releases = [match[1] for name in names if (match := form.fullmatch(name))]
    release = max(releases, key=sort_key, default=None)
    kinds = ("linux-image", "linux-binary", "linux-modules")
    packages = [f"{kind}-{release}" for kind in kinds]
    return release, [package for package in packages if package in names]


def store() -> Path:
    return paths.cache() / "kernels"


def image(release: str) -> Path:
    return store() / release / "boot" / f"vmlinuz-{release}"


def cached(version: str) -> Path | None:
    """The newest kernel of that version that was fetched before."""
    entries = store().glob(f"{version}.*") if store().is_dir() else iter(())
    releases = [entry.name for entry in entries if image(entry.name).is_file()]
    return image(max(releases, key=sort_key)) if releases else None


def apt(
    version: str, *what: str, directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """For packages of that version of Linux: see kernel/apt.sh."""
    script = paths.REPOSITORY / "kernel" / "apt.sh"
    return subprocess.run(
        [script, version, *what],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


def download(version: str, directory: Path) -> str:
    """Fetches the newest kernel's packages into the directory; tells its release."""
    pattern = rf"^linux-(image|binary|modules)-{re.escape(version)}\."
    found = apt(version, "search", "--names-only", pattern)
    release, packages = newest_release(found.stdout, version)
    if release is None:
        raise KernelError(f"the package lists have no linux-image-{version} kernel")
    print(f"fetching the package linux-image-{release}", flush=True)
    fetched = apt(version, "download", *packages, directory=directory)
    if fetched.returncode != 0:
        raise KernelError(f"cannot download linux-image-{release}: {fetched.stderr}")
    return release


def unpack(directory: Path, release: str) -> None:
    root = directory / "root"
    for package in directory.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, root], check=True)
    there = root / "boot" / f"vmlinuz-{release}"
    if not there.exists():  # newer packages have all in one place
        there.parent.mkdir(exist_ok=True)
        there.hardlink_to(root / "usr/lib/modules" / release / "vmlinuz")
        (root / "lib").symlink_to("usr/lib")


def fetch(version: str) -> Path:
    """Downloads the newest stock kernel of that version into the cache."""
    if not shutil.which("apt-get"):
        raise KernelError("this system has no apt-get to fetch a Debian kernel with")
    store().mkdir(parents=True, exist_ok=True)
    for left in store().glob(".new-*"):  # by who was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=store(), prefix=".new-") as name:
        directory = Path(name)
        try:
            release = download(version, directory)
        except KernelError:
            # Lists that are missing or out of date are the usual reason.
            apt(version, "update")
            release = download(version, directory)
        unpack(directory, release)
        root = directory / "root"
        depmod = ["depmod", "-b", str(root), release]
        sbin = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        subprocess.run(depmod, env=sbin, check=True)
        root.rename(store() / release)
    return image(release)


def build(config: str, version: str = DEFAULT, tree: Path | None = None) -> Path:
    """The engine's own kernel, from the cache or built now; its progress is shown.

    It is made of what is in the repository, or in a tree that has a changed copy.
    """
    script = str((tree or paths.REPOSITORY) / "kernel" / "build.sh")
    building = guard.start([script, config, version], grace=30, stdout=subprocess.PIPE)
    try:
        assert building.stdout
        said = building.stdout.read().decode()
    finally:
        guard.end(building)
    if building.returncode != 0:
        raise KernelError(f"kernel/build.sh {config} {version} failed")
    return Path(said.strip())


def needs_parallel_cpus(given: str | None) -> bool:
    """It looks for races, which are none where CPUs take turns."""
    name = named(given or "stock")
    return name is not None and name.config == "kcsan"


def find(given: str | None) -> Path:
    """The kernel to boot: the one asked for, a cached one, or one fetched now."""
    name = named(given or "stock")
    if name and name.config:
        return build(name.config, name.version)
    if given and not name:
        path = Path(given).absolute()
        if not path.is_file():
            raise KernelError(
                f"KERNEL={given}: there is no such file, nor such a name; {teach()}"
            )
        if not os.access(path, os.R_OK):
            raise KernelError(f"KERNEL={given}: this user may not read it")
        return path
    version = name.version if name else DEFAULT
    there = cached(version)
    if there:
        return there
    try:
        with alone(store()):
            return cached(version) or fetch(version)
    except KernelError as error:
        raise KernelError(f"{error}\n{HELP}") from error
