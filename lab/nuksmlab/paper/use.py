# SPDX-License-Identifier: GPL-2.0-only
"""Instances use some pages more than others, and nuksmd's looks learn of it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from nuksmlab import replicas, wait
from nuksmlab.ksm import Ksm
from nuksmlab.paper.start import Running
from nuksmlab.paper.trial import Busy, Learned, Use
from nuksmlab.workload import Instance

NAME = "skewed"

EQUAL, ZIPF, APART, IDLE = "equal", "zipf", "apart", "idle"
# The hot pages become others half-way, or a tenant goes to another one's node: just
# now, or some time ago.
MOVED, RELOCATED, SETTLED = "moved", "relocated", "settled"

# Operations a second, for each page: as of 16 GiB, used 20 million times a second.
USES_BY_PAGE = 5
# Of a CPU: emulated ones take long for what others do in the default's time.
PERMILLE = 1000
# So many looks learn what is hot.
LOOKS = 24
# And so many where pages go to the one who uses them: each once those who are on its
# node happen not to use it for some looks.
LOOKS_APART = 48
# With this budget so many more see what still changes.
WATCHED_PERCENT = 5
LATE_LOOKS = 20
# After that.
LOOKS_AFTER_MOVE = 10
LOOKS_AFTER = {
    MOVED: LOOKS_AFTER_MOVE,
    RELOCATED: LOOKS_AFTER_MOVE,
    SETTLED: 3 * LOOKS_AFTER_MOVE,
}


def configure(ksm: Ksm, use: Use) -> None:
    ksm.write("merge_across_nodes", int(use["across"]))
    ksm.write("replica_percent", use["budget_percent"])
    ksm.write("look_cpu_permille", PERMILLE)


def hot_pages(use: Use, pages: int) -> int:
    return pages * use["hot_percent"] // 100


def prefer(use: Use, instances: Sequence[Instance], first: int = 0) -> None:
    for number, instance in enumerate(instances):
        hot = hot_pages(use, instance.pages)
        apart = number * hot if use["kind"] == APART else 0
        instance.prefer(first + apart, hot)


@contextmanager
def using(use: Use, instances: Sequence[Instance]) -> Iterator[None]:
    busy = instances[:1] if use["kind"] == IDLE else instances
    with ExitStack() as stack:
        for instance in busy:
            stack.enter_context(instance.using(USES_BY_PAGE * instance.pages))
        yield


class Watch:
    """Of replicas, for as long as it is asked for looks."""

    def __init__(self, ksm: Ksm) -> None:
        self.ksm = ksm
        self.most = 0
        self.began = self.changes()

    def changes(self) -> tuple[int, int, int]:
        """Replicas made and folded, and pages moved."""
        made, folded, migrated = (
            self.ksm.read(name)
            for name in ("replicas_made", "replicas_folded", "migrated")
        )
        return made, folded, migrated

    def look(self, looks: int) -> None:
        goal = self.ksm.read("looks") + looks

        def looked() -> bool:
            self.most = max(self.most, replicas.count(self.ksm))
            return self.ksm.read("looks") >= goal

        wait.until(looked, lambda: f"look {goal}", poll=0.02)

    def learned(self, late: int | None) -> Learned:
        made, folded, migrated = (
            now - then for now, then in zip(self.changes(), self.began, strict=True)
        )
        return {
            "made": made,
            "folded": folded,
            "migrated": migrated,
            "late": late,
            "replicas": replicas.count(self.ksm),
            "most": self.most,
            "glance_ms": self.ksm.read("replica_glance_ms"),
            "refused": self.ksm.read("replicas_refused"),
        }


def late_changes(watch: Watch) -> int:
    before = sum(watch.changes())
    watch.look(LATE_LOOKS)
    return sum(watch.changes()) - before


def merge_busy(ksm: Ksm, busy: Busy, running: Sequence[Running]) -> None:
    """While all work, until all is merged; ksmd goes on."""
    instances = [one for one in running if isinstance(one, Instance)]
    ksm.write("look_cpu_permille", PERMILLE)
    with ExitStack() as stack:
        for one in instances:
            one.prefer(0, one.pages * busy["hot_percent"] // 100)
            stack.enter_context(one.using(USES_BY_PAGE * one.pages))
        ksm.merge(sum(one.equal_pages for one in instances))
        Watch(ksm).look(busy["looks"])


def merge(ksm: Ksm, use: Use, running: Sequence[Running]) -> Learned | None:
    """Merges all, and lets looks learn what is hot, if there are any."""
    instances = [one for one in running if isinstance(one, Instance)]
    prefer(use, instances)
    ksm.merge(sum(one.equal_pages for one in instances) if use["across"] else 0)
    if not use["learns"]:
        return None
    watch = Watch(ksm)
    with using(use, instances):
        watch.look(LOOKS_APART if use["kind"] == APART else LOOKS)
        late = late_changes(watch) if use["budget_percent"] == WATCHED_PERCENT else None
    if use["kind"] == MOVED:
        prefer(use, instances, instances[0].pages // 2)
    if use["kind"] in (RELOCATED, SETTLED):
        instances[-1].move(instances[0].node)
    if after := LOOKS_AFTER.get(use["kind"]):
        with using(use, instances):
            watch.look(after)
    return watch.learned(late)
