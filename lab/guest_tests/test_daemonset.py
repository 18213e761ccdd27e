# SPDX-License-Identifier: GPL-2.0-only
"""The DaemonSet's command line, configuration and capabilities, on real nodes.

Its container itself needs a cluster.
"""

import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nuksmlab import daemonset, paths, wait
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import Spec, Tenant

pytestmark = pytest.mark.anywhere

NOBODY = 65534
CAPABILITIES: list[str] = daemonset.container()["securityContext"]["capabilities"][
    "add"
]

Serve = Callable[[list[str]], "subprocess.Popen[bytes]"]


@pytest.fixture
def tenants(nodes: list[int], ksm: Ksm) -> Iterator[list[Tenant]]:
    """One per node, of another user, as guests are; their pages merged."""
    as_nobody = ("setpriv", f"--reuid={NOBODY}", "--clear-groups")
    started: list[Tenant] = []
    with tempfile.TemporaryDirectory() as folder:
        # The repository may be where others must not look.
        Path(folder).chmod(0o755)
        binary = Path(shutil.copy(paths.TENANT, folder))
        try:
            for node in nodes:
                spec = Spec(f"vm-{node}", node, 8)
                started.append(Tenant(spec, as_nobody, binary))
            ksm.merge(sum(tenant.equal_pages for tenant in started))
            # A page that it visits stays until the next pass, which comes when the one
            # before took no more than its part of a CPU: minutes, on a slow machine.
            ksm.stop()
            yield started
        finally:
            for tenant in started:
                tenant.process.kill()
                tenant.process.communicate()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """What the container runs, as root with these capabilities only."""
    processes: list[subprocess.Popen[bytes]] = []
    [(name, text)] = daemonset.resources()["ConfigMap"]["data"].items()
    (tmp_path / name).write_text(text)
    *arguments, path = daemonset.container()["args"]
    arguments.append(str(tmp_path / Path(path).name))

    def start(capabilities: list[str]) -> "subprocess.Popen[bytes]":
        allowed = "".join(f",+{name.lower()}" for name in capabilities)
        setpriv = ["setpriv", f"--bounding-set=-all{allowed}", "--inh-caps=-all"]
        command = [*setpriv, str(paths.NUKSM), *arguments]
        processes.append(subprocess.Popen(command))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def metrics() -> str:
    [port] = daemonset.container()["ports"]
    try:
        url = f"http://127.0.0.1:{port['containerPort']}/metrics"
        with urllib.request.urlopen(url) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def one_pass(process: "subprocess.Popen[bytes]") -> bool:
    """False when the program ended instead."""
    done = "nuksm_place_passes_total 1"
    wait.until(
        lambda: done in metrics() or process.poll() is not None,
        lambda: f"a pass:\n{metrics()}",
    )
    return process.poll() is None


def test_it_places_the_pages_of_other_users(
    tenants: list[Tenant], serve: Serve
) -> None:
    process = serve(CAPABILITIES)
    assert one_pass(process)

    def is_local(tenant: Tenant) -> bool:
        local = tenant.equal_pages_by_node()[tenant.spec.node]
        return local >= tenant.equal_pages // len(tenants) - 1

    wait.until(lambda: all(map(is_local, tenants)), metrics)
    process.terminate()
    assert process.wait() == 0


@pytest.mark.parametrize("missing", CAPABILITIES)
def test_each_capability_is_needed(
    tenants: list[Tenant], serve: Serve, missing: str
) -> None:
    left = [name for name in CAPABILITIES if name != missing]
    if one_pass(serve(left)):
        assert "nuksm_tenant_mappings" not in metrics()
    assert len(tenants) > 1
