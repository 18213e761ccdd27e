# SPDX-License-Identifier: GPL-2.0-only
"""`nuksm record`: what it writes, and what becomes of it when things go wrong."""

import csv
import errno
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from nuksmlab import paths, program, wait
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import Tenant

pytestmark = pytest.mark.anywhere


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A disk that is full soon."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], check=True
    )
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(paths.NUKSM), "record", "--interval", "1", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_lines(path: Path, count: int) -> None:
    wait.until(
        lambda: path.exists() and path.read_bytes().count(b"\n") >= count,
        lambda: f"{count} lines in {path.name}",
    )


def samples(path: Path) -> list[dict[str, Any]]:
    """All whole lines; every line has to be one."""
    text = path.read_text()
    assert text.endswith("\n")
    records = [json.loads(line) for line in text.splitlines()]
    return [record for record in records if "nuksm_recording" not in record]


def said(stream: IO[str] | None, words: str) -> str:
    """The next line with these words."""
    assert stream is not None
    for line in stream:
        if words in line:
            return line
    raise AssertionError(f"never said: {words}")


def fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC


def test_it_records_what_status_shows(
    merged: list[Tenant], ksm: Ksm, tmp_path: Path
) -> None:
    ksm.stop()
    status = program.status()
    path = tmp_path / "ksm.jsonl"
    options = ("--interval", "1", "--duration", "1", "--output", str(path))
    done = program.run("record", *options)
    assert done.returncode == 0, done.stderr
    # One or two: a look may take longer than the interval.
    every = samples(path)
    assert f"recorded {len(every)} samples in " in done.stdout
    assert ", lost 0; " in done.stdout
    last = every[-1]
    names = [tenant.spec.name for tenant in merged]
    assert [tenant["name"] for tenant in last["tenants"]] == names
    for tenant, row in zip(last["tenants"], status["tenants"], strict=True):
        for key in ("pid", "merged_mappings", "local_mappings", "remote_mappings"):
            assert tenant[key] == row[key]
    page = tmp_path / "report.html"
    done = program.run("report", str(path), "--output", str(page))
    assert done.returncode == 0, done.stderr
    assert all(name in page.read_text() for name in names)


def test_csv_is_a_plain_table(merged: list[Tenant], ksm: Ksm, tmp_path: Path) -> None:
    ksm.stop()
    nodes = program.status()["nodes"]
    path = tmp_path / "ksm.csv"
    options = ("--interval", "1", "--duration", "1", "--output", str(path))
    recorded = 0
    for _ in range(2):
        done = program.run("record", *options)
        assert merged and done.returncode == 0, done.stderr
        recorded += int(done.stdout.split()[1])
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == recorded
    assert len({row["start_unix_seconds"] for row in rows}) == 2
    for row in rows:
        assert int(row["pages_sharing"]) == ksm.read("pages_sharing")
        for node in nodes:
            column = f"node{node['node']}_merged_pages"
            assert int(row[column]) == node["merged_pages"]
    done = program.run("record", *options, "--counters")
    assert done.returncode == 1
    assert "other columns" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_with_a_summary(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "ksm.jsonl"
    recorder = start("--counters", "--output", path)
    wait_lines(path, 3)
    recorder.send_signal(number)
    out, errors = recorder.communicate()
    assert recorder.returncode == 0, errors
    assert out.startswith(f"recorded {len(samples(path))} samples in ")
    assert out.count("\n") == 1


def test_killed_recorder_leaves_whole_lines_and_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "ksm.jsonl"
    recorder = start("--counters", "--output", path)
    wait_lines(path, 3)
    recorder.kill()
    recorder.communicate()
    before = samples(path)
    with path.open("a") as file:  # as a crash of the whole machine may leave it
        file.write('{"unix_time":17')
    again = start("--counters", "--duration", "1", "--output", path)
    out, errors = again.communicate()
    assert again.returncode == 0
    assert "was cut off; it stays" in errors
    whole = [line for line in path.read_text().splitlines() if line.endswith("}")]
    assert len(whole) == len(before) + int(out.split()[1]) + 2  # two headers
    done = program.run("report", str(path), "--output", str(tmp_path / "report.html"))
    assert done.returncode == 0
    assert f"line {len(before) + 2} is passed over" in done.stderr


def test_second_recorder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ksm.jsonl"
    recorder = start("--counters", "--output", path)
    wait_lines(path, 2)
    second = start("--counters", "--output", path)
    _, errors = second.communicate()
    assert second.returncode == 1
    assert "being recorded to already" in errors
    recorder.terminate()
    recorder.communicate()
    assert recorder.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ksm.jsonl", "ksm.csv"])
def test_full_disk_leaves_whole_lines_and_goes_on_later(
    folder: Path, name: str
) -> None:
    path = folder / name
    recorder = start("--counters", "--output", path)
    wait_lines(path, 2)
    fill(folder)
    assert "No space left" in said(recorder.stderr, "trying again")
    before = path.read_text()
    assert before.endswith("\n")
    (folder / "ballast").unlink()
    said(recorder.stderr, "recording again")
    recorder.terminate()
    out, _ = recorder.communicate()
    assert recorder.returncode == 1
    assert "lost 0" not in out
    assert path.read_text().startswith(before)
    if name.endswith(".jsonl"):
        samples(path)
    else:
        widths = {line.count(",") for line in path.read_text().splitlines()}
        assert len(widths) == 1
