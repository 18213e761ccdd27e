# SPDX-License-Identifier: GPL-2.0-only
"""The shell's scripts and the makefiles: what is left of what is interrupted, and
that what is in the environment does not change what is built."""

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nuksmlab import paths, wait

KERNEL = paths.REPOSITORY / "kernel"
# Says that it runs, and goes on until it is told to end.
WAITS = """#!/bin/sh
{before}echo $$ >{place}/new; mv {place}/new {place}/pid
until [ -e {place}/end ]; do sleep 0.05; done
exit 1
"""
# SIGTERM comes at once when the build was forked, before anything is noted of it.
ENDED_AT_THE_FORK = """
set -T
trap 'if [[ "$* $BASH_COMMAND" = steps*"set +m" ]]
then trap - DEBUG; kill $$; fi' DEBUG
"""


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def environment(place: Path, **more: str) -> dict[str, str]:
    """Programs of our own in place/bin come first."""
    return {**os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}", **more}


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """All that kernel/build.sh wants, with nothing in it; its make never ends."""
    source = tmp_path / "cache" / "source" / "linux-6.12-1"
    put(source / "Kbuild", "")
    base = tmp_path / "kernel" / "base" / "6.12"
    put(base / "pin", f"{hashlib.sha256().hexdigest()}  Kbuild\n")
    put(base.parent / "lab.config", "")
    put(tmp_path / "kernel" / "apt.sh", "#!/bin/sh\necho Version: 1\n")
    for name in ("fixes/6.12", "hooks/6.12", "files/mm", "files/include"):
        put(tmp_path / "kernel" / name / "1.patch", "")
    put(tmp_path / "bin" / "patch", "#!/bin/sh\nexec cat\n")
    configured = tmp_path / "cache" / "work" / "6.12-lab" / "output" / ".config"
    configures = f"case $* in *allnoconfig) exec touch {configured} ;; esac\n"
    put(tmp_path / "bin" / "make", WAITS.format(place=tmp_path, before=configures))
    yield tmp_path
    (tmp_path / "end").touch()


def waits_for(lock: Path) -> bool:
    """Whether anybody does, by what the kernel says of all locks."""
    inode = f":{lock.stat().st_ino} "
    return any(
        "->" in line and inode in line
        for line in Path("/proc/locks").read_text().splitlines()
    )


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


def ends(tree: Path, command: Sequence[str | Path]) -> None:
    """SIGTERM to it alone, while what it has started goes on, and then ends."""
    script = subprocess.Popen(command, env=environment(tree))
    pid = tree / "pid"
    wait.until(pid.exists, lambda: f"what {command[0]} starts")
    script.terminate()
    pid.unlink()
    (tree / "end").touch()
    assert script.wait() == 128 + signal.SIGTERM
    (tree / "end").unlink()


def test_a_script_that_is_ended_does_so_after_what_it_has_started(tree: Path) -> None:
    """So nothing that goes on works on what was removed."""
    for name in ("kernel/check.sh", "kernel/moved.sh", "kernel/series.sh"):
        put(tree / "kernel" / "build.sh", WAITS.format(place=tree, before=""))
        script = shutil.copy(paths.REPOSITORY / name, tree / name)
        ends(tree, [script, "6.12", *(["6.12"] if "moved" in name else [])])
    name = "packaging/deb.sh"
    put(tree / "bin" / "dpkg-buildpackage", WAITS.format(place=tree, before=""))
    shutil.copytree(paths.REPOSITORY / "packaging", tree / "packaging")
    shutil.copy(paths.REPOSITORY / "Cargo.toml", tree)
    ends(tree, [tree / name])


@pytest.mark.parametrize("part", ["tenant", "fuzz", "plugin", "workloads"])
def test_a_program_that_was_half_written_is_made_again(
    tmp_path: Path, part: str
) -> None:
    lab, out = tmp_path / "lab", tmp_path / "out"
    for name in ("tenant", "fuzz", "plugin", "workloads"):
        shutil.copytree(paths.REPOSITORY / "lab" / name, lab / name)
    last = 'while [ "$1" != -o ]; do shift; done; echo half >"$2"'
    killed = put(tmp_path / "cc", f"#!/bin/sh\n{last}; kill -9 $PPID\n")
    whole = put(tmp_path / "cc2", f'#!/bin/sh\n{last}; echo whole >>"$2"\n')
    make = ["make", "-C", str(lab / part), f"OUT={out}"]
    done = subprocess.run([*make, f"CC={killed}"], check=False)
    assert done.returncode == -signal.SIGKILL
    subprocess.run([*make, f"CC={whole}"], check=True)
    for program in out.iterdir():
        assert program.read_text() == "half\nwhole\n"


# Makes environments with a pip that notes what it does, and may be interrupted.
PYTHON = """#!/bin/sh
[ "$1" = -m ] || { echo "Python $VERSION"; exit; }
for place; do :; done
mkdir -p "$place/bin" && cp "$0" "$place/bin/python"
cat >"$place/bin/pip" <<END
#!/bin/sh
[ "\\$1" = install ] || exit 0
[ ! -e $place/half ] && echo anew >>$SAID || echo half >>$SAID
touch $place/half
$PIP
END
chmod +x "$place/bin/pip"
"""


def set_up(checkout: Path, call: str, **settings: str) -> int:
    """One function of scripts/setup.sh, where nothing else of it is done."""
    functions, main, _ = (
        (paths.REPOSITORY / "scripts" / "setup.sh")
        .read_text()
        .partition("# One at a time;")
    )
    assert main
    script = put(checkout / "scripts" / "setup.sh", f"{functions}\n{call}\n")
    (checkout / "build").mkdir(exist_ok=True)
    known = environment(checkout.parent, **settings)
    ended = subprocess.run(
        [script, "test"], env=known, timeout=wait.HANG_SECONDS, check=False
    )
    return ended.returncode


def test_python_s_environment_is_made_anew_when_anything_has_changed(
    tmp_path: Path,
) -> None:
    said = tmp_path / "said"
    put(tmp_path / "bin" / "python3", PYTHON)
    wanted = put(tmp_path / "one" / "lab" / "pyproject.toml", "it")

    def is_made(checkout: str, version: str = "3.11", pip: str = "exit 0") -> bool:
        said.write_text("")
        made = set_up(
            tmp_path / checkout,
            "set_up_python",
            VERSION=version,
            PIP=pip,
            SAID=str(said),
        )
        assert bool(made) == (pip == "exit 1")
        assert said.read_text() in ("", "anew\n")
        return said.read_text() != ""

    assert is_made("one", pip="exit 1")
    assert is_made("one")
    assert not is_made("one")
    assert is_made("one", version="3.12")
    wanted.write_text("other")
    assert is_made("one", version="3.12", pip=f"echo later >{wanted}")
    assert is_made("one", version="3.12")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert is_made("two", version="3.12")
    assert not is_made("one", version="3.12")
    link = tmp_path / "two" / "build" / "venv"
    own = link.resolve()
    assert own.parent == link.parent
    link.unlink()
    link.symlink_to(tmp_path / "one" / "build" / "venv")
    assert not is_made("two", version="3.12")
    assert link.resolve() == own
    link.unlink()
    link.mkdir()
    assert not is_made("two", version="3.12")
    assert link.resolve() == own
    assert len(list((tmp_path / "one" / "build").glob(".venv-*/bin/pip"))) == 4


INSTALLS = "; ".join(
    f"{name}() {{ :; }}"
    for name in ("may_install", "update_lists", "find_missing", "dpkg")
)


@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize(
    ("function", "command", "error"),
    [
        ("update_lists", "apt-get update -qq", "Could not get lock /var/lib/apt/lock"),
        # What he has not configured yet looks as if he had been interrupted.
        (
            "configure_the_rest",
            "dpkg --force-confdef --force-confold --configure -a",
            "dpkg frontend lock was locked by another process with pid 1",
        ),
        (
            f"{INSTALLS}; missing=(a); install_missing",
            "apt-get install -y -qq -o DPkg::Lock::Timeout=-1 "
            "--no-install-recommends a",
            "Could not get lock /var/cache/apt/archives/lock",
        ),
    ],
)
def test_who_else_installs_packages_is_waited_for(
    tmp_path: Path, function: str, command: str, error: str, *, locked: bool
) -> None:
    tried = tmp_path / "tried"
    said = error if locked else "no network"
    ends = f'[ "$(wc -l <{tried})" = 3 ] || {{ echo "E: {said}" >&2; exit 100; }}'
    program, _, arguments = command.partition(" ")
    put(tmp_path / "bin" / program, f"#!/bin/sh\necho $* >>{tried}\n{ends}\n")
    put(tmp_path / "bin" / "sleep", "#!/bin/sh\n")
    put(tmp_path / "bin" / "sudo", '#!/bin/sh\nexec "$@"\n')
    assert set_up(tmp_path / "one", function) == (0 if locked else 100)
    assert tried.read_text() == f"{arguments}\n" * (3 if locked else 1)


# SIGTERM comes at once when pip was forked.
ENDED_AT_PIP = """
set -T
trap 'if [ "${FUNCNAME-} $BASH_COMMAND" = "set_up_python set +m" ]
then trap - DEBUG; kill $$; fi' DEBUG
"""


@pytest.mark.parametrize("when", ["at the fork", signal.SIGTERM, signal.SIGKILL])
def test_pip_ends_with_set_up(tmp_path: Path, when: str | signal.Signals) -> None:
    put(tmp_path / "bin" / "python3", PYTHON)
    put(tmp_path / "one" / "lab" / "pyproject.toml", "it")
    pid = tmp_path / "pid"
    at_once = isinstance(when, str)
    kills = "" if at_once else f"kill -{int(when)} $PPID;"
    known = {
        "VERSION": "3",
        "PIP": f"echo $$ >{pid}; {kills} exec sleep 1000",
        "SAID": str(tmp_path / "said"),
    }
    if at_once:
        known["BASH_ENV"] = str(put(tmp_path / "told", ENDED_AT_PIP))
    status = set_up(tmp_path / "one", "set_up_python", **known)
    killed = when == signal.SIGKILL
    assert status == (-signal.SIGKILL if killed else 128 + signal.SIGTERM)
    if not at_once:  # else it may not have come to write it down
        one = Path(f"/proc/{pid.read_text().strip()}/exe")
        wait.until(lambda: not one.exists(), lambda: "pip's end")


def test_who_comes_after_a_set_up_that_was_killed_waits_for_its_pip(
    tree: Path,
) -> None:
    put(tree / "bin" / "python3", PYTHON)
    put(tree / "one" / "lab" / "pyproject.toml", "it")
    lock = put(tree / "one" / "build" / ".setup.lock", "")
    pip = WAITS.format(place=tree, before="trap '' TERM\n").partition("\n")[2]
    known = {"VERSION": "3", "PIP": f"kill -KILL $PPID\n{pip}", "SAID": f"{tree}/said"}
    call = f"exec 9>{lock}; flock 9; set_up_python"
    assert set_up(tree / "one", call, **known) == -signal.SIGKILL
    wait.until((tree / "pid").exists, lambda: "pip")
    assert subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 1
    (tree / "end").touch()
    subprocess.run(["flock", lock, "true"], check=True)


def test_lists_that_cannot_be_updated_are_no_reason_to_try_nothing(
    tmp_path: Path,
) -> None:
    tries = f'echo "$1" >>{tmp_path}/tried; [ "$1" != update ]'
    put(tmp_path / "bin" / "apt-get", f"#!/bin/sh\n{tries}\n")
    put(tmp_path / "bin" / "dpkg", "#!/bin/sh\n")
    others = 'may_install() { :; }; as_root() { "$@"; }; find_missing() { :; }'
    assert set_up(tmp_path / "one", f"{others}; missing=(a); install_missing") == 0
    assert (tmp_path / "tried").read_text() == "update\ninstall\n"


def test_what_installing_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    """A daemon, which has what apt had."""
    put(
        tmp_path / "bin" / "apt-get", f"#!/bin/sh\nsleep 1000 & echo $! >{tmp_path}/pid"
    )
    call = 'as_root() { "$@"; }; update_lists'
    assert set_up(tmp_path / "one", call) == 0
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("refused", ["-v", "-n"])
def test_sudo_may_need_no_password_or_ask_for_one(tmp_path: Path, refused: str) -> None:
    put(tmp_path / "bin" / "id", "#!/bin/sh\necho 1000\n")
    put(tmp_path / "bin" / "sudo", f'#!/bin/sh\n[ "$1" != {refused} ]\n')
    assert set_up(tmp_path / "one", "may_install") == 0


def test_a_package_that_is_only_unpacked_is_missing(tmp_path: Path) -> None:
    states = r" installed gcc \n unpacked shellcheck \n half-configured bc \n"
    put(tmp_path / "bin" / "dpkg-query", f"#!/bin/sh\nprintf '{states}'\n")
    half_done = f'find_missing; echo " ${{missing[*]}} " >{tmp_path}/said'
    assert set_up(tmp_path / "one", half_done) == 0
    said = (tmp_path / "said").read_text()
    assert " shellcheck " in said and " bc " in said and " gcc " not in said


def test_what_is_installed_was_announced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first lists may know another name."""
    put(tmp_path / "bin" / "apt-get", f"#!/bin/sh\necho $* >>{tmp_path}/tried\n")
    put(tmp_path / "bin" / "dpkg", "#!/bin/sh\n")
    others = (
        'may_install() { :; }; as_root() { "$@"; }; find_missing() { missing=(b); }'
    )
    assert set_up(tmp_path / "one", f"{others}; missing=(a); install_missing") == 0
    assert capfd.readouterr().out.splitlines() == [
        "to be installed by apt: a",
        "to be installed, after all: b",
    ]
    _, installed = (tmp_path / "tried").read_text().splitlines()
    assert installed.endswith(" b")


@pytest.mark.parametrize(
    ("name", "arguments", "lock"),
    [
        ("kernel/build.sh", "lab", "cache/source/linux-6.12-1.lock"),
        ("kernel/build.sh", "lab", "cache/work/6.12-lab/lock"),
        ("kernel/apt.sh", "6.12 update", "cache/apt.lock"),
        ("scripts/setup.sh", "test", "build/.setup.lock"),
    ],
)
def test_who_waits_for_a_lock_ends_when_told(
    tree: Path, name: str, arguments: str, lock: str
) -> None:
    text = (paths.REPOSITORY / name).read_text()
    script = put(tree / name, text)
    path = put(tree / lock, "")
    known = environment(tree, NUKSM_CACHE=str(tree / "cache"))
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = subprocess.Popen([script, *arguments.split()], env=known)
        wait.until(lambda: waits_for(path), lambda: "who waits")
        waiting.terminate()
        assert waiting.wait(wait.HANG_SECONDS) in (
            -signal.SIGTERM,
            128 + signal.SIGTERM,
        )
        wait.until(lambda: not waits_for(path), lambda: "the end of who waited")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("kernel/build.sh", "lab"), ("kernel/apt.sh", "6.12 update")),
        ("scripts/setup.sh", "test"),
    ],
)
def test_a_lock_that_cannot_be_had_is_not_waited_for(
    tree: Path, name: str, arguments: str
) -> None:
    """As on some file systems."""
    script = put(tree / name, (paths.REPOSITORY / name).read_text())
    put(tree / "bin" / "flock", "#!/bin/sh\nexit 66\n")
    known = environment(tree, NUKSM_CACHE=str(tree / "cache"))
    ended = subprocess.run(
        [script, *arguments.split()], env=known, timeout=wait.HANG_SECONDS, check=False
    )
    assert ended.returncode == 66


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("kernel/build.sh", "lab"), ("kernel/apt.sh", "6.12 update")),
        ("scripts/setup.sh", "test"),
    ],
)
def test_who_has_no_home_is_told_what_to_set(
    tree: Path, name: str, arguments: str
) -> None:
    script = put(tree / name, (paths.REPOSITORY / name).read_text())
    known = environment(tree)
    for variable in ("HOME", "XDG_CACHE_HOME", "NUKSM_CACHE"):
        known.pop(variable, None)
    ended = subprocess.run(
        [script, *arguments.split()], env=known, stderr=subprocess.PIPE, check=False
    )
    assert ended.returncode and b"set it, or NUKSM_CACHE" in ended.stderr


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
    put(
        builds.tree / "bin" / "cp",
        '#!/bin/sh\n/bin/cp "$@" || [ "$1" = tree/Kbuild ]\n',
    )
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


def test_set_up_refuses_a_path_that_makefiles_cannot_have(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for letter in " \t\n$:;%'\",&*":
        place = tmp_path / f"a{letter}b"
        assert set_up(place, "true") == 1
        assert f"'{place}' has '{letter}' in it" in capfd.readouterr().err
    assert set_up(tmp_path / "a-b_c@2~.ö", "true") == 0
    assert set_up(tmp_path / "c", "true", NUKSM_CACHE=f"{tmp_path}/d e") == 1
    assert "set NUKSM_CACHE to another place" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("kernel/apt.sh", ["6.12", "show"]), ("kernel/build.sh", ["lab"])),
        *(("kernel/check.sh", []), ("kernel/moved.sh", ["6.12", "7.3"])),
        *(("kernel/series.sh", []), ("packaging/deb.sh", []), (".ci/run", [])),
        *(("packaging/install.sh", []), ("scripts/setup.sh", ["test"])),
    ],
)
def test_a_script_finds_its_own_place_whatever_shells_look_for_others_in(
    tmp_path: Path, name: str, arguments: list[str]
) -> None:
    lines = (paths.REPOSITORY / name).read_text().splitlines()
    (goes,) = (number for number, line in enumerate(lines) if 'cd "$(dirname' in line)
    shows = 'echo "${kernel-${repository-$PWD}}"'
    put(tmp_path / name, "\n".join([*lines[: goes + 1], shows, ""]))
    said = subprocess.run(
        [name, *arguments],
        cwd=tmp_path,
        env=environment(tmp_path, CDPATH="."),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    own = tmp_path / "kernel" if name.startswith("kernel") else tmp_path
    assert said.stdout == f"{own}\n"


def test_a_cache_is_named_from_where_set_up_is_called(tmp_path: Path) -> None:
    shows = f'echo "$cache" >{tmp_path}/said'
    assert set_up(tmp_path / "one", shows, NUKSM_CACHE="relative") == 0
    assert (tmp_path / "said").read_text() == f"{Path.cwd()}/relative\n"


def test_the_names_of_hosts_are_no_settings(tmp_path: Path) -> None:
    shutil.copy(paths.REPOSITORY / "Makefile", tmp_path)
    known = environment(tmp_path, HOST="big", NAME="small", CDPATH=".")

    def shown(*arguments: str) -> str:
        command = ["make", "-n", "paper", "mutants", "READY=", *arguments]
        said = subprocess.run(
            command, cwd=tmp_path, env=known, capture_output=True, check=True
        )
        return said.stdout.decode()

    assert "--host" not in shown() and "small" not in shown()
    assert "--host" in shown("HOST=1") and "cold-payers" in shown("NAME=cold-payers")


def test_cargo_builds_where_the_program_is_looked_for(tmp_path: Path) -> None:
    shutil.copy(paths.REPOSITORY / "Makefile", tmp_path)
    said = 'echo "$CARGO_TARGET_DIR ${CARGO_BUILD_TARGET-none} ${CDPATH-none}" >said'
    put(tmp_path / "bin" / "cargo", f"#!/bin/sh\n{said}\n")
    others = {
        "CARGO_TARGET_DIR": "/elsewhere",
        "CARGO_BUILD_TARGET": "any",
        "CDPATH": ".",
    }
    known = environment(tmp_path, **others)
    subprocess.run(["make", "program"], cwd=tmp_path, env=known, check=True)
    assert (tmp_path / "said").read_text() == f"{tmp_path}/target none none\n"


# What targets need that is done before.
NEEDED = (
    *("setup", "setup-demo", "setup-deb", "setup-kernel", "setup-kernel-deb"),
    *("build", "build-lab", "program"),
)


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize(
    "target",
    [
        *("test", "test-all", "demo", "build", "build-tenant", "program", "deb"),
        *("engine-um", "engine-2", "engine-looks", "engine-program", "engine-4"),
        *("engine-tiers", "engine-debug", "guest-2", "guest-4", "vms", "counter"),
        *("paper", "stress", "bench", "mutants", "cost", "selftests-some", "package"),
        *("kernel", "kernel-deb", "setup", "setup-kernel", "setup-kernel-deb"),
    ],
)
def test_what_a_target_has_started_ends_with_its_make(
    tmp_path: Path, target: str, *, killed: bool
) -> None:
    """Though that is killed, which tells nobody."""
    shutil.copy(paths.REPOSITORY / "Makefile", tmp_path)
    pid = tmp_path / "pid"
    notes = f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 1000"
    for program in (
        *("build/venv/bin/python", "kernel/build.sh", "scripts/setup.sh"),
        *("packaging/deb.sh", "bin/cargo"),
    ):
        put(tmp_path / program, f"#!/bin/sh\n{notes}\n")
    put(tmp_path / "lab" / "tenant" / "Makefile", f"all:\n\t{notes}\n")
    done = [option for name in NEEDED if name != target for option in ("-o", name)]
    settings = ["READY=", "HARDWARE=any", "KERNEL=any", "CONFIG_FILE=any"]
    with subprocess.Popen(
        ["make", target, *settings, *done], cwd=tmp_path, env=environment(tmp_path)
    ) as make:
        wait.until(pid.exists, lambda: "what it starts")
        if killed:
            make.kill()
        else:
            make.terminate()
    one = Path(f"/proc/{pid.read_text().strip()}/exe")
    if killed:
        wait.until(lambda: not one.exists(), lambda: "its end")
    assert not one.exists()
