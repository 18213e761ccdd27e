# SPDX-License-Identifier: GPL-2.0-only
"""The queries in docs/estimating.md, on what `nuksm estimate --dump` writes."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from nuksmlab import paths, program

DOCUMENTATION = paths.REPOSITORY / "docs" / "estimating.md"
PAGE = 4096


def query(number: int) -> list[tuple[Any, ...]]:
    """Runs the documentation's query as it stands there."""
    queries = re.findall(r"```sql\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    return duckdb.sql(queries[number]).fetchall()


def write_image(path: Path, contents: Iterable[int]) -> Path:
    """A page of zeroes for content 0."""
    with path.open("wb") as image:
        for content in contents:
            image.write(content.to_bytes(8, "little") * (PAGE // 8))
    return path


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two hosts' dumps, and what the program said while it wrote each."""
    monkeypatch.chdir(tmp_path)
    Path("hosts").mkdir()
    hosts: dict[str, dict[str, Iterable[int]]] = {
        "one": {"web": [*range(1, 301), 0], "db": [*range(201, 401), *[7] * 600]},
        "two": {"mail": [*range(251, 451), 0, 0], "cache": range(1000, 1100)},
    }
    reports = {}
    for host, guests in hosts.items():
        images = [
            str(write_image(tmp_path / f"{name}.img", contents))
            for name, contents in guests.items()
        ]
        dump = f"hosts/{host}.parquet"
        reports[dump] = program.read_json("estimate", *images, "--dump", dump)
    return reports


def saving(report: Any) -> tuple[int, int]:
    totals = report["totals"]
    saved = totals["across_nodes"]["saved_pages"]["value"]
    return totals["pages"] - totals["zero_pages"], saved


def test_savings_of_a_fleet_in_sql_are_the_program_s(reports: dict[str, Any]) -> None:
    rows = {host: (pages, saved) for host, pages, saved, _ in query(0)}
    for host, report in reports.items():
        assert rows[host] == saving(report)
    assert rows["hosts/one.parquet"][1] > 0
    assert rows[None] == tuple(
        map(sum, zip(*map(saving, reports.values()), strict=True))
    )


@pytest.mark.usefixtures("reports")
def test_tenants_that_belong_on_one_host_are_found_in_sql() -> None:
    one, two = "hosts/one.parquet", "hosts/two.parquet"
    assert query(1) == [(one, "db", two, "mail", 150), (one, "web", two, "mail", 50)]


def test_dumps_that_sql_wrote_are_read_again(reports: dict[str, Any]) -> None:
    duckdb.sql("COPY (FROM 'hosts/*.parquet') TO 'fleet.parquet'")
    fleet = program.read_json("estimate", "fleet.parquet")
    hosts = program.read_json("estimate", *reports)
    assert fleet["totals"] == hosts["totals"]
    names = [{row["name"] for row in report["tenants"]} for report in (fleet, hosts)]
    assert names[0] == names[1] == {"web", "db", "mail", "cache"}
