"""Typed notices of what happens to partitions, for whoever subscribes.

Owns the list of notices and their delivery. A notice is delivered in the thread that caused it, in the
order of subscription; a subscriber that raises is logged and never stops a partition.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from leasehold.counts import NONE, Counts
from leasehold.model import RecordKind

__all__ = [
    "BatchDone",
    "BatchRetried",
    "CheckpointUpdated",
    "Counts",
    "CycleBegun",
    "CycleEnded",
    "CycleFailed",
    "EventsLost",
    "EventsReceived",
    "HandOverAsked",
    "LossReason",
    "Measurement",
    "NameShared",
    "Notice",
    "Notices",
    "OwnershipClaimed",
    "OwnershipLost",
    "OwnershipRelinquished",
    "PartitionSuspected",
    "PartitionsUnserved",
    "RecordSkipped",
    "StartDelayed",
    "StoreCalled",
    "TableApplied",
    "WorkStalled",
]

logger = logging.getLogger(__name__)


class LossReason(StrEnum):
    """Why a partition is no longer held."""

    TAKEN = "taken by another owner"
    LAPSED = "not renewed in time"
    STALLED = "no progress for the stall timeout"
    SUPERSEDED = "a checkpoint was refused: another owner has been there"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something happened; the subclasses say what."""


@dataclass(frozen=True, slots=True)
class OwnershipClaimed(Notice):
    """`partition` is held from now on at `owner_level`; `previous_owner` is `""` if it was free."""

    partition: str
    owner_level: int
    previous_owner: str


@dataclass(frozen=True, slots=True)
class OwnershipLost(Notice):
    """`partition`, held at `owner_level`, is no longer ours."""

    partition: str
    owner_level: int
    reason: LossReason


@dataclass(frozen=True, slots=True)
class OwnershipRelinquished(Notice):
    """`partition` was given up by ourselves: handed over to `successor`, or free for anybody if that is `""`."""

    partition: str
    owner_level: int
    successor: str = ""


@dataclass(frozen=True, slots=True)
class HandOverAsked(Notice):
    """`asker` waits for `partition`, which is to be drained: to finish what is begun and begin nothing."""

    partition: str
    owner_level: int
    asker: str


@dataclass(frozen=True, slots=True)
class PartitionSuspected(Notice):
    """`failures` owners of `partition` in a row came to a bad end and its checkpoint stood still: it is taken last."""

    partition: str
    failures: int
    last_error: str


@dataclass(frozen=True, slots=True)
class NameShared(Notice):
    """`other` runs at the same time under this instance's name: each that starts takes the other's partitions.

    Told once of each other instance, by both. Give each a name of its own.
    """

    other: str


@dataclass(frozen=True, slots=True)
class PartitionsUnserved(Notice):
    """No instance has room for these partitions, by the maxima that all have declared. None: all are served again."""

    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckpointUpdated(Notice):
    """Events of `partition` up to and with `sequence_number` are recorded as processed."""

    partition: str
    owner_level: int
    sequence_number: int


@dataclass(frozen=True, slots=True)
class CycleFailed(Notice):
    """A dispatch cycle could not finish; held partitions stay held as long as they are trusted."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class RecordSkipped(Notice):
    """A record of the group cannot be used, as `reason` says, and is left alone; the others are not concerned.

    `kind` is what it is about, `name` its partition or the owner of a presence. Told once while it stays so.
    """

    kind: RecordKind
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class StartDelayed(Notice):
    """What a start needs is away, as `error` says; it is waited for, at most `patience` seconds. Told once."""

    error: Exception
    patience: float


@dataclass(frozen=True, slots=True)
class EventsLost(Notice):
    """Events `[start, end)` of `partition` were gone before they were read; `failOnDataLoss` is off."""

    partition: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WorkStalled(Notice):
    """The work on these partitions has not gone on for the stall timeout. None: it goes on, or has ended."""

    partitions: tuple[str, ...]


# Counts and timings


@dataclass(frozen=True, slots=True)
class Measurement(Notice):
    """A notice that counts and times, and comes with each batch or request. Times are in seconds."""


@dataclass(frozen=True, slots=True)
class StoreCalled(Measurement):
    """A store was called, `operation` being the method, and took `seconds`.

    It was given `asked` records and did `done` of them: claims won, holds renewed or checkpoints accepted. Of a listing
    both are 0. `error_type` names the type of what it raised, `""` if it answered.
    """

    operation: str
    seconds: float
    asked: int
    done: int
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class CycleBegun(Measurement):
    """The first dispatch cycle of `owner_id` begins; it hangs if it has not ended after `stall_timeout` seconds.

    Those behind it are told by their ends alone (`CycleEnded`), which say when the next is due.
    """

    owner_id: str
    stall_timeout: float


@dataclass(frozen=True, slots=True)
class CycleEnded(Measurement):
    """A dispatch cycle of `owner_id` has ended, after `seconds`; the next comes within `due_in` seconds at the latest.

    `holds` says of each partition that is held until when it is trusted, on the monotonic clock. `known` is how many
    partitions there are. `settled`: it could see the group, and wants nothing that it does not hold. `failed`: a store
    or hub was away, or refused. `stalled`: nothing is renewed, since the work has made no progress for
    `stall_timeout`.
    """

    owner_id: str
    seconds: float
    due_in: float
    holds: Mapping[str, float]
    known: int
    settled: bool
    failed: bool
    stalled: bool
    stall_timeout: float


@dataclass(frozen=True, slots=True)
class EventsReceived(Measurement):
    """The plain processor has fetched `events` of `partition` from the hub, which took `seconds`.

    They are not handled yet: a partition is fetched ahead of its handler. `error_type` names the type of what the hub
    raised, `""` if it answered.
    """

    partition: str
    events: int
    seconds: float
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class BatchDone(Measurement):
    """A batch of `events` that were read is done; `counts` says what became of them, where one table has told.
    With a handler it has also what was committed since the batch before: parked events, and a batch that failed midway.

    `seconds` has how long each phase took: `plan` (which ranges), `compute` (read, transform), `write` (the table's
    transaction) of the loop of `leasehold run`; `plan` and `body` (the caller's code) of `MicroBatches`, and of a
    streaming query, until Spark asks for the next batch; `handle` of the plain processor.

    Of the first two there is more: `batch_id`; `elapsed`, the seconds from the beginning of its planning on, which has
    its waiting for the batch before it too; and, where tracing has asked for them, `producers`: the pairs of
    `traceparent` and `tracestate` that its events carry, at most 128.

    `parts` are seconds within `compute` or `body`: `read`, the longest that a task of Spark has waited for the hub,
    where tasks can tell (not over Spark Connect), and `transform`, the rest of what it took to have the rows: the
    transform, done in the same tasks meanwhile, Spark's scheduling, and the rows' way to where they are written.
    """

    events: int
    seconds: Mapping[str, float]
    counts: Counts = NONE
    batch_id: str = ""
    elapsed: float = 0.0
    producers: tuple[tuple[str, str], ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableApplied(Measurement):
    """An entity table has applied a batch, or a handler's table a partition's part of it, in `seconds`.

    `counts` says what became of its events and rows. `parts` has seconds within the transaction: `stage` and `merge`.
    Where one transaction fills several tables, `table` has the names of all, an event counts once, and `of_tables` has
    the counts of each.
    """

    table: str
    counts: Counts
    seconds: float
    parts: Mapping[str, float] = field(default_factory=dict)
    of_tables: Mapping[str, Counts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchRetried(Measurement):
    """A batch, or a processor's task on `partition`, has failed for a `reason` in a word, and is tried again.

    Of a batch of `leasehold run`: how many `events` it has, its `batch_id`, and the seconds that have `elapsed` since
    its planning was begun.
    """

    reason: str
    partition: str = ""
    events: int = 0
    batch_id: str = ""
    elapsed: float = 0.0


N = TypeVar("N", bound=Notice)


class Notices:
    """A list of subscribers. Safe to use from several threads.

    Whom a notice of a type goes to is worked out at the first of them: several come with each batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: tuple[_Subscription, ...] = ()
        self._to: dict[type[Notice], tuple[Callable[[Any], None], ...]] = {}

    def subscribe(self, callback: Callable[[N], None], to: type[N]) -> Callable[[], None]:
        """Call `callback` with every notice of type `to`. Returns a function that ends the subscription."""
        subscription = _Subscription(callback, to)
        with self._lock:
            self._set((*self._subscribers, subscription))

        def unsubscribe() -> None:
            with self._lock:
                self._set(tuple(one for one in self._subscribers if one is not subscription))

        return unsubscribe

    def _set(self, subscribers: tuple[_Subscription, ...]) -> None:
        self._subscribers = subscribers
        self._to = {}  # behind it: what a thread puts into the new one is of the new subscribers

    def publish(self, notice: Notice) -> None:
        """Deliver a notice to all who subscribed to its type."""
        known, kind = self._to, type(notice)
        callbacks = known.get(kind)
        if callbacks is None:
            callbacks = known[kind] = tuple(one.callback for one in self._subscribers if issubclass(kind, one.to))
        for callback in callbacks:
            try:
                callback(notice)
            except (Exception, SystemExit):
                logger.exception("a subscriber failed on %r", notice)


@dataclass(frozen=True, slots=True, eq=False)
class _Subscription:
    callback: Callable[[Any], None]
    to: type[Notice]
