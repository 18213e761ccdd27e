# SPDX-License-Identifier: GPL-2.0-only
"""`nuksm serve`: metrics that Prometheus can read, and work by configuration."""

import json
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nuksmlab import paths, wait
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant, Tenant

pytestmark = pytest.mark.anywhere

PAGE = 4096
MEASURED_MIB = 4
MEASURED_SECONDS = 600
SCRAPE_SECONDS = 15
STALLED_SECONDS = 5
# Memory is always short then: it changes ksmd's speed at once.
HASTY_TUNE = "[tune]\ninterval = 1\nlow-free = 99\nample-free = 100\n"
# Of memory, after the first quarter: what an allocator may keep, and no leak.
GROWTH_KIB = 1024

Serve = Callable[..., "Daemon"]
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Daemon:
    def __init__(
        self, config: Path, text: str, log: Path, interval: int, binary: Path
    ) -> None:
        self.port = free_port()
        self.interval = interval
        self.config = config
        self.log = log
        self.write(text)
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [str(binary), "serve", "--config", str(config)],
                stderr=errors,
            )
        self.until(lambda: self.get("/healthz") == 200, "a first collection")

    def write(self, text: str) -> None:
        listen = f'[serve]\nlisten = "127.0.0.1:{self.port}"\n'
        self.config.write_text(f"{listen}interval = {self.interval}\n{text}")

    def reload(self, text: str, answer: str) -> None:
        before = self.log.read_text().count(answer)
        self.write(text)
        self.process.send_signal(signal.SIGHUP)
        self.until(lambda: self.log.read_text().count(answer) > before, answer)

    def until(self, done: Callable[[], bool], what: str) -> None:
        wait.until(done, lambda: f"{what}\n{self.log.read_text()}")

    def get(self, path: str) -> int:
        assert self.process.poll() is None, self.log.read_text()
        try:
            url = f"http://127.0.0.1:{self.port}{path}"
            with urllib.request.urlopen(url) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:  # nobody is there, or who was slow to ask is not waited for
            return 0

    def page(self) -> str:
        end = time.monotonic() + wait.HANG_SECONDS
        while True:
            began = time.monotonic()
            try:
                url = f"http://127.0.0.1:{self.port}/metrics"
                with urllib.request.urlopen(url) as answer:
                    return str(answer.read().decode())
            except OSError:  # who stalls for ten seconds before it asks is not heard
                now = time.monotonic()
                if now - began < STALLED_SECONDS or now > end:
                    raise

    def resident_kib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def scrape(self) -> Series:
        """By Prometheus' own parser: what it cannot read is an error."""
        series: Series = {}
        for family in text_string_to_metric_families(self.page()):
            assert family.documentation and family.type in ("gauge", "counter")
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in series, f"{key} is there twice"
                series[key] = sample.value
        return series

    def tenants(self) -> set[str]:
        name = "nuksm_tenant_mappings"
        return {dict(k[1])["tenant"] for k in self.scrape() if k[0] == name}

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait() == 0, self.log.read_text()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    daemons: list[Daemon] = []

    def start(text: str = "", interval: int = 1, binary: Path = paths.NUKSM) -> Daemon:
        number = len(daemons)
        config, log = tmp_path / f"{number}.toml", tmp_path / f"{number}.log"
        daemons.append(Daemon(config, text, log, interval, binary))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.process.kill()
        daemon.process.wait()


def value(series: Series, name: str, **labels: str) -> float:
    return series[(name, frozenset(labels.items()))]


def test_metrics_agree_with_the_kernel(
    merged: list[Tenant], ksm: Ksm, serve: Serve
) -> None:
    series = serve().scrape()
    assert value(series, "nuksm_saved_bytes") == ksm.read("pages_sharing") * PAGE
    for tenant in merged:
        local = tenant.equal_pages_by_node().get(tenant.spec.node, 0)
        for access, pages in (
            ("local", local),
            ("remote", tenant.equal_pages - local),
        ):
            labels = {"tenant": tenant.spec.name, "pid": str(tenant.pid)}
            name = "nuksm_tenant_mappings"
            assert value(series, name, access=access, **labels) == pages


def test_who_exits_disappears(merged: list[Tenant], serve: Serve) -> None:
    daemon = serve()
    names = {tenant.spec.name for tenant in merged}
    assert daemon.tenants() == names
    merged[0].quit()
    daemon.until(
        lambda: daemon.tenants() == names - {merged[0].spec.name}, "a tenant gone"
    )
    daemon.end()


@pytest.mark.anywhere
def test_beyond_the_biggest_tenants_are_one(
    start: StartTenant, ksm: Ksm, serve: Serve
) -> None:
    big = [start(f"big-{number}", 0, mib=4) for number in (1, 2)]
    small = [start(f"small-{number}", 0, mib=1, seed=2) for number in (1, 2)]
    ksm.merge(sum(tenant.equal_pages for tenant in (*big, *small)))
    assert serve("max-tenants = 2\n").tenants() == {"big-1", "big-2", "other"}


@pytest.mark.slow
def test_placing_by_configuration(merged: list[Tenant], ksm: Ksm, serve: Serve) -> None:
    ksm.stop()  # a page that it visits stays until the next pass
    daemon = serve("[place]\ninterval = 1\n")
    away = min(merged, key=lambda t: t.equal_pages_by_node().get(t.spec.node, 0))
    fair = away.equal_pages // len(merged)
    daemon.until(
        lambda: away.equal_pages_by_node().get(away.spec.node, 0) >= fair - 1,
        "its share of the pages near",
    )
    moved = "nuksm_place_moved_pages_total"
    daemon.until(lambda: value(daemon.scrape(), moved) > 0, "a pass counted")
    daemon.end()
    assert [tenant.bad_pages() for tenant in merged] == [0] * len(merged)


@pytest.mark.anywhere
def test_reloading_tunes_and_gives_back(ksm: Ksm, serve: Serve) -> None:
    ksm.start()
    before = ksm.read("pages_to_scan")
    daemon = serve()
    again = "was read again"
    daemon.reload(HASTY_TUNE, again)
    daemon.until(lambda: ksm.read("pages_to_scan") != before, "another speed")
    tuned = ksm.read("pages_to_scan")
    daemon.reload("[tune]\nintervall = 1\n", "unknown field `intervall`")
    assert "line 5" in daemon.log.read_text()
    daemon.reload("[tune]\ninterval = 1\nlow-free = 50\n", "low-free is 50")
    assert "the configuration before it stays" in daemon.log.read_text()
    assert ksm.read("pages_to_scan") >= min(tuned, before)
    assert ("nuksm_tune_changes_total", frozenset()) in daemon.scrape()
    daemon.reload("", again)
    assert ksm.read("pages_to_scan") == before
    daemon.end()


@pytest.mark.anywhere
def test_reloading_what_can_and_what_cannot_change(
    merged: list[Tenant], serve: Serve
) -> None:
    names = {tenant.spec.name for tenant in merged}
    daemon = serve()
    assert daemon.tenants() == names
    daemon.reload("max-tenants = 1\n", "was read again")
    daemon.until(lambda: "other" in daemon.tenants(), "one tenant and the others")
    port, daemon.port = daemon.port, free_port()
    daemon.reload("", "listen can only change with a restart")
    daemon.port = port
    assert "other" in daemon.tenants(), "the configuration before it stays"


@pytest.mark.anywhere
def test_reloading_what_somebody_else_does_already(ksm: Ksm, serve: Serve) -> None:
    ksm.start()
    daemon = serve()
    with subprocess.Popen([str(paths.NUKSM), "tune", "--interval", "1"]) as tune:
        kept = Path("/run/nuksm/tune.json")
        daemon.until(lambda: kept.exists() and kept.stat().st_size > 0, "its lock")
        daemon.reload("[tune]\n", "another `nuksm tune`")
        assert "the configuration before it stays" in daemon.log.read_text()
        tune.terminate()
    assert tune.returncode == 0
    daemon.reload("[tune]\n", "was read again")
    daemon.end()


@pytest.mark.anywhere
def test_a_killed_daemon_that_comes_back_gives_back(ksm: Ksm, serve: Serve) -> None:
    """As a service manager starts it again."""
    ksm.start()
    before = ksm.read("pages_to_scan")
    daemon = serve(HASTY_TUNE)
    daemon.until(lambda: ksm.read("pages_to_scan") != before, "another speed")
    daemon.process.kill()
    daemon.process.wait()
    assert ksm.read("pages_to_scan") != before
    serve(HASTY_TUNE).end()
    assert ksm.read("pages_to_scan") == before


@pytest.fixture
def copied(ksm: Ksm, tmp_path: Path) -> Iterator[Path]:
    """KSM's files as plain ones, which can be taken away."""
    folder = tmp_path / "ksm"
    folder.mkdir()
    for file in ksm.root.iterdir():
        (folder / file.name).write_text(file.read_text())
    subprocess.run(["mount", "--bind", folder, ksm.root], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", ksm.root], check=True)


@pytest.mark.anywhere
def test_a_counter_that_vanishes_takes_its_series_along(
    copied: Path, serve: Serve
) -> None:
    # The kernel's file shows all modes, whatever was written.
    (copied / "advisor_mode").unlink(missing_ok=True)
    speed = copied / "pages_to_scan"
    before = speed.read_text()
    daemon = serve(f"[place]\ninterval = 1\n{HASTY_TUNE}")
    scanned = ("nuksm_scanned_pages_total", frozenset[tuple[str, str]]())
    assert scanned in daemon.scrape()
    kept = (copied / "pages_scanned").rename(copied.parent / "kept")
    daemon.until(lambda: scanned not in daemon.scrape(), "the series gone")
    assert daemon.get("/healthz") == 200
    kept.rename(copied / "pages_scanned")
    daemon.until(lambda: scanned in daemon.scrape(), "the series back")
    daemon.until(lambda: speed.read_text() != before, "another speed")

    counter = copied / "pages_sharing"
    text = counter.read_text()
    counter.write_text("many\n")
    daemon.until(lambda: daemon.get("/healthz") == 503, "what is wrong")
    daemon.until(lambda: speed.read_text() == before, "the speed it had")
    counter.write_text(text)
    daemon.until(lambda: daemon.get("/healthz") == 200, "all well again")
    daemon.until(lambda: speed.read_text() != before, "another speed again")
    assert "pages_sharing: expected a number" in daemon.log.read_text()
    daemon.end()
    assert speed.read_text() == before


@pytest.mark.anywhere
def test_a_port_that_is_taken(ksm: Ksm, serve: Serve) -> None:
    daemon = serve()
    listen = f"127.0.0.1:{daemon.port}"
    done = subprocess.run(
        [str(paths.NUKSM), "serve", "--listen", listen],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert f"cannot listen on {listen}" in done.stderr
    assert ksm.read("run") == 0


@pytest.mark.anywhere
def test_listening_for_all_is_warned_of(serve: Serve, ksm: Ksm) -> None:
    port = free_port()
    process = subprocess.Popen(
        [str(paths.NUKSM), "serve", "--listen", f"0.0.0.0:{port}"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "reached from other machines" in process.stderr.readline()
    assert "listening" in process.stderr.readline()
    process.terminate()
    process.communicate()
    assert process.returncode == 0
    assert ksm.read("run") == 0
    assert "other machines" not in serve().log.read_text()


@pytest.mark.cost
@pytest.mark.needs(nodes=2)
def test_cost_of_serving_many_tenants(
    start: StartTenant, ksm: Ksm, serve: Serve, output: Path
) -> None:
    """The time is reported, not asserted: it is that of this host. Memory is."""
    tenants = [start(f"vm-{n}", n % 2, mib=MEASURED_MIB) for n in range(64)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    began = time.monotonic()
    daemon = serve("[place]\ninterval = 10\n", 10, paths.NUKSM_RELEASE)
    passes = "nuksm_place_passes_total"
    daemon.until(lambda: value(daemon.scrape(), passes) > 0, "the first pass")
    looks, kib = [], []
    # Asked as often as Prometheus asks by default.
    for _ in range(MEASURED_SECONDS // SCRAPE_SECONDS):
        series = daemon.scrape()
        names = ("nuksm_cpu_seconds_total", passes, "nuksm_look_cpu_seconds")
        looks.append([time.monotonic() - began, *(value(series, n) for n in names)])
        kib.append(daemon.resident_kib())
        time.sleep(SCRAPE_SECONDS)
    (first, *_), (last, *_) = looks, reversed(looks)
    record = {
        "tenants": len(tenants),
        "merged_mib": MEASURED_MIB * len(tenants),
        "seconds": last[0] - first[0],
        "cpu_percent": (last[1] - first[1]) / (last[0] - first[0]) * 100,
        "cpu_percent_with_first_pass": last[1] / last[0] * 100,
        "passes": last[2] - first[2],
        "look_cpu_seconds": last[3],
        "resident_kib": kib,
    }
    (output / "serve-cost.json").write_text(json.dumps(record, indent=1) + "\n")
    (output / "metrics.txt").write_text(daemon.page())
    assert max(kib) <= kib[len(kib) // 4] + GROWTH_KIB
