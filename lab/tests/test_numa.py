# SPDX-License-Identifier: GPL-2.0-only
from pathlib import Path

import pytest

from nuksmlab import numa

MAPS = """\
7f0000000000 bind:0 anon=30 dirty=30 active=0 N0=10 N1=20 kernelpagesize_kB=4
7f0000100000 bind:0
7f0000200000 default file=/lib/libc.so N10=3 kernelpagesize_kB=4
"""


@pytest.mark.parametrize(
    ("address", "pages"),
    [
        (0x7F0000000000, {0: 10, 1: 20}),
        (0x7F0000100000, {}),
        (0x7F0000200000, {10: 3}),
    ],
)
def test_pages_per_node(address: int, pages: dict[int, int]) -> None:
    assert numa.parse_numa_maps(MAPS, address) == pages


def test_anonymous_pages_are_those_of_mappings_that_have_some() -> None:
    assert numa.parse_anonymous(MAPS) == {0: 10, 1: 20}


def test_unknown_mapping_is_an_error() -> None:
    with pytest.raises(ValueError, match="no mapping"):
        numa.parse_numa_maps(MAPS, 0x1000)


def test_zones_keep_what_only_some_may_take() -> None:
    zone = """\
Node {}, zone {}
  pages free     {}
        boost    0
        high     {}
        high_free 7
        protection: (0, {}, {})
    high:  7
    cpu: 0
              count:    3
              high:     7
    cpu: 1
              count:    {}
"""
    text = "".join(
        zone.format(*fields)
        for fields in (
            (0, "DMA", 900, 100, 10, 300, 0),
            (0, "DMA32", 90, 100, 0, 0, 20),
            (1, "Normal", 900, 50, 0, 0, 1),
        )
    )
    zones = numa.parse_zones(text)
    assert [zone.node for zone in zones] == [0, 0, 1]
    assert [zone.high for zone in zones] == [100, 100, 50]
    assert [zone.room for zone in zones] == [500, -10, 850]
    assert [zone.listed for zone in zones] == [3, 23, 4]
    zones[0].free = 300
    assert zones[0].room == 0, "all of it is kept for others"


def test_pages_in_cpus_lists_are_free_too(tmp_path: Path) -> None:
    zoneinfo = tmp_path / "zoneinfo"
    zoneinfo.write_text(
        "Node 0, zone   Normal\n  per-node stats\n      nr_file_pages 20\n"
        "  pages free     90\n        boost    0\n"
        "      nr_free_pages 90\n      nr_zone_inactive_anon 5\n  pagesets\n"
        "    cpu: 0\n              count: 7\n              high:  12\n"
        "    cpu: 1\n              count: 3\n              high:  12\n"
        "Node 1, zone   Normal\n      nr_free_pages 1000\n"
    )
    assert numa.spare_pages(zoneinfo) == 1120
