# SPDX-License-Identifier: GPL-2.0-only
"""The Debian package under systemd: installed, started, upgraded, removed, purged.

In a clean Debian root (`make package`). The daemon has what its unit leaves it.
"""

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from nuksmlab import paths, wait
from nuksmlab.ksm import STOCK, Ksm
from nuksmlab.tenant import StartTenant, Tenant

pytestmark = pytest.mark.package

UNIT = "nuksm.service"
CONFIG = Path("/etc/nuksm.toml")
OVERRIDES = Path("/run/systemd/system/nuksm.service.d")
SERVE = "[serve]\ninterval = 1\n"
PLACE = "[place]\ninterval = 1\n"
# As if no memory were left, so that ksmd has to hurry.
TUNE = "[tune]\ninterval = 1\nlow-free = 99\nample-free = 100\n"
# A speed that no rule would choose, which has to come back.
FOUND = {"pages_to_scan": 123, "sleep_millisecs": 21}
# What packages leave behind, and what is not of files.
APART = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/tmp",
    "/var/tmp",
    "/var/log",
    "/var/lib/dpkg",
)


def ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def do(*command: str) -> str:
    done = ask(*command)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{journal()}"
    return done.stdout.strip()


def journal() -> str:
    return ask("journalctl", "--no-pager", "--output=cat", "--unit", UNIT).stdout


def shown(name: str) -> str:
    return do("systemctl", "show", "--value", "--property", name, UNIT)


def packages() -> list[Path]:
    """This version, and one to upgrade to."""
    found = sorted((paths.BUILD / "deb").glob("nuksm_*.deb"), key=lambda p: len(p.name))
    assert len(found) == 2, f"{found}: run `make package`"
    return found


def files() -> dict[str, tuple[int, int, int]]:
    """Owner, mode and, of a file, size of all that is on the disk."""
    result = {}
    for top, directories, names in os.walk("/"):
        directories[:] = [d for d in directories if str(Path(top, d)) not in APART]
        directories[:] = [d for d in directories if Path(top, d) != paths.REPOSITORY]
        for path in (Path(top, name) for name in (*directories, *names)):
            status = path.lstat()
            size = 0 if path.is_dir() else status.st_size
            result[str(path)] = (status.st_uid, status.st_mode, size)
    return result


def metrics() -> str:
    with urllib.request.urlopen("http://127.0.0.1:9911/metrics") as answer:
        return str(answer.read().decode())


def purge() -> None:
    ask("dpkg", "--purge", "nuksm")


@pytest.fixture
def installed() -> Iterator[None]:
    do("dpkg", "--install", str(packages()[0]))
    yield
    (OVERRIDES / "test.conf").unlink(missing_ok=True)
    purge()


@pytest.fixture
def found(ksm: Ksm) -> Iterator[Ksm]:
    ksm.set_speed(FOUND)
    ksm.start()
    yield ksm
    ksm.set_speed(STOCK)


def speed(ksm: Ksm) -> dict[str, int]:
    return {name: ksm.read(name) for name in FOUND}


def tuned(ksm: Ksm) -> None:
    """Waits until the daemon has changed the speed."""
    wait.until(lambda: speed(ksm) != FOUND, lambda: f"tuning\n{journal()}")


def configure(text: str) -> None:
    CONFIG.write_text(text)


def test_purging_leaves_the_files_as_they_were() -> None:
    before = files()
    do("dpkg", "--install", str(packages()[0]))
    try:
        assert (shown("UnitFileState"), shown("ActiveState")) == (
            "disabled",
            "inactive",
        )
        assert do("nuksm", "--version").startswith("nuksm ")
        new = files().keys() - before.keys()
        assert "/usr/share/man/man8/nuksm-place.8.gz" in new
        assert "/usr/share/bash-completion/completions/nuksm" in new
        do("systemctl", "enable", UNIT)
        do("dpkg", "--remove", "nuksm")
        assert CONFIG.is_file(), "kept until it is purged"
    finally:
        purge()
    assert files() == before


@pytest.mark.needs(nodes=2)
@pytest.mark.usefixtures("installed")
def test_the_unit_places_other_users_pages_and_serves_metrics(
    start: StartTenant, found: Ksm, nodes: list[int], output: Path
) -> None:
    other_user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    tenants = [
        start(f"vm-{node}", node, equal=100, prefix=other_user) for node in nodes
    ]
    found.merge(sum(tenant.equal_pages for tenant in tenants))
    found.set_speed(FOUND)
    configure(SERVE)
    do("systemctl", "start", UNIT)
    assert "nuksm_place_moved_pages_total" not in metrics(), "not asked for"
    configure(SERVE + PLACE + TUNE)
    do("systemctl", "reload", UNIT)

    def local(tenant: Tenant) -> int:
        return tenant.equal_pages_by_node().get(tenant.spec.node, 0)

    wait.until(
        lambda: all(local(t) * 2 >= t.equal_pages - 1 for t in tenants),
        lambda: f"half of each tenant's pages near\n{journal()}",
    )
    tuned(found)
    assert "nuksm_tenant_mappings{" in metrics()
    security = json.loads(do("systemd-analyze", "security", "--json=short", UNIT))
    (output / "security.json").write_text(json.dumps(security, indent=1))
    score = do("systemd-analyze", "security", UNIT).splitlines()[-1]
    (output / "security.txt").write_text(f"{score}\n")
    do("systemctl", "stop", UNIT)
    assert speed(found) == FOUND
    assert [tenant.bad_pages() for tenant in tenants] == [0] * len(tenants)
    assert shown("Result") == "success"
    # As systemd says of a restriction that it cannot apply.
    assert "not support" not in journal()


@pytest.mark.usefixtures("installed")
def test_a_broken_configuration_is_not_started(ksm: Ksm) -> None:
    ksm.stop()
    configure("[serve]\nport = 1\n")
    assert ask("systemctl", "start", UNIT).returncode != 0
    assert "line 2" in journal()


@pytest.mark.usefixtures("installed")
def test_a_killed_daemon_leaves_the_settings_as_found(found: Ksm) -> None:
    OVERRIDES.mkdir(parents=True, exist_ok=True)
    (OVERRIDES / "test.conf").write_text("[Service]\nRestart=no\n")
    do("systemctl", "daemon-reload")
    configure(SERVE + TUNE)
    do("systemctl", "start", UNIT)
    tuned(found)
    do("systemctl", "kill", "--signal=KILL", UNIT)
    wait.until(lambda: shown("ActiveState") == "failed", journal)
    assert speed(found) == FOUND
    assert "before the daemon that was killed" in journal()


@pytest.mark.usefixtures("installed")
def test_upgrading_restarts_what_ran_and_removing_stops_it(found: Ksm) -> None:
    configure(SERVE + TUNE)
    do("systemctl", "enable", "--now", UNIT)
    tuned(found)
    before = shown("MainPID")
    do("dpkg", "--install", str(packages()[1]))
    assert (shown("ActiveState"), shown("UnitFileState")) == ("active", "enabled")
    assert shown("MainPID") not in (before, "0")
    assert CONFIG.read_text() == SERVE + TUNE
    tuned(found)
    do("dpkg", "--remove", "nuksm")
    assert speed(found) == FOUND
    with pytest.raises(urllib.error.URLError):
        metrics()
    assert CONFIG.read_text() == SERVE + TUNE


@pytest.mark.usefixtures("installed")
def test_upgrading_starts_nothing_that_did_not_run() -> None:
    do("dpkg", "--install", str(packages()[1]))
    assert (shown("ActiveState"), shown("UnitFileState")) == ("inactive", "disabled")
