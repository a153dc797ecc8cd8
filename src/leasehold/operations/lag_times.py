"""How far a consumer group is behind in time, and how long it has until retention removes what it has not read.

Owns the two definitions. The lag in seconds of a partition is the age of its oldest unread event: the present time
less the time at which that event was enqueued, and 0 where nothing is unread. So it grows while a group stands still,
also when nothing new is sent. What is left is the time for which the hub keeps an event less that age: at 0 the hub
may remove the event at any moment (it may also keep it for longer). Reads only, in a bounded number of requests;
what a hub does not tell in time is None.

In a hub whose numbers have gaps (`Hub.has_gaps`) nothing is unread where no event is: marks of transactions and
messages that were aborted or compacted are not waited for. Those between two events that are unread still count. Event
Hubs does not tell what compaction has taken away: there the lag in events is the most that it can be, and the lag in
seconds that of the first event that is there.

The checkpoint keeps the time of its last event (`PartitionProgress.enqueued`), and what comes behind it is no older. So
the lag is at most the time since then. Where that is less than `NEAR`, as it is where a group keeps up, it is told for
the lag, and the hub is not asked. Else the hub is: after a pause of the stream that bound says nothing, and what
retention leaves is counted from the event itself. The bound is told too where the hub does not tell, as Event Hubs
beside a fleet with owner levels; what is left is unknown then.

The age compares this machine's clock with the one that enqueued times are of: the hub's, or its producers'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leasehold.hubs.base import FirstEvent, HeldBack, Hub
from leasehold.operations.progress import PartitionProgress

NEAR = 10.0
"""Seconds since the checkpoint's event was enqueued, below which the hub is not asked for the first unread one."""


@dataclass(frozen=True, slots=True)
class PartitionTimes:
    """Of one partition, in seconds. `lag` is None where it is not known.

    `left` is until the first unread event may be removed: None where that is not known or nothing is unread, infinity
    where no event is removed by its age. `unread` is the lag in events: the numbers from the first unread event to the
    end. `held_back` numbers behind the end cannot be read yet, the oldest of them written `held_for` seconds ago.
    """

    partition: str
    lag: float | None
    left: float | None
    unread: int
    held_back: int = 0
    held_for: float | None = None


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """All partitions, and for how long the hub keeps an event: None where nobody knows, infinity for ever."""

    partitions: tuple[PartitionTimes, ...]
    retention: float | None

    @property
    def lag(self) -> float | None:
        """The longest lag of those that are known."""
        return max((one.lag for one in self.partitions if one.lag is not None), default=None)

    @property
    def left(self) -> float | None:
        """The shortest time that is left, of those that are known."""
        return min((one.left for one in self.partitions if one.left is not None), default=None)


Known = dict[str, FirstEvent]
"""By partition, the first event from a place on, as a hub has told it. An event's time does not change."""


def lag_times(
    hub: Hub,
    rows: Sequence[PartitionProgress],
    now: float,
    *,
    retention: float | None = None,
    timeout: float = 5.0,
    cache: Known | None = None,
) -> GroupTimes:
    """Ask the hub about these partitions. `now` in seconds since the epoch; `retention` in place of what the hub says.

    Asks for at most about three times `timeout` seconds, and raises nothing for what the hub does not tell. `cache` is
    what earlier looks have found out, and is brought up to date: a partition that stands still is not asked about
    again. (But in a hub with gaps, where what comes first may have been compacted away meanwhile.)
    """
    unread = {row.partition: oldest_unread(row) for row in rows if row.lag}
    firsts: Mapping[str, FirstEvent] = {}
    held: Mapping[str, HeldBack] = {}
    if hub.has_gaps:
        firsts = hub.first_events(unread, timeout) if unread else {}
        held = hub.held_back([row.partition for row in rows], timeout)
    elif unread:
        near = {row.partition: _near(row, now) for row in rows}
        unread = {partition: start for partition, start in unread.items() if near[partition] is None}
        kept = {} if cache is None else {p: one for p, one in cache.items() if unread.get(p) == one.sequence_number}
        asked = {partition: start for partition, start in unread.items() if partition not in kept}
        firsts = {**kept, **(hub.first_events(asked, timeout) if asked else {})}
        if cache is not None:
            cache.clear()
            cache.update(firsts)
        bounds = {row.partition: FirstEvent(oldest_unread(row), near[row.partition]) for row in rows}
        firsts = {**{p: one for p, one in bounds.items() if one.enqueued is not None}, **firsts}
    retention = hub.retention(timeout) if retention is None else retention
    told = (times_of(row, firsts.get(row.partition), now, retention, held.get(row.partition)) for row in rows)
    return GroupTimes(tuple(told), retention)


def oldest_unread(row: PartitionProgress) -> int:
    """The sequence number of the first event that has not been read, or that is left of those."""
    return max(row.place, row.begin)


def _near(row: PartitionProgress, now: float) -> float | None:
    """When the event before the first unread one was enqueued, if that is so short ago that it will do."""
    return row.enqueued if _bounds(row) and row.enqueued is not None and now - row.enqueued < NEAR else None


def _bounds(row: PartitionProgress) -> bool:
    """Whether the checkpoint stands right before the first unread event."""
    return row.checkpoint is not None and row.checkpoint >= row.begin


def times_of(
    row: PartitionProgress, first: FirstEvent | None, now: float, retention: float | None, held: HeldBack | None = None
) -> PartitionTimes:
    """The times of one partition whose first unread event is `first`, as far as the hub tells."""
    unread = row.lag if first is None else min(row.lag, max(0, row.end - first.sequence_number))
    enqueued = first.enqueued if first else None
    if held is None:
        behind: tuple[int, float | None] = (0, None)
    else:
        behind = held.count, None if held.since is None else max(0.0, now - held.since)
    if not unread:
        return PartitionTimes(row.partition, 0.0, None, 0, *behind)
    if enqueued is None:
        at_most = max(0.0, now - row.enqueued) if _bounds(row) and row.enqueued is not None else None
        return PartitionTimes(row.partition, at_most, math.inf if retention == math.inf else None, unread, *behind)
    age = max(0.0, now - enqueued)  # clocks that differ make no event younger than new
    return PartitionTimes(row.partition, age, None if retention is None else max(0.0, retention - age), unread, *behind)
