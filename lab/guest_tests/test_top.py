# SPDX-License-Identifier: GPL-2.0-only
"""`nuksm top` on a terminal, as a user has it."""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nuksmlab import paths, program
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant, Tenant
from nuksmlab.terminal import Terminal

TOP = (str(paths.NUKSM), "top", "--interval", "1")
SIZES = [(80, 24), (120, 40), (60, 20)]
ESCAPE, ENTER, DOWN, CONTROL_C = "\x1b", "\r", "\x1b[B", "\x03"

StartTop = Callable[..., Terminal]


@pytest.fixture
def top() -> Iterator[StartTop]:
    """Starts `nuksm top` and waits until it shows something."""
    terminals: list[Terminal] = []

    def start(
        columns: int = 80, rows: int = 24, environment: dict[str, str] | None = None
    ) -> Terminal:
        terminal = Terminal(TOP, columns, rows, environment)
        terminals.append(terminal)
        terminal.wait_for("saved")
        return terminal

    yield start
    for terminal in terminals:
        terminal.__exit__(None, None, None)


def tenant_rows(text: str) -> list[str]:
    """Names of tenants, in the order on the screen."""
    return re.findall(r"^(?:>| ) (vm-\d+) ", text, re.MULTILINE)


@pytest.mark.parametrize("size", SIZES)
def test_what_it_shows_agrees_with_the_kernel(
    merged: list[Tenant], ksm: Ksm, top: StartTop, output: Path, size: tuple[int, int]
) -> None:
    terminal = top(*size)
    ksm.stop()
    status = program.status()
    text = terminal.wait_for("KSM is stopped", "pages/s")
    (output / f"top-{size[0]}x{size[1]}.txt").write_text(f"{text}\n")
    assert sorted(tenant_rows(text)) == sorted(tenant.spec.name for tenant in merged)
    for row in status["nodes"]:
        line = rf"^{row['node']} +{row['merged_pages']} "
        assert re.search(line, text, re.MULTILINE), text
    for word in ("s saved", "r remote", "c cost", "n name", "q quit"):
        assert word in text


@pytest.mark.anywhere
@pytest.mark.parametrize("size", SIZES)
def test_keys_sort_select_open_and_close(
    merged: list[Tenant], top: StartTop, output: Path, size: tuple[int, int]
) -> None:
    terminal = top(*size)
    for key, mark in (("r", "remote % ▼"), ("c", "cost ▼"), ("s", "saved ▼")):
        terminal.press(key)
        terminal.wait_for(mark)
    terminal.press("n")
    terminal.wait_for(f"tenant ({len(merged)}) ▼")
    terminal.press("/vm-1")
    terminal.wait_for(f"tenant (1/{len(merged)})", "filter: vm-1_")
    terminal.press(ESCAPE)
    terminal.wait_for(f"tenant ({len(merged)}) ▼")
    terminal.press("?")
    terminal.wait_for("the other way round")
    terminal.press("?")
    terminal.wait_for(f"tenant ({len(merged)}) ▼")
    terminal.press(DOWN)
    terminal.wait_for("> vm-1 ")
    terminal.press(ENTER)
    text = terminal.wait_for(f"vm-1: pid {merged[1].pid}", "shares with")
    (output / f"top-detail-{size[0]}x{size[1]}.txt").write_text(f"{text}\n")
    partners = [tenant for tenant in merged if tenant is not merged[1]]
    for partner in partners:
        line = rf"^{partner.spec.name} +{partner.pid} +{partner.spec.node} +\d+"
        assert re.search(line, text, re.MULTILINE), text
    terminal.press(ESCAPE)
    terminal.wait_for("> vm-1 ")
    assert terminal.process.poll() is None


@pytest.mark.anywhere
@pytest.mark.parametrize("keys", ["q", ESCAPE, CONTROL_C, f"{ENTER}q"])
def test_it_quits_and_gives_the_terminal_back(
    merged: list[Tenant], top: StartTop, keys: str
) -> None:
    terminal = top()
    terminal.wait_for("> vm-")
    terminal.press(keys)
    assert merged and terminal.wait_end() == 0
    assert terminal.is_restored()


@pytest.mark.anywhere
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_gives_the_terminal_back(
    ksm: Ksm, top: StartTop, number: signal.Signals
) -> None:
    ksm.start()
    terminal = top()
    terminal.process.send_signal(number)
    assert terminal.wait_end() == 0
    assert terminal.is_restored()


@pytest.mark.anywhere
def test_it_follows_the_size_of_the_window(merged: list[Tenant], top: StartTop) -> None:
    terminal = top(60, 20)
    wide = re.compile(r"saved ▼ +mapped +remote")
    assert not wide.search(terminal.wait_for("> vm-"))
    terminal.resize(120, 40)
    text = terminal.wait(lambda text: bool(wide.search(text)))
    assert any(len(line) > 100 for line in text.splitlines())
    terminal.resize(60, 20)
    terminal.wait(lambda text: "saved ▼" in text and not wide.search(text))
    assert merged and terminal.process.poll() is None


@pytest.mark.anywhere
def test_without_colour_it_says_the_same(merged: list[Tenant], top: StartTop) -> None:
    def names(environment: dict[str, str]) -> tuple[list[str], bool]:
        terminal = top(80, 24, environment)
        text = terminal.wait_for("> vm-")
        return tenant_rows(text), b"\x1b[38;" in terminal.said

    colourful, has_colour = names({})
    assert has_colour
    assert len(colourful) == len(merged)
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert names(plain) == (colourful, False)


@pytest.mark.anywhere
def test_tenants_come_and_go(
    start: StartTenant, merged: list[Tenant], ksm: Ksm, top: StartTop
) -> None:
    terminal = top(120, 40)
    ksm.start()
    guest = start("guest", 0, mib=4)
    terminal.wait_for("guest ")
    guest.quit()
    terminal.wait(lambda text: "guest " not in text and "vm-0 " in text)
    assert merged


@pytest.mark.anywhere
def test_where_nothing_can_be_drawn_it_says_what_to_use() -> None:
    done = program.run("top")
    assert done.returncode == 1
    assert "nuksm status" in done.stderr
