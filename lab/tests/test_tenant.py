# SPDX-License-Identifier: GPL-2.0-only
"""The tenant itself, on this host: any Linux has a node 0."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from nuksmlab import wait
from nuksmlab.tenant import Spec, Tenant, TenantError, taken

MIXED = Spec("t", 0, 4, equal=40, private=20, zero=20, changing=20)


def page(tenant: Tenant, kind: str, index: int) -> bytes:
    with Path(f"/proc/{tenant.pid}/mem").open("rb") as memory:
        memory.seek(int(tenant.facts[f"{kind}_at"], 16) + index * 4096)
        return memory.read(4096)


def test_shares_of_the_classes() -> None:
    with Tenant(MIXED) as tenant:
        counts = [int(tenant.facts[k]) for k in ("private", "zero", "changing")]
        assert counts == [204, 204, 204]
        assert tenant.equal_pages == 1024 - sum(counts)


def test_name_is_the_process_name() -> None:
    with Tenant(MIXED) as tenant:
        assert Path(f"/proc/{tenant.pid}/comm").read_text() == "t\n"


def test_equal_pages_depend_on_the_seed_only() -> None:
    specs = [Spec("a", 0, 1, seed=1), Spec("b", 0, 1, seed=1), Spec("c", 0, 1, seed=2)]
    with Tenant(specs[0]) as a, Tenant(specs[1]) as b, Tenant(specs[2]) as c:
        assert page(a, "equal", 7) == page(b, "equal", 7)
        assert page(a, "equal", 7) != page(a, "equal", 8)
        assert page(a, "equal", 7) != page(c, "equal", 7)


def test_private_pages_differ_between_tenants() -> None:
    specs = [Spec(name, 0, 1, equal=0, private=100) for name in ("a", "b")]
    with Tenant(specs[0]) as a, Tenant(specs[1]) as b:
        assert page(a, "private", 0) != page(b, "private", 0)


def test_zero_pages_are_zero() -> None:
    with Tenant(MIXED) as tenant:
        assert page(tenant, "zero", 0) == bytes(4096)


def test_it_tells_how_much_it_took(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with Tenant(MIXED) as tenant:
        assert tenant.command(f"take 100 {told}") == {"pages": 100}
        assert taken(told) == 100
        with pytest.raises(TenantError, match="wants pages and a file"):
            tenant.command("take 100")
        assert tenant.command("verify") == {"pages": 1024, "bad": 0}


def test_everything_it_does_keeps_the_content_right() -> None:
    with Tenant(MIXED) as tenant:
        before = page(tenant, "changing", 0)
        assert tenant.command("change") == {"pages": 204}
        assert page(tenant, "changing", 0) != before
        assert tenant.command("write 5") == {"pages": 5}
        assert tenant.command("fork")["bad"] == 0
        assert tenant.command("verify") == {"pages": 1024, "bad": 0}
        assert tenant.command("restore") == {"pages": 5}
        assert tenant.command("touch")["pages"] == 1024
        assert tenant.bad_pages() == 0


def test_pages_that_are_written_again_stay_what_they_are() -> None:
    with Tenant(MIXED) as tenant:
        before = page(tenant, "equal", 3)
        tenant.again([0, 3, 5])
        assert page(tenant, "equal", 3) == before
        assert tenant.bad_pages() == 0
        with pytest.raises(TenantError, match="no page"):
            tenant.again([tenant.equal_pages])


def test_equal_pages_can_repeat() -> None:
    with Tenant(replace(MIXED, distinct=4)) as tenant:
        assert page(tenant, "equal", 1) == page(tenant, "equal", 5)
        assert page(tenant, "equal", 1) != page(tenant, "equal", 2)
        assert tenant.bad_pages() == 0


def test_content_is_right_while_it_churns() -> None:
    with Tenant(MIXED) as tenant:
        tenant.command("churn start")
        for _ in range(20):
            assert tenant.bad_pages() == 0
        assert tenant.command("fork")["bad"] == 0
        assert tenant.command("churn stop")["pages"] > 0


def test_it_reads_until_it_is_stopped() -> None:
    with Tenant(MIXED) as tenant:
        tenant.command("churn read")
        assert tenant.bad_pages() == 0
        assert tenant.command("churn stop")["pages"] > 0


def test_it_can_end_while_it_churns() -> None:
    for _ in range(20):
        with Tenant(MIXED) as tenant:
            tenant.command("churn start")


@pytest.mark.parametrize("kind", ["equal", "private", "zero", "changing"])
def test_one_wrong_byte_is_found(kind: str) -> None:
    with Tenant(MIXED) as tenant:
        last = bytes([page(tenant, kind, 3)[4095] ^ 1])
        with Path(f"/proc/{tenant.pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(int(tenant.facts[f"{kind}_at"], 16) + 3 * 4096 + 4095)
            memory.write(last)
        assert tenant.bad_pages() == 1


@pytest.mark.parametrize("command", ["sing", "write x", "churn", "churn stop", ""])
def test_wrong_command_is_an_error_and_the_channel_goes_on(command: str) -> None:
    with Tenant(MIXED) as tenant:
        with pytest.raises(TenantError, match="error"):
            tenant.command(command)
        assert tenant.bad_pages() == 0


@pytest.mark.parametrize(
    "spec",
    [
        Spec("t", 0, 1, equal=99),
        Spec("t", 4000, 1),
        Spec("a-name-too-long-for-comm", 0, 1),
    ],
)
def test_impossible_tenant_does_not_start(spec: Spec) -> None:
    with pytest.raises(TenantError, match="gone"):
        Tenant(spec)


def test_alike_pages_differ_in_their_last_word_only() -> None:
    specs = [Spec(name, 0, 1, equal=0, alike=100) for name in ("a", "b")]
    with Tenant(specs[0]) as a, Tenant(specs[1]) as b:
        first, second = page(a, "alike", 0), page(a, "alike", 1)
        assert first[:-8] == second[:-8]
        assert first[-8:] != second[-8:]
        assert page(b, "alike", 1) == second
        assert a.bad_pages() == 0


def test_same_pages_are_all_the_same() -> None:
    specs = [Spec(name, 0, 1, equal=0, same=100) for name in ("a", "b")]
    with Tenant(specs[0]) as a, Tenant(specs[1]) as b:
        assert page(a, "same", 0) == page(a, "same", 255) == page(b, "same", 7)
        assert page(a, "same", 0) != bytes(4096)
        assert a.bad_pages() == 0


def test_one_that_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = Tenant(MIXED)
    tenant.process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(wait, "HANG_SECONDS", 0.1)
    with pytest.raises(TenantError, match="t hangs"):
        tenant.command("verify")
    tenant.process.kill()
    tenant.process.communicate()
