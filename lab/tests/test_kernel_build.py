# SPDX-License-Identifier: GPL-2.0-only
"""kernel/build.sh: what is made anew, and what is left of what is interrupted."""

import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from scratch import WAITS, environment, put

from nuksmlab import paths, wait

KERNEL = paths.REPOSITORY / "kernel"


# SIGTERM comes at once when the build was forked, before anything is noted of it.
ENDED_AT_THE_FORK = """
set -T
trap 'if [[ "$* $BASH_COMMAND" = steps*"set +m" ]]
then trap - DEBUG; kill $$; fi' DEBUG
"""


def test_a_build_that_is_ended_as_it_begins_leaves_nothing_running(tree: Path) -> None:
    told = put(tree / "told", ENDED_AT_THE_FORK)
    cache = str(tree / "cache")
    script = shutil.copy(KERNEL / "build.sh", tree / "kernel")
    done = subprocess.run(
        [script, "lab"],
        env=environment(tree, NUKSM_CACHE=cache, BASH_ENV=str(told)),
        stderr=subprocess.PIPE,  # whose end comes when all of it is gone
        timeout=wait.HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert b"building" in done.stderr


def test_a_build_ends_though_apt_waits_for_somebody(tree: Path) -> None:
    script = shutil.copy(KERNEL / "build.sh", tree / "kernel")
    asks = "case $2 in show) echo Version: 1; exit ;; esac\n"
    waits = WAITS.format(place=tree, before="")
    put(tree / "kernel" / "apt.sh", f"#!/bin/sh\n{asks}{waits}")
    known = environment(tree, NUKSM_CACHE=str(tree / "cache"))
    building = subprocess.Popen([script, "lab"], env=known)
    wait.until((tree / "pid").exists, lambda: "apt")
    building.terminate()
    assert building.wait(wait.HANG_SECONDS) == 128 + signal.SIGTERM
    apt = int((tree / "pid").read_text())
    wait.until(lambda: not Path(f"/proc/{apt}").exists(), lambda: "its end")


def test_what_a_build_had_when_it_was_ended_is_gone(tree: Path) -> None:
    script = shutil.copy(KERNEL / "build.sh", tree / "kernel")
    source = tree / "cache" / "source" / "linux-6.12-1"
    work = tree / "cache" / "work" / "6.12-lab"
    known = environment(tree, NUKSM_CACHE=str(tree / "cache"))

    def end(number: int) -> None:
        building = subprocess.Popen([script, "lab"], env=known, start_new_session=True)
        wait.until((tree / "pid").exists, lambda: "the step that never ends")
        if number == signal.SIGKILL:
            for group in (int((tree / "pid").read_text()), building.pid):
                os.killpg(os.getpgid(group), number)
        else:
            building.send_signal(number)
        building.wait(wait.HANG_SECONDS)
        (tree / "pid").unlink()

    end(signal.SIGKILL)
    assert (work / "tree").exists()
    end(signal.SIGTERM)
    assert {one.name for one in work.iterdir()} == {"lock", "build.log"}
    shutil.rmtree(source)
    asks = "case $2 in show) echo Version: 1; exit ;; update) exit ;; esac\n"
    waits = WAITS.format(place=tree, before="")
    put(tree / "kernel" / "apt.sh", f"#!/bin/sh\n{asks}{waits}")
    for number in (signal.SIGKILL, signal.SIGTERM):
        end(number)
        left = {source.with_name(f"{source.name}.new")} if number == 9 else set()
        assert {*source.parent.glob("*")} - {
            source.with_name("linux-6.12-1.lock")
        } == left


def test_a_source_is_fetched_by_one_at_a_time(tree: Path) -> None:
    script = shutil.copy(KERNEL / "build.sh", tree / "kernel")
    source = tree / "cache" / "source" / "linux-6.12-1"
    shutil.rmtree(source)
    alone = f"flock -n {source}.lock true || touch {tree}/alone; exit 1"
    shows = "#!/bin/sh\necho Version: 1\n"
    fetches = f"[ $2 != download ] || {{ {alone}; }}\n"
    put(tree / "kernel" / "apt.sh", shows + fetches)
    known = environment(tree, NUKSM_CACHE=str(tree / "cache"))
    assert subprocess.run([script, "lab"], env=known, check=False).returncode
    assert (tree / "alone").exists()


# Makes a kernel at once: what its Kbuild says, made anew only if that is newer.
MAKES = """#!/bin/bash
set -e
cd {work}
env >environment
case $* in
*allnoconfig) exec touch output/.config ;;
esac
mkdir -p output/arch/x86/boot packages
touch packages/linux-image.deb
if [ -e {place}/waits ]; then
echo $$ >{place}/new; mv {place}/new {place}/pid; exec sleep 1000
fi
[ tree/Kbuild -ot output/object ] || cp tree/Kbuild output/object
cp output/object output/arch/x86/boot/bzImage
"""


def hook(old: str, new: str) -> str:
    return f"--- a/Kbuild\n+++ b/Kbuild\n@@ -1 +1 @@\n-{old}\n+{new}\n"


class Builds:
    """Kernels, one after the other, of what is meanwhile changed in `tree`."""

    def __init__(self, tree: Path) -> None:
        self.tree, self.work = tree, tree / "cache" / "work" / "6.12-lab"
        self.script = shutil.copy(KERNEL / "build.sh", tree / "kernel")
        makes = MAKES.format(work=self.work, place=tree)
        put(tree / "bin" / "make", makes)
        (tree / "bin" / "patch").unlink()
        self.hook = tree / "kernel" / "hooks" / "6.12" / "1.patch"
        self.source = tree / "cache" / "source" / "linux-6.12-1" / "Kbuild"
        self.write_source("one\n")

    def write_source(self, text: str) -> None:
        """Older than all that is made of it, and as it is wanted."""
        put(self.source, text)
        os.utime(self.source, (1, 1))
        digest = hashlib.sha256(self.source.read_bytes()).hexdigest()
        put(self.tree / "kernel" / "base" / "6.12" / "pin", f"{digest}  Kbuild\n")

    def command(self, config: str) -> tuple[list[str | Path], dict[str, str]]:
        more = {"NUKSM_CACHE": str(self.tree / "cache"), "CONFIG_FILE": os.devnull}
        return [self.script, config], environment(self.tree, **more)

    def build(self, config: str = "lab") -> Path:
        command, known = self.command(config)
        built = subprocess.run(command, env=known, stdout=subprocess.PIPE, check=True)
        return Path(built.stdout.decode().strip())

    def kernel(self) -> str:
        return self.build().read_text()

    def kill(self) -> None:
        """While make works."""
        (self.tree / "waits").touch()
        command, known = self.command("lab")
        building = subprocess.Popen(command, env=known, start_new_session=True)
        wait.until((self.tree / "pid").exists, lambda: "make")
        for group in (int((self.tree / "pid").read_text()), building.pid):
            os.killpg(os.getpgid(group), signal.SIGKILL)
        building.wait()
        (self.tree / "waits").unlink()


@pytest.fixture
def builds(tree: Path) -> Builds:
    return Builds(tree)


def test_a_build_makes_what_has_changed_since_the_last_one(builds: Builds) -> None:
    """As make sees by files' times, of which sources have old ones."""
    ours = builds.tree / "kernel" / "files" / "mm"
    for name in ("same.c", "other.c", "gone.c"):
        put(ours / name, "")

    def times() -> dict[str, int]:
        there = (builds.work / "tree" / "mm").iterdir()
        return {one.name: one.stat().st_mtime_ns for one in there}

    builds.hook.write_text(hook("one", "two"))
    assert builds.kernel() == "two\n"
    first = times()
    made = put(builds.work / "output" / "made", "")
    put(ours / "other.c", "more")
    (ours / "gone.c").unlink()
    builds.hook.write_text("")
    assert builds.kernel() == "one\n"
    second = times()
    assert "gone.c" not in second and second["same.c"] == first["same.c"]
    assert second["other.c"] > first["other.c"]
    assert builds.source.stat().st_mtime == 1 and made.exists()


def test_a_build_is_made_anew_by_another_compiler_or_of_another_source(
    builds: Builds,
) -> None:
    builds.kernel()
    for name in ("gcc", "ld"):
        made = put(builds.work / "output" / "made", "")
        put(builds.tree / "bin" / name, "#!/bin/sh\necho another\n")
        builds.kernel()
        assert not made.exists()
    # Its files are as old as the other one's.
    builds.source = builds.tree / "cache" / "source" / "linux-6.12-2" / "Kbuild"
    builds.write_source("newer\n")
    put(builds.tree / "kernel" / "apt.sh", "#!/bin/sh\necho Version: 2\n")
    assert builds.kernel() == "newer\n"


def test_a_build_that_was_killed_is_made_anew(builds: Builds) -> None:
    builds.kernel()
    made = put(builds.work / "output" / "made", "")
    half = put(builds.tree / "cache" / "kernels" / "nuksm-6.12-lab-0.new", "half")
    builds.hook.write_text(hook("one", "two"))
    builds.kill()
    assert made.exists()
    assert builds.kernel() == "two\n"
    assert not made.exists() and not half.exists()


def test_a_build_is_made_anew_when_the_clock_went_back(builds: Builds) -> None:
    builds.kernel()
    ahead = time.time() + 1000
    for one in (*builds.work.glob("output/*"), builds.work / "made-by"):
        os.utime(one, (ahead, ahead))
    builds.hook.write_text(hook("one", "two"))
    assert builds.kernel() == "two\n"


def test_what_was_ever_changed_is_made_again_when_it_is_the_source_s(
    builds: Builds,
) -> None:
    """Though it was not there in between, and its object is the first one's."""
    builds.hook.write_text(hook("one", "two"))
    assert builds.kernel() == "two\n"
    deletes = "--- a/Kbuild\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
    builds.hook.write_text(deletes)
    assert builds.kernel() == "two\n"  # nothing makes it
    builds.hook.write_text("")
    assert builds.kernel() == "one\n"


def test_no_overlay_changes_the_source(builds: Builds) -> None:
    put(builds.tree / "kernel" / "files" / "Kbuild", "ours\n")
    assert builds.kernel() == "ours\n"
    assert builds.source.read_text() == "one\n"


def test_packages_are_those_of_one_build(builds: Builds) -> None:
    builds.work = builds.work.with_name("6.12-deb")
    put(builds.tree / "kernel" / "base" / "deb.config", "")
    makes = MAKES.format(work=builds.work, place=builds.tree)
    put(builds.tree / "bin" / "make", makes.replace("output", "packages/output"))
    assert [one.name for one in builds.build("deb").iterdir()] == ["linux-image.deb"]
    assert not (builds.work / "packages").exists()


def test_other_kernels_settings_do_not_reach_ours(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ("CROSS_COMPILE", "LLVM", "KCFLAGS", "LOCALVERSION", "MAKEFLAGS")
    for name in others:
        monkeypatch.setenv(name, "other")
    builds.kernel()
    said = (builds.work / "environment").read_text()
    assert not [line for line in said.splitlines() if line.startswith(others)]
