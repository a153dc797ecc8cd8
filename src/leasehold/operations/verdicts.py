"""How a partition is getting on, in one word and why: PURE, after the rules of Burrow.

Owns the verdicts and their rules. They go by what was seen of a partition over a window of time, the `Look`s, and never
by a threshold of lag: ten thousand unread events are nothing where they are gone in a second. The first rule that
matches:

1. The hub ends before the place of the group, or the place fell within the window and has not been reached again:
   REWOUND.
2. Nothing is unread: OK.
3. Enough owners in a row came to a bad end that the partition is a suspect, or a person has to mend something before
   it goes on: STALLED. The records say so at one look.
4. Nobody has held it for longer than an heir takes (`patience`): STOPPED. The records say so too.
5. At some look of the window nothing was unread: OK. A slow topic is no fault.
6. The looks do not fill the window yet: UNKNOWN.
7. The place has not moved: STALLED where somebody held it at some look, else STOPPED.
8. What is unread has grown and never shrunk: LAGGING; else OK.

Burrow sees neither owners nor bad ends (rules 3 and 4), and counts a lag that stays the same as lagging (rule 8). The
numbers are Burrow's, so that what goes by them may stay as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from leasehold.printable import span


class Standing(IntEnum):
    """How a partition, or a group, is getting on."""

    UNKNOWN = 0
    OK = 1
    LAGGING = 2
    STOPPED = 4
    STALLED = 5
    REWOUND = 6


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and why in one sentence for people."""

    verdict: Standing
    why: str


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a partition `at` a time, in seconds of a monotonic clock.

    `place` is the sequence number that comes next for the group, `end` the one that the next event will get, `unread`
    how many events are between them. `held`: a live owner had it. `unheld`: for how many seconds nobody had held it,
    infinity if nobody ever has, None where the records do not tell.
    """

    at: float
    place: int
    end: int
    unread: int
    held: bool
    unheld: float | None = None


def judged(
    looks: Sequence[Look],
    *,
    window: float,
    patience: float,
    owner: str = "",
    bad_ends: int = 0,
    error: str = "",
    waits: bool = False,
) -> Judgement:
    """The judgement of a partition of which `looks` are known, in order, at least one.

    `window` and `patience` in seconds. `owner` is on record. `bad_ends` is given where they make it a suspect, else 0,
    and `error` is how the last of them ended; or what a person has to mend (`waits`).
    """
    last = looks[-1]
    if last.place > last.end:
        return Judgement(Standing.REWOUND, f"the hub ends at {last.end}, before {last.place}, which comes next")
    highest = max(look.place for look in looks)
    if highest > last.place:
        return Judgement(Standing.REWOUND, f"its place went back from {highest}, and is at {last.place}")
    if not last.unread:
        return Judgement(Standing.OK, "nothing is unread")
    if bad_ends:
        return Judgement(
            Standing.STALLED, f"{bad_ends} owners in a row came to a bad end and no event was done: {error}"
        )
    if waits:
        return Judgement(Standing.STALLED, f"it waits until a person mends this: {error}")
    if last.unheld is not None and last.unheld > patience:
        return Judgement(Standing.STOPPED, f"{_nobody(owner, last.unheld)}, and {last.unread} events are unread")
    caught_up = max((look.at for look in looks if not look.unread), default=None)
    if caught_up is not None:
        return Judgement(Standing.OK, f"nothing was unread {span(last.at - caught_up)} ago")
    seen = last.at - looks[0].at
    if seen < window:
        return Judgement(Standing.UNKNOWN, f"watched for {span(seen)}, and it takes {span(window)} to tell")
    return _over_the_window(looks, seen)


def _over_the_window(looks: Sequence[Look], seen: float) -> Judgement:
    """Rules 7 and 8, where something was unread at each look of a whole window."""
    first, last = looks[0], looks[-1]
    if first.place == last.place:
        if any(look.held for look in looks):
            return Judgement(Standing.STALLED, f"no event was done in {span(seen)}, and {last.unread} are unread")
        return Judgement(Standing.STOPPED, f"nobody has held it for {span(seen)}, and {last.unread} events are unread")
    shrank = any(later.unread < earlier.unread for earlier, later in pairwise(looks))
    if last.unread > first.unread and not shrank:
        grown = last.unread - first.unread
        return Judgement(Standing.LAGGING, f"{grown} more events are unread than {span(seen)} ago, and never fewer")
    return Judgement(Standing.OK, f"{last.place - first.place} numbers further than {span(seen)} ago")


def _nobody(owner: str, unheld: float) -> str:
    if math.isinf(unheld):
        return f"{owner} held it before the last restart of the store's clock" if owner else "nobody has ever held it"
    return f"{owner} expired {span(unheld)} ago" if owner else f"nobody has held it for {span(unheld)}"


def worst(verdicts: Iterable[Standing]) -> Standing:
    """The verdict of a group: OK only if all of its partitions are. The worst of those that are known to be bad."""
    there = set(verdicts)
    known = max(there, default=Standing.UNKNOWN)
    return Standing.UNKNOWN if known is Standing.OK and Standing.UNKNOWN in there else known


class Window:
    """The looks at one partition that its judgement needs: those within `seconds`, and the last one before them.

    Looks that follow one another closely are thinned, so that however often somebody looks, about twenty are kept.
    """

    __slots__ = ("_looks", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._looks: list[Look] = []

    def add(self, look: Look) -> Sequence[Look]:
        """Note a look, the latest of all, and return those that count."""
        looks = self._looks
        if len(looks) > 1 and look.at - looks[-2].at < self._seconds / 20:
            looks.pop()
        looks.append(look)
        outside = sum(1 for one in looks if one.at <= look.at - self._seconds)
        del looks[: max(0, outside - 1)]
        return looks
