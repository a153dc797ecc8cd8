"""A consumer group as seen from outside, look after look: a snapshot of each, with a verdict on every partition.

Owns what a look asks, and what is remembered between two: the window that verdicts need, and when a partition was last
seen to get on. Everything comes from the hub, the stores and the table, so that it is there when nobody runs, and for
partitions that nobody holds. A look takes one request for the ownership, one for the checkpoints, two for the table
(now and then: see below), and what the hub needs to tell its ends and the age of the first unread events: once for each
place, so that a group that stands still costs no more. Reads only.

What the table holds, and what is set aside beside it, is counted again only when twenty times as long has passed as
counting takes, so that a large table costs a twentieth of one processor at most, but for its first counts. It takes the
shorter of the last two times: one that waited for a database that hung says nothing of the next one. A table that is
away leaves its own figures out and nothing else.

For one thread. It may stop for as long as it likes at any line: the next look finds the time that has passed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from leasehold.clock import Clock, SystemClock
from leasehold.errors import LeaseholdError
from leasehold.hubs.base import Hub
from leasehold.model import ConsumerGroup, Positions
from leasehold.operations.lag_times import GroupTimes, Known, PartitionTimes, lag_times
from leasehold.operations.progress import GroupProgress, PartitionProgress, group_progress
from leasehold.operations.verdicts import Judgement, Look, Standing, Window, judged, worst
from leasehold.sinks.base import TableContents
from leasehold.sinks.set_aside import SetAsideCounts
from leasehold.stores.base import CheckpointStore, OwnershipStore

logger = logging.getLogger(__name__)
C = TypeVar("C")

WINDOW = 300.0
"""Seconds for which a partition is watched before it is said to lag or to stall."""
_IDLE_SHARE = 20  # a count of the table is left alone for this many times as long as it took


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedGroup:
    """What there is to look at. `expiration`, `foreign_expiration` and `retention` as `group_progress` takes them.

    `balanced` is False where instances have fixed shares, of which no record says who holds them. `timeout`: how long
    to wait for what the hub says of times, in seconds. `table` says what the table holds, and `set_aside` what is set
    aside beside it; None where nobody can tell.
    """

    pipeline: str
    hub: Hub
    group: ConsumerGroup
    ownership: OwnershipStore
    checkpoints: CheckpointStore
    expiration: float
    foreign_expiration: float | None = None
    ours: Callable[[Collection[str]], tuple[str, ...]] = tuple
    balanced: bool = True
    positions: Positions = field(default_factory=Positions)
    retention: float | None = None
    table: Callable[[], TableContents | None] = lambda: None
    set_aside: Callable[[], SetAsideCounts | None] = lambda: None
    timeout: float = 2.0

    @property
    def has_transactions(self) -> bool:
        """Whether what producers have written may have to wait for the end of a transaction."""
        return self.hub.has_gaps

    def progress(self) -> GroupProgress:
        """How the group is getting on: two requests to the stores, and one look at the hub's ends."""
        return group_progress(
            self.hub,
            self.group,
            self.ownership,
            self.checkpoints,
            self.expiration,
            self.ours,
            foreign_expiration=self.foreign_expiration,
            positions=self.positions,
        )

    def times(self, progress: GroupProgress, now: float, cache: Known | None = None) -> GroupTimes:
        """How far behind that is in time. `now` in seconds since the epoch, `cache` as `lag_times` takes it."""
        rows = progress.partitions
        return lag_times(self.hub, rows, now, retention=self.retention, timeout=self.timeout, cache=cache)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition at a look. `got_on` is when it was last seen to get on, or to have nothing unread, or else since
    when it has been watched: seconds since the epoch."""

    progress: PartitionProgress
    times: PartitionTimes
    judgement: Judgement
    got_on: float

    @property
    def verdict(self) -> Standing:
        """How it is getting on."""
        return self.judgement.verdict


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group at one look, `at` seconds since the epoch; the look took `took` seconds. `table` and `set_aside` are None
    where nobody can tell."""

    watched: WatchedGroup
    at: float
    took: float
    progress: GroupProgress
    times: GroupTimes
    partitions: tuple[PartitionState, ...]
    table: TableContents | None
    set_aside: SetAsideCounts | None

    @property
    def verdict(self) -> Standing:
        """How the group is getting on: the worst that is known of its partitions."""
        return worst(one.verdict for one in self.partitions)

    @property
    def lag(self) -> int:
        """How many events are unread in all."""
        return sum(one.times.unread for one in self.partitions)

    def count(self, fits: Callable[[PartitionState], bool]) -> int:
        """How many partitions are so."""
        return sum(1 for one in self.partitions if fits(one))


class GroupWatch:
    """Looks at one group, and remembers what it saw. `window` in seconds."""

    def __init__(self, watched: WatchedGroup, *, window: float = WINDOW, clock: Clock | None = None) -> None:
        self._watched = watched
        self._window = window
        self._clock = clock or SystemClock()
        self._windows: dict[str, Window] = {}
        self._places: dict[str, tuple[int, float]] = {}
        self._known: Known = {}
        self._table = WatchedCount(watched.pipeline, "what its table holds", watched.table, self._clock)
        self._aside = WatchedCount(
            watched.pipeline, "what is set aside beside its table", watched.set_aside, self._clock
        )

    def look(self) -> GroupSnapshot:
        """Look now. Raises what the hub and the stores raise; what was remembered stays."""
        started = self._clock.monotonic()
        progress = self._watched.progress()
        at, now = self._clock.monotonic(), self._clock.wall()
        times = self._watched.times(progress, now, self._known)
        partitions = tuple(
            PartitionState(row, time, self._judged(row, time, at), self._got_on(row, time, now))
            for row, time in zip(progress.partitions, times.partitions, strict=True)
        )
        table, aside = self._table.latest(), self._aside.latest()
        took = self._clock.monotonic() - started
        return GroupSnapshot(self._watched, now, took, progress, times, partitions, table, aside)

    def _judged(self, row: PartitionProgress, times: PartitionTimes, at: float) -> Judgement:
        balanced = self._watched.balanced
        window = self._windows.setdefault(row.partition, Window(self._window))
        look = Look(at, row.place, row.end, times.unread, row.alive or not balanced, row.unheld if balanced else None)
        return judged(
            window.add(look),
            window=self._window,
            patience=self._watched.expiration,
            owner=row.owner,
            bad_ends=row.failures if row.suspect else 0,
            error=row.last_error,
            waits=row.waits,
        )

    def _got_on(self, row: PartitionProgress, times: PartitionTimes, now: float) -> float:
        place, at = self._places.get(row.partition, (None, 0.0))
        if place != row.place or not times.unread:
            self._places[row.partition] = row.place, now
            return now
        return at


class WatchedCount(Generic[C]):
    """What is counted now and then: `what` of a pipeline, by `count`. Warns, once, while that cannot be told."""

    def __init__(self, pipeline: str, what: str, count: Callable[[], C | None], clock: Clock) -> None:
        self._pipeline, self._what, self._count, self._clock = pipeline, what, count, clock
        self._latest: C | None = None
        self._again = 0.0
        self._took: float | None = None
        self._said = ""

    def latest(self) -> C | None:
        """The last count, or a new one; None while it cannot be told."""
        started = self._clock.monotonic()
        if started >= self._again:
            before = self._took
            try:
                self._latest, self._said = self._count(), ""
                self._took = self._clock.monotonic() - started
            except LeaseholdError as error:
                self._latest = None
                if self._said != str(error):  # once while it stays so
                    logger.warning("%s: %s cannot be told: %s", self._pipeline, self._what, error)
                    self._said = str(error)
            ended = self._clock.monotonic()
            took = ended - started
            self._again = ended + _IDLE_SHARE * (took if before is None else min(took, before))
        return self._latest


def by_verdict(states: Sequence[PartitionState]) -> Mapping[Standing, int]:
    """How many partitions have which verdict, all verdicts named."""
    counts = dict.fromkeys(Standing, 0)
    for one in states:
        counts[one.verdict] += 1
    return counts
