"""A batch in its transaction: what it brings, and what the steps so far have found out.

Owns what one step hands to the next (`OpenBatch`), and what a sink object remembers from batch to batch (`SinkMemory`).
Does nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from leasehold.sinks.base import Features
from leasehold.sinks.beside.set_aside.retrying import Choice
from leasehold.sinks.beside.skipping.passing import NotesToPass
from leasehold.sinks.rules.batch import Arrangement, Batch, Kept
from leasehold.sinks.rules.duplicates import DuplicatesFound
from leasehold.sinks.rules.fence import FencePlan, Lane, Range, Refusal, SeenMarks, Watermark
from leasehold.sinks.rules.remembered_order import TableOrder
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.transactions import Found, Outcome, TableTransaction, WriteState

_NOTHING = Kept(pa.nulls(0, pa.int64()), [], [], 0, 0)  # an array of Python's values would import pandas


class BatchKind(StrEnum):
    """What a batch brings."""

    EVENTS = "events"
    AGAIN = "again"
    """Rejected events that are tried again: `Batch.again`."""
    MESSAGES = "messages"
    """Messages of a queue: `Batch.messages`."""

    @staticmethod
    def of(batch: Batch) -> BatchKind:
        """The kind of this batch."""
        if batch.messages is not None:
            return BatchKind.MESSAGES
        return BatchKind.EVENTS if batch.again is None else BatchKind.AGAIN


class Unjudged(Exception):
    """Ranges were refused, and it has not been asked yet whether they are zombies'. Undoes the transaction."""

    def __init__(self, refusals: tuple[Refusal, ...]) -> None:
        super().__init__(refusals)
        self.refusals = refusals


class Violated(Exception):
    """The database has refused what these events make of their entities. Undoes the transaction."""

    def __init__(self, events: Mapping[int, str]) -> None:
        super().__init__(events)
        self.events = events


@dataclass(slots=True)
class SinkMemory:
    """What a sink is, and what its object remembers from batch to batch; threads share it.

    where     names the database in messages
    identity  of the table, since this object first saw it; None before that
    seen      the watermarks that were seen committed: rule 11 of the fence
    noted     the partitions that have no note of an event to skip
    """

    spec: TableSpec
    where: str
    features: Features
    identity: str | None = None
    seen: SeenMarks = field(default_factory=SeenMarks)
    noted: NotesToPass = field(default_factory=NotesToPass)


@dataclass(slots=True)
class OpenBatch:
    """A batch in its transaction. Only the steps of one transaction use it, one after the other.

    judged      refused ranges that are known to be zombies'; None: nobody can be asked
    each_row    whether rows have to be written one after the other
    wall        the time now, in seconds since 1970
    now         the time once the watermarks are locked
    stored      the watermarks from before the batch, of all partitions of its hubs
    plan        what the fence lets through, with the watermarks that the batch leaves
    kept        the rows that are to be written
    found       the rejected rows of the events that are tried again, and `choice`, what is tried of them
    write_state what writes a state that a message has made
    identity    of the table
    left        the watermarks that the batch has written
    """

    sink: SinkMemory
    transaction: TableTransaction
    batch: Batch
    arrangement: Arrangement
    judged: Collection[Range] | None
    each_row: bool
    wall: Callable[[], float]
    now: float = 0.0
    stored: Mapping[Lane, Watermark] = field(default_factory=dict)
    plan: FencePlan = field(default_factory=lambda: FencePlan((), (), {}))
    kept: Kept = _NOTHING
    notes: Sequence[SkipNote] = ()
    verdict: DuplicatesFound | None = None
    order: TableOrder | None = None
    written: Outcome = field(default_factory=lambda: Outcome(0, 0))
    found: Found = field(default_factory=dict)
    choice: Choice | None = None
    write_state: WriteState | None = None
    identity: str = ""
    left: Mapping[Lane, Watermark] = field(default_factory=dict)

    @property
    def spec(self) -> TableSpec:
        return self.sink.spec

    def lock_taken(self) -> None:
        """Note the time at which the watermarks are locked: it is not before what was committed meanwhile. A batch of
        messages has none, and notes it before it locks the entity."""
        self.now = self.wall()
