# SPDX-License-Identifier: GPL-2.0-only
"""scripts/setup.sh: what it installs, whom it waits for, and what ends with it."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from scratch import WAITS, environment, put

from nuksmlab import paths, wait

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


def test_a_cache_is_named_from_where_set_up_is_called(tmp_path: Path) -> None:
    shows = f'echo "$cache" >{tmp_path}/said'
    assert set_up(tmp_path / "one", shows, NUKSM_CACHE="relative") == 0
    assert (tmp_path / "said").read_text() == f"{Path.cwd()}/relative\n"
