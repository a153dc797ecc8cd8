"""Which events a producer has sent twice: the rules, without a database.

Owns these rules and does no I/O; a sink that remembers identities acts on them, in the transaction of the batch.

1. An event has an identity if the caller gives one: a text that a producer repeats when it sends an event again. One
   without is never a duplicate.
2. An event is a duplicate if another event of its identity was applied before, in this batch or an earlier one, and the
   times at which the two were enqueued are at most the window apart. It is dropped, with all of its rows, and counted;
   the watermark passes it.
3. An event is no duplicate of itself: a replay, a reset, or a batch cut otherwise finds it remembered as the first, and
   applies it again where the watermark lets it.
4. In a batch the first is the one that is applied first: by hub, partition and sequence number.
5. What is remembered is the first event; beyond the window, the latest of those that are no duplicates.
6. A memory may be forgotten once its event is two windows older than the oldest event of the batch at hand: a partition
   that lags behind the others by up to a window still finds it. Some are forgotten with each batch, twice as many as
   are remembered.
7. What is remembered is a digest of the expression and the value, so that another expression begins anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.sinks.batch import IDENTITY_COLUMNS, Identities
from leasehold.sinks.fence import Lane, Plan

FEWEST_FORGOTTEN = 100
"""So many memories are forgotten with a batch at least, if there are as many to forget."""


@dataclass(frozen=True, slots=True, order=True)
class Seen:
    """An event that has an identity. `time` is when it was enqueued, in microseconds since 1970."""

    hub: str
    partition: str
    sequence_number: int
    time: int

    @property
    def event(self) -> tuple[str, str, int]:
        return self.hub, self.partition, self.sequence_number


Memory = Mapping[str, Seen]
"""What is remembered: by digest of the identity, the first event."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which events are dropped, what is to be remembered, and before which time (microseconds) it may be forgotten."""

    dropped: frozenset[tuple[str, str, int]]
    remembered: Memory
    forget_before: int

    @property
    def forget_at_most(self) -> int:
        """How many memories to forget with this batch."""
        return max(FEWEST_FORGOTTEN, 2 * len(self.remembered))


def admitted(identities: Identities, plan: Plan) -> list[tuple[str, Seen]]:
    """The events of the batch that are new by `plan` and have an identity, in the order of rule 4, with its digest."""
    new: dict[Lane, list[tuple[int, int]]] = {}
    for each in plan.admitted:  # a partition has several ranges where it has had several owners
        new.setdefault(each.range.lane, []).append((max(each.after + 1, each.range.first), each.range.last))
    found = []
    for hub, partition, number, identity, time in _records(identities):
        if identity is None or time is None:
            continue
        if any(first <= number <= last for first, last in new.get((hub, partition), ())):
            found.append((digest(identities.expression, identity), Seen(hub, partition, number, time)))
    return sorted(found, key=lambda one: one[1].event)


def among(identities: Identities, events: Collection[tuple[str, str, int]]) -> list[tuple[str, Seen]]:
    """Those of these events that have an identity, in the order of rule 4, with its digest."""
    found = [
        (digest(identities.expression, identity), Seen(hub, partition, number, time))
        for hub, partition, number, identity, time in _records(identities)
        if identity is not None and time is not None and (hub, partition, number) in events
    ]
    return sorted(found, key=lambda one: one[1].event)


def judge(events: Sequence[tuple[str, Seen]], known: Memory, window: float) -> Verdict:
    """Rules 2 to 6. `known` has what is remembered of the identities of these events."""
    span = int(window * 1_000_000)
    latest = dict(known)
    dropped: set[tuple[str, str, int]] = set()
    remembered: dict[str, Seen] = {}
    for identity, seen in events:
        before = latest.get(identity)
        if before is not None and before.event != seen.event and abs(seen.time - before.time) <= span:
            dropped.add(seen.event)
        elif before is None or before.event != seen.event:
            latest[identity] = remembered[identity] = seen
    oldest = min((seen.time for _, seen in events), default=0)
    return Verdict(frozenset(dropped), remembered, oldest - 2 * span)


def digest(expression: str, identity: str) -> str:
    """Rule 7: 32 hexadecimal digits."""
    return blake2b(f"{len(expression)}:{expression}{identity}".encode(), digest_size=16).hexdigest()


def _records(identities: Identities) -> Iterator[tuple[str, str, int, str | None, int | None]]:
    rows = identities.rows.select(IDENTITY_COLUMNS)
    times = pc.cast(pc.cast(rows["enqueuedTime"], pa.timestamp("us", "UTC"), safe=False), pa.int64())
    columns = [rows[name].to_pylist() for name in IDENTITY_COLUMNS[:4]]
    yield from zip(*columns, times.to_pylist(), strict=True)
