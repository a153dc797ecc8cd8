"""How far a consumer group is behind in time, and how long it has until retention removes what it has not read.

Owns the two definitions. The lag in seconds of a partition is the age of its oldest unread event: the present time
less the time at which that event was enqueued, and 0 where nothing is unread. So it grows while a group stands still,
also when nothing new is sent. What is left is the time for which the hub keeps an event less that age: at 0 the hub
may remove the event at any moment (it may also keep it for longer). Reads only, in a bounded number of requests;
what a hub does not tell in time is None.

The age compares this machine's clock with the one that enqueued times are of: the hub's, or its producers'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leasehold.hubs.base import Hub, TellsTimes
from leasehold.processor.progress import PartitionProgress


@dataclass(frozen=True, slots=True)
class PartitionTimes:
    """Of one partition, in seconds. `lag` is None where it is not known.

    `left` is until the first unread event may be removed: None where that is not known or nothing is unread, infinity
    where no event is removed by its age.
    """

    partition: str
    lag: float | None
    left: float | None


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


def lag_times(
    hub: Hub, rows: Sequence[PartitionProgress], now: float, *, retention: float | None = None, timeout: float = 5.0
) -> GroupTimes:
    """Ask the hub about these partitions. `now` in seconds since the epoch; `retention` in place of what the hub says.

    Asks for at most about twice `timeout` seconds, and raises nothing for what the hub does not tell.
    """
    unread = {row.partition: oldest_unread(row) for row in rows if row.lag}
    enqueued: Mapping[str, float] = {}
    if isinstance(hub, TellsTimes):
        enqueued = hub.enqueued_times(unread, timeout) if unread else {}
        retention = hub.retention(timeout) if retention is None else retention
    return GroupTimes(tuple(times_of(row, enqueued.get(row.partition), now, retention) for row in rows), retention)


def oldest_unread(row: PartitionProgress) -> int:
    """The sequence number of the first event that has not been read, or that is left of those."""
    return max(row.checkpoint or 0, row.begin)


def times_of(row: PartitionProgress, enqueued: float | None, now: float, retention: float | None) -> PartitionTimes:
    """The times of one partition whose oldest unread event was enqueued at `enqueued`."""
    if not row.lag:
        return PartitionTimes(row.partition, 0.0, None)
    if enqueued is None:
        return PartitionTimes(row.partition, None, math.inf if retention == math.inf else None)
    age = max(0.0, now - enqueued)  # clocks that differ make no event younger than new
    return PartitionTimes(row.partition, age, None if retention is None else max(0.0, retention - age))
