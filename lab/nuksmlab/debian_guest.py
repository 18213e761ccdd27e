# SPDX-License-Identifier: GPL-2.0-only
"""A small Debian user space for guests, of packages that are installed here."""

import re
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nuksmlab import initramfs

ROOTS = ("bash", "coreutils", "python3-minimal")
# Needed to install packages, not to run them.
LEFT_OUT = {"dpkg", "debconf"}
NO_USE = re.compile(r"/usr/share/(doc|man|locale|info|lintian|bug)/|/gconv/|\.pyc$")


class DebianError(Exception):
    """This is no Debian, or one without the packages."""


def installed() -> dict[str, str]:
    """What each package depends on, by its name."""
    form = "${Package}\t${db:Status-Status}\t${Pre-Depends}, ${Depends}\n"
    try:
        text = subprocess.check_output(["dpkg-query", "-W", "-f", form], text=True)
    except FileNotFoundError as error:
        raise DebianError("guests are made of Debian packages, by dpkg") from error
    lines = (line.split("\t") for line in text.splitlines())
    return {name: needs for name, state, needs in lines if state == "installed"}


def closure(known: Mapping[str, str], roots: Iterable[str]) -> list[str]:
    """The packages and all that they depend on, sorted."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in found | LEFT_OUT:
            continue
        if name not in known:
            raise DebianError(f"the package {name} is not installed")
        found.add(name)
        for clause in known[name].split(","):
            names = [re.split(r"[ :(]", one.strip())[0] for one in clause.split("|")]
            waiting += [one for one in names if one in known][:1]
    return sorted(found)


def files(packages: Iterable[str]) -> list[Path]:
    """Where they really are: /bin is a link into /usr on a current Debian."""
    text = subprocess.check_output(["dpkg-query", "-L", *packages], text=True)
    listed = {line for line in text.splitlines() if line.startswith("/")}
    paths = (Path(line) for line in listed if not NO_USE.search(line))
    real = {path.parent.resolve() / path.name for path in paths}
    return sorted(path for path in real if path.is_symlink() or path.is_file())


def folders(paths: Iterable[Path]) -> list[Path]:
    """Parents before what is in them."""
    return sorted({parent for path in paths for parent in path.parents[:-1]})


def checksum(paths: Iterable[Path]) -> int:
    """Of the files that the guest reads, too, in their order."""
    result = 0
    for path in paths:
        if path.is_relative_to("/usr") and not path.is_symlink():
            result = zlib.crc32(path.read_bytes(), result)
    return result


def entries(paths: list[Path]) -> Iterator[bytes]:
    for folder in folders(paths):
        yield initramfs.entry(str(folder)[1:], initramfs.FOLDER)
    for path in paths:
        name = str(path)[1:]
        if path.is_symlink():
            target = str(path.readlink()).encode()
            yield initramfs.entry(name, initramfs.LINK, target)
        else:
            mode = initramfs.PROGRAM if path.stat().st_mode & 0o100 else initramfs.FILE
            yield initramfs.entry(name, mode, path.read_bytes())
