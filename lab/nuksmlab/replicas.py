# SPDX-License-Identifier: GPL-2.0-only
"""The engine's copies of merged pages, which tests and experiments count."""

from nuksmlab import wait
from nuksmlab.ksm import Ksm


def count(ksm: Ksm) -> int:
    """On all nodes."""
    return sum(ksm.replicas().values())


def wait_for(ksm: Ksm, wanted: int) -> None:
    """Until there are exactly so many."""
    wait.until(
        lambda: count(ksm) == wanted,
        lambda: f"{wanted} replicas; there are {ksm.replicas()}",
    )
