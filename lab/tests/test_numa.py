# SPDX-License-Identifier: GPL-2.0-only
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


def test_high_watermark_is_summed_over_a_nodes_zones() -> None:
    zone = "Node {}, zone {}\n  pages free 9\n        high     {}\n    high:  7\n"
    text = "".join(
        zone.format(node, name, high)
        for node, name, high in ((0, "DMA", 104), (0, "DMA32", 200), (1, "Normal", 50))
    )
    assert numa.parse_high_watermark(text, 0) == 304
    assert numa.parse_high_watermark(text, 1) == 50
