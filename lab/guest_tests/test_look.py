# SPDX-License-Identifier: GPL-2.0-only
"""What `nuksm` shows: status, sharing and doctor, against the kernel's account."""

import json

from nuksmlab import program
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import Tenant


def test_status_agrees_with_the_kernel(merged: list[Tenant], ksm: Ksm) -> None:
    status = program.status()
    assert status["ksm"]["pages_shared"] == ksm.read("pages_shared")
    seen = {tenant["pid"]: tenant for tenant in status["tenants"]}
    for tenant in merged:
        local = tenant.equal_pages_by_node().get(tenant.spec.node, 0)
        entry = seen[tenant.pid]
        assert entry["name"] == tenant.spec.name
        assert entry["node"] == tenant.spec.node
        assert entry["merged_mappings"] == tenant.equal_pages
        assert entry["local_mappings"] == local
        assert entry["remote_mappings"] == tenant.equal_pages - local
    by_node = {node["node"]: node["merged_pages"] for node in status["nodes"]}
    kernels = merged[0].equal_pages_by_node()
    assert {node: by_node[node] for node in kernels} == kernels


def test_sharing_is_json_and_names_the_tenants(merged: list[Tenant]) -> None:
    done = program.run("sharing", "--json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert all(tenant.spec.name in done.stdout for tenant in merged)


def test_doctor_is_content_when_all_is_well(merged: list[Tenant]) -> None:
    done = program.run("doctor")
    assert done.returncode == 0, f"{len(merged)} tenants\n{done.stdout}{done.stderr}"


def test_doctor_finds_a_stopped_scanner(merged: list[Tenant], ksm: Ksm) -> None:
    ksm.stop()
    done = program.run("doctor")
    assert merged and done.returncode != 0
    assert "run" in done.stdout


def test_doctor_finds_that_nothing_is_registered(ksm: Ksm) -> None:
    ksm.start()
    done = program.run("doctor")
    assert done.returncode != 0
    assert "exec" in done.stdout  # the remedy
