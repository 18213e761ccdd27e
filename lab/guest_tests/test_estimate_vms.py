# SPDX-License-Identifier: GPL-2.0-only
"""`nuksm estimate` on real virtual machines: two, by KVM, nested in this one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nuksmlab import program
from nuksmlab.ksm import Ksm
from nuksmlab.virtual import VirtualMachine

pytestmark = [pytest.mark.vm, pytest.mark.needs(nodes=2)]
WORKLOAD = "btree"
KIB = 32 * 1024
NEAR = 0.05


@pytest.fixture(scope="module")
def machines() -> Iterator[list[VirtualMachine]]:
    """One per node, and idle; the second one comes when the first one is up."""
    for module in ("kvm_amd", "kvm_intel"):  # in a kernel of ours they are built in
        subprocess.run(["modprobe", "--quiet", module], check=False)
    if not Path("/dev/kvm").exists():
        pytest.skip("this host's KVM has no KVM for its guests")
    kernel = Path(os.environ["NUKSM_VM_KERNEL"])
    with ExitStack() as stack:
        running = []
        for node in (0, 1):
            running.append(vm := VirtualMachine(WORKLOAD, node, node, KIB, kernel))
            stack.callback(vm.process.communicate)
            stack.callback(vm.process.kill)
        yield running


@pytest.mark.parametrize("across", [1, 0], ids=["across_nodes", "within_nodes"])
def test_what_is_foretold_is_what_ksm_saves(
    machines: list[VirtualMachine], ksm: Ksm, across: int
) -> None:
    ksm.write("merge_across_nodes", across)
    try:
        pids = [word for vm in machines for word in ("--pid", str(vm.pid))]
        totals = program.read_json("estimate", *pids)["totals"]
        saving = totals["across_nodes" if across else "within_nodes"]
        foretold = saving["saved_pages"]["value"] + saving["zero_pages"]
        assert totals["already_shared_pages"]["value"] == 0
        ksm.merge(int(foretold * (1 - NEAR)))
        saved = ksm.read("pages_sharing")
        profit = ksm.read("general_profit")
    finally:
        ksm.unmerge()
        ksm.write("merge_across_nodes", 1)
    print(f"foretold {foretold}, saved {saved} of {totals['pages']} pages")
    assert saved == pytest.approx(foretold, rel=NEAR)
    assert profit == pytest.approx(saving["net_saved_bytes"]["value"], rel=NEAR)
