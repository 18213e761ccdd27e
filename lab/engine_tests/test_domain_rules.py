# SPDX-License-Identifier: GPL-2.0-only
"""The daemon gives tenants their merge domains as they come, and before they share."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nuksmlab import domains, paths, program, stress, wait
from nuksmlab.domains import Group
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import ANYWHERE, Spec, Tenant

MIB = 2
PAGES = MIB * 256
LOGS = Path("/var/log")
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
SHORT_OF_ALL = 0.05  # how far an estimate may be off

pytestmark = pytest.mark.skipif(
    not domains.exist() or not Path("/sys/devices/system/node").exists(),
    reason="this kernel has no merge domains, or no nodes",
)

RULES = """
[domains]
interval = 3600
rules = [
    { tenants = ["guest:acme-*"], domain = "acme" },
    { tenants = ["guest:*"], domain = "own" },
    { tenants = ["namespace:kube-system"], domain = "shared" },
    { tenants = ["namespace:*"], domain = "each" },
]
"""

# As libvirt under systemd names the scopes of its guests, and the kubelet its pods.
GUESTS = {
    "acme-web": r"machine.slice/machine-qemu\x2d1\x2dacme\x2dweb.scope",
    "acme-db": r"machine.slice/machine-qemu\x2d2\x2dacme\x2ddb.scope",
    "bob": r"machine.slice/machine-qemu\x2d3\x2dbob.scope",
    "eve": r"machine.slice/machine-qemu\x2d4\x2deve.scope",
}
UIDS = {
    ("web", "front"): "11111111-0000-4000-8000-000000000001",
    ("web", "back"): "11111111-0000-4000-8000-000000000002",
    ("bank", "ledger"): "22222222-0000-4000-8000-000000000003",
    ("kube-system", "dns"): "33333333-0000-4000-8000-000000000004",
}
BURSTABLE = "kubepods.slice/kubepods-burstable.slice"


class Tree:
    """Cgroups as a host has them, with tenants that share all their pages."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.made: dict[str, Group] = {}
        self.tenants: dict[str, Tenant] = {}

    def make(self, path: str) -> Group:
        """With all that are missing above it."""
        if path not in self.made:
            if above := path.rpartition("/")[0]:
                self.make(above).divide()
            group = Group.__new__(Group)
            group.path = stress.CGROUPS / path
            group.path.mkdir()
            self.stack.callback(group.end)
            self.made[path] = group
        return self.made[path]

    def start(self, name: str, path: str) -> Tenant:
        """In its cgroup from its first instruction on."""
        spec = Spec(name, ANYWHERE, MIB, madvised=True)
        tenant = Tenant(spec, self.make(path).prefix())
        self.stack.callback(tenant.process.communicate)
        self.stack.callback(tenant.process.kill)
        self.tenants[name] = tenant
        return tenant

    def start_guests(self) -> None:
        for name, path in GUESTS.items():
            self.start(name, path)

    def start_pods(self) -> None:
        """Their logs' directories come after their cgroups, as the kubelet has it."""
        for (namespace, name), uid in UIDS.items():
            written = uid.replace("-", "_")
            pod = f"{BURSTABLE}/kubepods-burstable-pod{written}.slice"
            self.make(pod)
            (LOGS / "pods" / f"{namespace}_{name}_{uid}").mkdir(parents=True)
            self.start(name, f"{pod}/cri-containerd-{uid}.scope")

    def domains(self) -> dict[str, int]:
        return {
            name: domains.domain_of(tenant.pid) for name, tenant in self.tenants.items()
        }

    def is_as_rules_want(self) -> bool:
        """Until then each tenant is alone, or with those whose turn has come."""
        of = self.domains()
        return (
            len(set(of.values())) == 6
            and of["acme-web"] == of["acme-db"]
            and of["front"] == of["back"]
            and of["dns"] == domains.SHARED
            and {given(GUESTS[name]) for name in ("bob", "eve")} == {"own"}
        )


@pytest.fixture(autouse=True)
def cgroups() -> None:
    stress.account_memory()


@pytest.fixture
def tree() -> Iterator[Tree]:
    with ExitStack() as stack:
        subprocess.run(["mount", "-t", "tmpfs", "none", str(LOGS)], check=True)
        stack.callback(subprocess.run, ["umount", str(LOGS)], check=True)
        (LOGS / "pods").mkdir()
        yield Tree(stack)


@pytest.fixture
def daemon(tmp_path: Path, ksm: Ksm) -> Iterator[Callable[..., None]]:
    """Starts it with rules, and waits for its first pass."""
    config, log = tmp_path / "nuksm.toml", tmp_path / "log"
    processes: list[subprocess.Popen[bytes]] = []

    def start(rules: str = RULES, said_too: str = "") -> None:
        config.write_text(rules)
        command = [str(paths.NUKSM), "domain", "apply", "--watch"]
        command += ["--config", str(config)]
        with log.open("w") as said:
            processes.append(subprocess.Popen(command, stdout=said, stderr=said))
        wait.until(
            lambda: (
                "as rules want it" in log.read_text() or processes[0].poll() is not None
            ),
            log.read_text,
        )
        assert ksm.read_text("default_domain") == "shared [own]", log.read_text()
        assert said_too in log.read_text()

    yield start
    for process in processes:
        process.terminate()
        assert process.wait() == 0, log.read_text()


def given(path: str) -> str:
    return (stress.CGROUPS / path / domains.FILE).read_text().strip()


def test_each_tenant_is_where_rules_want_it_before_it_shares(
    ksm: Ksm, tree: Tree, daemon: Callable[[], None]
) -> None:
    before = ksm.read("domain_unmerged")
    daemon()
    ksm.start()  # at full speed, before anybody comes
    tree.start_guests()
    tree.start_pods()
    wait.until(tree.is_as_rules_want, lambda: f"six domains: {tree.domains()}")
    of = tree.domains()
    saved = 2 * PAGES
    wait.until(
        lambda: (
            ksm.read("pages_sharing") == saved and ksm.read("pages_shared") >= saved
        ),
        lambda: f"{saved} saved: {ksm.counters()}",
    )
    ksm.stop()
    assert (
        domains.crossings({t.pid: of[name] for name, t in tree.tenants.items()}) == []
    )
    # Whoever shares across a border first, and is moved then, is un-merged.
    assert ksm.read("domain_unmerged") == before
    assert all(tenant.bad_pages() == 0 for tenant in tree.tenants.values())


def test_who_cannot_be_told_of_new_cgroups_looks_at_intervals(
    tree: Tree, daemon: Callable[..., None]
) -> None:
    """As another of root's programs has taken all that there is of these."""
    before = INSTANCES.read_text()
    INSTANCES.write_text("0")
    try:
        daemon(RULES.replace("3600", "1"), "cannot watch for new cgroups")
        tree.start("bob", GUESTS["bob"])
        wait.until(lambda: given(GUESTS["bob"]) == "own", str)
    finally:
        INSTANCES.write_text(before)


def test_who_cannot_ask_for_labels_carries_out_all_other_rules(
    tree: Tree, daemon: Callable[..., None]
) -> None:
    """Here is no container runtime."""
    rules = RULES.replace('["namespace:*"]', '["label:tenant=*"]')
    daemon(rules, "crictl")
    tree.start("bob", GUESTS["bob"])
    wait.until(lambda: given(GUESTS["bob"]) == "own", str)


def test_what_a_tenant_calls_its_own_cgroups_changes_nothing(
    tree: Tree, daemon: Callable[[], None]
) -> None:
    daemon()
    tree.start("acme", GUESTS["acme-web"])
    wait.until(lambda: given(GUESTS["acme-web"]) != "inherit", str)
    inside = r"machine.slice/machine-qemu\x2d9\x2dmallory.scope"
    fake = f"{inside}/{GUESTS['acme-db']}"
    tree.make(fake)
    other = tree.make(f"user.slice/user-1.slice/user@1.service/{GUESTS['acme-db']}")
    wait.until(lambda: given(inside) == "own", str)
    done = program.run("domain", "apply", "--config", "/nonexistent")
    assert done.returncode != 0
    assert given(fake) == "inherit"
    assert (other.path / domains.FILE).read_text() == "inherit\n"


def test_estimate_says_what_rules_leave_and_cost(
    ksm: Ksm, tree: Tree, tmp_path: Path
) -> None:
    config = tmp_path / "nuksm.toml"
    config.write_text(RULES)
    tree.start_guests()
    tree.start_pods()
    pids = [f"--pid={tenant.pid}" for tenant in tree.tenants.values()]
    estimate = program.read_json("estimate", f"--domains={config}", *pids)["domains"]
    assert program.run("domain", "apply", "--config", str(config)).returncode == 0
    ksm.start()
    ksm.wait_scans(3)
    ksm.stop()
    saved = ksm.read("pages_sharing")
    assert saved == 2 * PAGES
    assert estimate["saved_pages"]["value"] == pytest.approx(saved, rel=SHORT_OF_ALL)
    in_one = (len(tree.tenants) - 1) * PAGES
    cost = estimate["border_pages"]["value"]
    assert cost == pytest.approx(in_one - saved, rel=SHORT_OF_ALL)
    now = program.read_json("estimate", "--domains", *pids)["domains"]
    assert now["saved_pages"]["value"] == pytest.approx(saved, rel=SHORT_OF_ALL)
    rows = {row["name"]: row["tenants"] for row in now["domains"]}
    assert (rows["acme"], rows["namespace:web"], rows["shared"]) == (2, 2, 1)


def test_reports_name_domains_and_that_nothing_crosses(
    ksm: Ksm, tree: Tree, tmp_path: Path
) -> None:
    config = tmp_path / "nuksm.toml"
    config.write_text(RULES)
    tree.start_guests()
    ksm.start()
    ksm.wait_scans(3)
    found = program.run("doctor").stdout
    assert "4 users and guests may share pages" in found
    first = program.run("domain", "apply", "--config", str(config), "--dry-run")
    assert "would be given another domain" in first.stdout
    assert given(GUESTS["bob"]) == "inherit"
    assert program.run("domain", "apply", "--config", str(config)).returncode == 0
    for tenant in tree.tenants.values():
        domains.wait_left(tenant.pid)
    ksm.wait_scans(3)
    report = program.read_json("domain")
    rows = {row["name"]: row for row in report["domains"]}
    bob = f"/{GUESTS['bob']}"
    assert set(rows) == {"acme", bob, f"/{GUESTS['eve']}"}
    assert {t["name"] for t in rows["acme"]["tenants"]} == {"acme-web", "acme-db"}
    assert rows["acme"]["saved_bytes"] == PAGES * 4096
    assert report["border"] == {"leaving_pages": 0, "crossing_pages": 0}
    assert program.read_json("sharing")["border"] == report["border"]
    given_by = {row["cgroup"]: row["by"] for row in report["cgroups"]}
    assert given_by[bob] == "rule"
    assert "may share pages (guest" in program.run("doctor").stdout  # acme's two
    text = program.run("domain").stdout
    assert "Nothing is shared across a border" in text


def test_what_is_set_by_hand_stays_until_it_is_taken_back(
    tree: Tree, tmp_path: Path
) -> None:
    config = tmp_path / "nuksm.toml"
    config.write_text(RULES)
    tree.start_guests()

    def apply() -> None:
        assert program.run("domain", "apply", "--config", str(config)).returncode == 0

    def give(domain: str) -> None:
        assert program.run("domain", "set", "guest:bob", domain).returncode == 0

    apply()
    acme = given(GUESTS["acme-web"])
    assert acme == given(GUESTS["acme-db"]) and int(acme) > 0
    give("acme")
    assert given(GUESTS["bob"]) == acme
    apply()
    assert given(GUESTS["bob"]) == acme
    give("inherit")
    apply()
    assert given(GUESTS["bob"]) == "own"
    config.write_text("[domains]\ndefault = 'shared'\n")
    apply()
    assert {given(path) for path in GUESTS.values()} == {"inherit"}
    wrong = program.run("domain", "set", "guest:nobody", "own")
    assert wrong.returncode != 0
    assert "no cgroup is guest:nobody now" in wrong.stderr
