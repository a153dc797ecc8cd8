"""Which events a producer has sent twice: the rules, without a database.

Owns these rules and does no I/O; a sink that remembers identities acts on them, in the transaction of the batch.

1. An event has an identity if the caller gives one: a text that a producer repeats when it sends an event again. One
   without is never a duplicate.
2. An event is a duplicate if another event of its identity was applied before, in this batch or an earlier one, and the
   times at which the two were enqueued are at most the window apart (or those of rule 8). It is dropped, with all of
   its rows, and counted; the watermark passes it.
3. An event is no duplicate of itself: a replay, a reset, or a batch cut otherwise finds it remembered as the first, and
   applies it again where the watermark lets it.
4. In a batch the first is the one that is applied first: by hub, partition and sequence number.
5. What is remembered is the first event; beyond the window, the latest of those that are no duplicates.
6. A memory may be forgotten once its event is two windows older than what the table has reached: the highest median of
   the times of a batch so far. A partition that lags behind the others by up to a window still finds it, and no clock
   that is wrong by itself moves it. Some are forgotten with each batch, twice as many as are remembered.
7. What is remembered is a digest of the expression and the value, so that another expression begins anew.
8. An event that was enqueued at no time, in the future, or so long ago that its memory would be forgotten at once, is
   untimely: it also has the time that the table has reached when it comes. So it is remembered for two windows like any
   other, and a repeat is found by when it comes. Those that are applied are counted: a repeat of one that was forgotten
   looks like the first.
9. The future begins a day after the sink's clock, and a median beyond that clock counts as the clock: a batch with
   nothing but a clock of 2100 moves nothing, an hour of difference moves the table no further than to the present, and
   a sink whose clock is a little behind the hub's forgets all the same. Of hubs like Kafka a producer gives the time
   itself, so that nothing else bounds it. Where the table has reached no time yet, the sink's clock stands in.
10. A person's reset to earlier events begins with no time reached, since the old events are timely again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.sinks.rules.batch import IDENTITY_COLUMNS, Identities
from leasehold.sinks.rules.fence import FencePlan, Lane

FEWEST_FORGOTTEN = 100
"""Each batch forgets at least this many expired memories, if there are that many."""
FUTURE = 86_400_000_000
"""Microseconds after the sink's clock at which rule 9 has the future begin: no server's clock is as wrong as that."""


@dataclass(frozen=True, slots=True, order=True)
class Seen:
    """An event that has an identity. `time` is when it was enqueued, in microseconds since 1970, or that of rule 8."""

    hub: str
    partition: str
    sequence_number: int
    time: int

    @property
    def event(self) -> tuple[str, str, int]:
        return self.hub, self.partition, self.sequence_number


@dataclass(frozen=True, slots=True)
class IdentifiedEvent:
    """An event of a batch, the digest of its identity, and when it was enqueued, as in `Seen`, if that is known."""

    identity: str
    event: tuple[str, str, int]
    time: int | None


Memory = Mapping[str, Seen]
"""What is remembered: by digest of the identity, the first event."""


@dataclass(frozen=True, slots=True)
class DuplicatesFound:
    """Which events are dropped, and what is to be remembered; the others of rule 8.

    `reached` is the time of rule 6 with this batch, None if nobody knows yet. What is from before `forget_before` may
    be forgotten. Both are in microseconds since 1970.
    """

    dropped: frozenset[tuple[str, str, int]]
    remembered: Memory
    untimely: int
    reached: int | None
    forget_before: int

    @property
    def forget_at_most(self) -> int:
        """How many memories to forget with this batch."""
        return max(FEWEST_FORGOTTEN, 2 * len(self.remembered))


def admitted(identities: Identities, plan: FencePlan) -> list[IdentifiedEvent]:
    """The events of the batch that are new by `plan` and have an identity, in the order of rule 4."""
    new: dict[Lane, list[tuple[int, int]]] = {}
    for each in plan.admitted:  # a partition has several ranges where it has had several owners
        new.setdefault(each.range.lane, []).append((max(each.after + 1, each.range.first), each.range.last))
    return _known(
        identities,
        lambda event: any(first <= event[2] <= last for first, last in new.get(event[:2], ())),
    )


def among(identities: Identities, events: Collection[tuple[str, str, int]]) -> list[IdentifiedEvent]:
    """Those of these events that have an identity, in the order of rule 4."""
    return _known(identities, lambda event: event in events)


def judge(
    events: Sequence[IdentifiedEvent], memory: Memory, window: float, reached: int | None, now: int
) -> DuplicatesFound:
    """Rules 2 to 6, 8 and 9. `memory` has what is remembered of the identities of these events.

    `reached` is the time that the table has reached before them, and `now` the sink's clock, both in microseconds.
    """
    span = int(window * 1_000_000)
    farther = _farther(events, reached, now)
    arrival = now if farther is None else farther
    latest = dict(memory)
    dropped: set[tuple[str, str, int]] = set()
    remembered: dict[str, Seen] = {}
    untimely = 0
    for one in events:
        own = one.time
        timely = own is not None and own <= now + FUTURE and (reached is None or own >= reached - 2 * span)
        time = own if timely and own is not None else arrival
        before = latest.get(one.identity)
        if before is not None and before.event == one.event:
            continue
        if before is not None and any(abs(at - before.time) <= span for at in (own, time) if at is not None):
            dropped.add(one.event)
            continue
        latest[one.identity] = remembered[one.identity] = Seen(*one.event, time)
        untimely += not timely
    return DuplicatesFound(frozenset(dropped), remembered, untimely, farther, arrival - 2 * span)


def _farther(events: Sequence[IdentifiedEvent], reached: int | None, now: int) -> int | None:
    """The time that the table has reached with these events: it never goes back."""
    times = sorted(one.time for one in events if one.time is not None and one.time <= now + FUTURE)
    if not times:
        return reached
    median = min(times[(len(times) - 1) // 2], now)
    return median if reached is None else max(reached, median)


def digest(expression: str, identity: str) -> str:
    """Rule 7: 32 hexadecimal digits."""
    return blake2b(f"{len(expression)}:{expression}{identity}".encode(), digest_size=16).hexdigest()


def _known(identities: Identities, is_meant: Callable[[tuple[str, str, int]], bool]) -> list[IdentifiedEvent]:
    rows = identities.rows.select(IDENTITY_COLUMNS)
    times = pc.cast(pc.cast(rows["enqueuedTime"], pa.timestamp("us", "UTC"), safe=False), pa.int64()).to_pylist()
    hubs, partitions, numbers, texts = (rows[name].to_pylist() for name in IDENTITY_COLUMNS[:4])
    found = [
        IdentifiedEvent(digest(identities.expression, text), event, time)
        for event, text, time in zip(zip(hubs, partitions, numbers, strict=True), texts, times, strict=True)
        if text is not None and is_meant(event)
    ]
    return sorted(found, key=lambda one: one.event)
