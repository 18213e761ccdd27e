# SPDX-License-Identifier: GPL-2.0-only
"""Runs a command under systemd, in a Debian root of its own; for use in a machine.

usage: python -m nuksmlab.systemd IMAGE COMMAND...

systemd is the first process of a pid namespace, and otherwise has the machine: all
capabilities, the control groups, KSM and the nodes. Ends with the command's
exit status. What it writes to the root is in memory, and gone then.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

from nuksmlab import paths
from nuksmlab.machine import SAID

PLACE = Path("/run/nuksm-lab")
PASSED_ON = ("NUKSM_OUTPUT", "PYTHONDONTWRITEBYTECODE")
ENTER = """
cd "$1" && mount -t proc proc proc && pivot_root . mnt && umount -l /mnt &&
exec env container=nuksm-lab /lib/systemd/systemd --unit=nuksm-lab.service
"""


def unit(command: list[str]) -> str:
    environment = {name: os.environ[name] for name in PASSED_ON}
    # The root has a Python, the virtual environment what the tests import.
    modules = (str(paths.REPOSITORY / "lab"), sysconfig.get_path("purelib"))
    environment["PYTHONPATH"] = ":".join(modules)
    settings = " ".join(f'"{name}={value}"' for name, value in environment.items())
    return f"""[Unit]
Requires=basic.target
After=basic.target
SuccessAction=exit-force
FailureAction=exit-force

[Service]
Type=oneshot
WorkingDirectory={paths.REPOSITORY}
Environment={settings}
StandardOutput=append:{os.environ["NUKSM_OUTPUT"]}/{SAID}
StandardError=inherit
ExecStart={shlex.join(command)}
"""


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def build_root(image: Path) -> Path:
    """The image, with a writable layer above it, and the repository in its place."""
    for module in ("loop", "squashfs", "overlay"):
        subprocess.run(["modprobe", "-q", module], check=False)  # or built in
    PLACE.mkdir()
    mount("-t", "tmpfs", "nuksm-lab", PLACE)
    lower, upper, work, root = (PLACE / n for n in ("lower", "upper", "work", "root"))
    for directory in (lower, upper, work, root):
        directory.mkdir()
    mount("-o", "loop,ro", "-t", "squashfs", image, lower)
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount("-t", "overlay", "-o", layers, "nuksm-lab", root)
    repository = root / paths.REPOSITORY.relative_to("/")
    repository.mkdir(parents=True)
    mount("--rbind", paths.REPOSITORY, repository)
    return root


def main() -> None:
    image, *command = sys.argv[1:]
    root = build_root(Path(image))
    (root / "etc/systemd/system/nuksm-lab.service").write_text(unit(command))
    spaces = ["--fork", "--pid", "--mount", "--ipc", "--uts"]
    enter = ["sh", "-c", ENTER, "sh", str(root)]
    os.execvp("unshare", ["unshare", *spaces, *enter])


if __name__ == "__main__":
    main()
