# SPDX-License-Identifier: GPL-2.0-only
"""Where things are. The same paths hold on the host and in the guest."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build"
TENANT = BUILD / "tenant"
FUZZER = BUILD / "fuzzer"
WORKLOAD = BUILD / "workload"
BOUND = BUILD / "bound"
NEIGHBOUR = BUILD / "neighbour"
SMALL_VM = BUILD / "small_vm"
COUNTER = BUILD / "dram.so"
# Hardly optimized: built in less than half of the time. And it checks its arithmetic.
NUKSM = BUILD / "nuksm"
NUKSM_DEMO = BUILD / "nuksm-demo"
# As users have it: for what it costs.
NUKSM_RELEASE = REPOSITORY / "target" / "release" / "nuksm"


def cache() -> Path:
    """What is worth keeping over a `make clean`: kernels, and what works here."""
    if own := os.environ.get("NUKSM_CACHE"):
        return Path(own).absolute()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home.absolute() / "nuksm"
