# SPDX-License-Identifier: GPL-2.0-only
"""Pages that go away while they are merged, at each point where that can matter.

A kernel that does not check its memory can lose a page here and say nothing.
"""

import itertools
import time
from collections.abc import Iterator

import pytest

from nuksmlab import numa, stress
from nuksmlab.fuzz import model
from nuksmlab.fuzz.fuzzer import Fuzzer, Spec
from nuksmlab.ksm import FAST, Ksm

pytestmark = [pytest.mark.needs(nodes=2), pytest.mark.windows]

PAGES = 512
WIDTH = 2000  # microseconds
# A fuzzer acts for so long before it is asked what it has done.
SECONDS = 10.0
ACTIONS = 40
WINDOWS = stress.Windows()


@pytest.fixture(params=["", *(point.name for point in WINDOWS.points)])
def window(request: pytest.FixtureRequest) -> Iterator[None]:
    WINDOWS.open({request.param: WIDTH})
    yield
    WINDOWS.close()


@pytest.mark.usefixtures("window")
def test_pairs_can_go_away_at_any_moment(ksm: Ksm) -> None:
    ksm.set_speed(FAST)
    log = model.Log()
    ksm.start()
    with Fuzzer(Spec("pairs", "pairs", PAGES, 0, numa.online())) as fuzzer:
        actions = 0
        for seed in itertools.count():
            fuzzer.go(seed)
            time.sleep(SECONDS)
            answer = fuzzer.command("pause")
            fuzzer.judge(answer)
            log.check()
            actions += answer["actions"]
            if actions >= ACTIONS:
                break
        WINDOWS.close()
        ksm.stop()
        model.check_audit()
        model.check_mappings([fuzzer.pid])
    model.check_lost()
