# SPDX-License-Identifier: GPL-2.0-only
"""Which part begins next, and how long all of them still take."""

from collections.abc import Collection, Mapping, Sequence

from nuksmlab.suite.parts import Part

UNKNOWN_SECONDS = 120.0


def ready(
    parts: Sequence[Part], begun: Collection[str], passed: Collection[str]
) -> list[Part]:
    """Those that have not begun and have all that they need."""
    return [
        part
        for part in parts
        if part.name not in begun and all(name in passed for name in part.after)
    ]


def needed_by(parts: Sequence[Part], failed: Collection[str]) -> list[str]:
    """Those that cannot begin any more, in their order."""
    lost = set(failed)
    for _ in parts:
        lost |= {part.name for part in parts if lost.intersection(part.after)}
    return [
        part.name for part in parts if part.name in lost and part.name not in failed
    ]


def seconds_left(
    parts: Sequence[Part],
    running: Mapping[str, float],
    ended: Collection[str],
    last: Mapping[str, float],
    at_once: int,
) -> float:
    """By how long parts took the last time, one after the other as they are listed.

    `running` says for how long each of these has run, in seconds.
    """
    free = [0.0] * at_once
    end: dict[str, float] = dict.fromkeys(ended, 0.0)
    for slot, (name, ran) in enumerate(running.items()):
        free[slot] = end[name] = max(0.0, last.get(name, UNKNOWN_SECONDS) - ran)
    waiting = [part for part in parts if part.name not in end]
    while waiting:
        possible = [part for part in waiting if all(name in end for name in part.after)]
        if not possible:
            break
        slot = free.index(min(free))

        def begin(part: Part, slot: int = slot) -> float:
            return max([free[slot], *(end[name] for name in part.after)])

        part = min(possible, key=begin)
        free[slot] = end[part.name] = begin(part) + last.get(part.name, UNKNOWN_SECONDS)
        waiting.remove(part)
    return max([*free, *end.values()])
