"""Which events of a batch cannot be computed: found by halving.

Owns the search, and the judgement whether it is the events' fault. A range that computes is kept, one that does not is
cut in two, down to single events. So that an outage (a service that a user's function asks, a full disk) is not taken
for poison, nothing is rejected when too many fail: more than `most`, or more than a hundredth of the batch where that
is more than `FEW`; or when all of it fails, and events that were computed before fail now too.

Nothing here knows Spark: it is given a function that evaluates ranges, and one that says what a failure is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from leasehold.model import EventRange

FEW = 3
"""This many events may fail in a batch of any size: a hundredth of a small batch is less than one."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Poison:
    """One event that cannot be computed, as a range of one, and why."""

    event: EventRange
    error: str


@dataclass(frozen=True, slots=True)
class Sifted(Generic[T]):
    """What could be computed, in pieces, and what could not."""

    good: tuple[T, ...]
    poison: tuple[Poison, ...]


class TooMuchPoison(Exception):
    """More events fail than can be the events' own fault; `error` is what the last one failed with."""

    def __init__(self, failed: int, events: int, error: str) -> None:
        super().__init__(f"{failed} of {events} events cannot be computed, as far as they were tried: {error}")
        self.failed, self.events, self.error = failed, events, error

    @property
    def verdict(self) -> str:
        """What it comes to, in words."""
        return f"{self}. That is an outage, so nothing is rejected"


def allowed(events: int, most: int) -> int:
    """How many of this many events may fail before it counts as an outage."""
    return min(most, max(FEW, events // 100))


def sift(
    ranges: Sequence[EventRange],
    compute: Callable[[Sequence[EventRange]], T],
    why: Callable[[Exception], str | None],
    *,
    most: int,
    witness: Callable[[], bool],
) -> Sifted[T]:
    """Compute ranges but for the events that cannot be. `most` is the most that may be poison.

    `why` gives the reason of a failure that is the events' own, and None for any other, which is raised. `witness` is
    asked where nothing of the batch could be computed: whether what was computed before still can be. Raises
    `TooMuchPoison`.
    """
    events = sum(map(len, ranges))
    limit = allowed(events, most)
    good: list[T] = []
    poison: list[Poison] = []
    todo: list[tuple[EventRange, ...]] = list(reversed(halves(tuple(ranges))))
    while todo:
        some = todo.pop()
        try:
            good.append(compute(some))
        except Exception as error:
            reason = why(error)
            if reason is None:
                raise
            if sum(map(len, some)) > 1:
                todo += reversed(halves(some))
                continue
            poison.append(Poison(next(one for one in some if len(one)), reason))
            if len(poison) > limit:
                raise TooMuchPoison(len(poison), events, reason) from error
    if not good and not witness():
        raise TooMuchPoison(len(poison), events, poison[-1].error if poison else "")
    return Sifted(tuple(good), tuple(poison))


def halves(ranges: tuple[EventRange, ...]) -> list[tuple[EventRange, ...]]:
    """The ranges in two parts of as equal a number of events as can be; a single event stays one part."""
    total = sum(map(len, ranges))
    if total < 2:
        return [ranges]
    first: list[EventRange] = []
    second: list[EventRange] = []
    left = total // 2
    for one in ranges:
        take = min(left, len(one))
        left -= take
        if take:
            first.append(replace(one, end=one.begin + take))
        if take < len(one):
            second.append(replace(one, begin=one.begin + take, left_out_from=None if take else one.left_out_from))
    return [tuple(first), tuple(second)]
