# SPDX-License-Identifier: GPL-2.0-only
"""What all tests that run in a machine have in common."""

import pytest

from nuksmlab import numa


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leaves out what needs a machine with another number of nodes."""
    nodes = len(numa.online())
    fit: list[pytest.Item] = []
    unfit: list[pytest.Item] = []
    for item in items:
        marker = item.get_closest_marker("needs")
        wanted = marker.kwargs["nodes"] if marker else nodes
        (fit if wanted == nodes else unfit).append(item)
    config.hook.pytest_deselected(items=unfit)
    items[:] = fit
