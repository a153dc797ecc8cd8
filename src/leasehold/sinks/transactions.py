"""What a database does in one transaction on an entity table and what is kept beside it.

Owns the contract between `TransactionalSink`, which has the rules and the order of a batch, and each database's own
way. Every method runs inside the transaction, and what `lock_watermarks` has locked nobody else changes until its end.
What is written beside the table (`WritesBeside`), but for rejected rows, is asked for only where the sink says its
feature (`sinks.features`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.sinks.rules.fence import Admission, Lane, Watermark
from leasehold.sinks.rules.remembered_order import OwnValue, TableOrder

if TYPE_CHECKING:
    import pyarrow as pa

    from leasehold.sinks.rules.again import EventId, RejectedRow
    from leasehold.sinks.rules.batch import Batch, Kept, KnownEntity, OrderValue
    from leasehold.sinks.rules.duplicates import Memory
    from leasehold.sinks.rules.emitted import EmittedEvent
    from leasehold.sinks.rules.messages import MessageOutcome, MessageStep
    from leasehold.sinks.rules.ordering import Key
    from leasehold.sinks.rules.parking import Parking
    from leasehold.sinks.rules.rejected import Rejected
    from leasehold.sinks.rules.related import EntityStep
    from leasehold.sinks.rules.skipping import SkipNote


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many rows were written or deleted, and were older than what is known of their key; which are to be set aside.

    `seconds` as in `BatchResult`.
    """

    applied: int
    superseded: int
    set_aside: Sequence[Rejected] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def refused(self, batch: Batch) -> dict[int, str]:
        """Of a handler's `batch`, which states the database refuses, by the number of their last event, and why.

        A state is what several events have come to: it is not set aside in place of them.
        """
        asked = set() if batch.rejected is None else set(batch.rejected["sequenceNumber"].to_pylist())
        return {one.sequence_number: one.reason for one in self.set_aside if one.sequence_number not in asked}


class RemembersIdentities(Protocol):
    """Of a transaction, for BOOKKEEPING: remember events by what a producer repeats (`duplicates`)."""

    def known_identities(self, digests: Collection[str]) -> Memory:
        """What is remembered of these identities. Nobody else changes it until the transaction ends."""
        ...

    def remember_identities(self, memory: Memory) -> None:
        """Remember these, in place of what was."""
        ...

    def identities_reached(self) -> int | None:
        """The time that was given to `identities_reach` last, in microseconds since 1970; None without any."""
        ...

    def identities_reach(self, time: int | None) -> None:
        """Note what time the table has reached, unless a later one is noted, or somebody else is noting one; None:
        forget it."""
        ...

    def forget_identities(self, before: int, at_most: int) -> None:
        """Forget at most this many whose events were enqueued before this time, in microseconds since 1970."""
        ...


Found = Mapping["EventId", "Sequence[RejectedRow]"]
"""The rejected rows that there are of each event, in order; nothing of an event that has none."""
WriteState = Callable[["Key", Mapping[str, Any] | None], None]
"""Writes the state of an entity, None for none. Raises `UsageError` for one that the table refuses."""


class WritesBeside(RemembersIdentities, Protocol):
    """Of a transaction, what it writes beside its table, under the lock of the batch's watermarks."""

    # BOOKKEEPING, notes: `sinks.beside.skipping.contract`

    def skip_notes(self, up_to: Mapping[Lane, int]) -> list[SkipNote]:
        """The notes of events up to a sequence number of each of these partitions."""
        ...

    def pass_notes(self, notes: Sequence[SkipNote], now: float) -> None:
        """Set the events of these notes aside, and remove the notes."""
        ...

    def drop_notes(self, up_to: Mapping[Lane, int]) -> None:
        """Remove the notes of events up to a sequence number of each of these partitions: rule 5."""
        ...

    # STATES, parked events: `sinks.beside.parking`

    def are_parked(self, hub: str, partition: str, numbers: Collection[int]) -> bool:
        """Whether all these events of a partition are parked."""
        ...

    def park(self, parking: Parking, now: float) -> None:
        """Change parked events.

        One of parked events (`retried`) is a change outside of batches, and counted, unless a guest makes it.
        """
        ...

    def unpark_above(self, marks: Mapping[Lane, int]) -> None:
        """Remove the parked events of these partitions above these sequence numbers: rule 5."""
        ...

    # STATES, emitted events: `sinks.beside.outbox`

    def emit(self, events: Sequence[EmittedEvent], now: float) -> None:
        """Put events into the outbox, in this order: rule 2."""
        ...

    # STATES, versions: `sinks.beside.versions`

    def lock_entities(self, keys: Collection[Key]) -> dict[Key, int]:
        """The versions of these, which nobody else changes until the transaction ends."""
        ...

    def known_entities(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, KnownEntity]:
        """What is known of these, which are locked."""
        ...

    def raise_versions(self, keys: Collection[Key], latest: Mapping[Key, OrderValue]) -> None:
        """Raise the versions of these, which are locked, and note what is the latest of those that have one."""
        ...

    # rejected rows: `sinks.set_aside`

    def rejected_of(self, events: Collection[EventId]) -> Found:
        """The rejected rows of each of these events; nobody else changes them until the transaction ends."""
        ...

    def replace_tried(self, tried: Sequence[RejectedRow], rows: Sequence[Rejected], now: float) -> None:
        """Set `rows` aside in the place of those that were tried again."""
        ...

    # STATES, messages: `sinks.beside.messages`

    def state_writer(self, schema: pa.Schema) -> WriteState:
        """After it has checked the table for states of this schema: what writes them."""
        ...

    def apply_messages(self, step: MessageStep, write: WriteState, now: float) -> list[MessageOutcome]:
        """Apply changes up to the first whose message is done, or that finds another version: rule 2."""
        ...

    # RELATED: `sinks.beside.related`

    def read_states(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        """STATES: the rows of these keys, those that are there, in the columns of `schema`."""
        ...

    def written_by(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, int]:
        """STATES: which event has written each of these keys last, by its number, as far as that is remembered.

        `schema` has the columns of the keys, in their order.
        """
        ...

    def write_step(self, schema: pa.Schema, step: EntityStep) -> str | None:
        """After `fit`: write what an event makes of its entity, or nothing of it: then why the database refuses it."""
        ...


class EachRowNeeded(Exception):
    """Rows have to be written one after the other, in a new transaction: what this one has written is undone."""


class TableTransaction(WritesBeside, Protocol):
    """One transaction on the table of one `TableSpec`."""

    def claim(self) -> str:
        """Make the table this pipeline's if it is nobody's, and return the identity of the sink."""
        ...

    def recorded_order(self) -> TableOrder:
        """What is recorded of the order of the table's rows; it stays so until the transaction ends."""
        ...

    def reader_beside(self, hub: str) -> str | None:
        """Another consumer group than the spec's that the table has been filled by from this hub."""
        ...

    def queue_beside(self) -> str | None:
        """A queue whose messages fill the table."""
        ...

    def lock_watermarks(self, lanes: Collection[Lane], *, whole_table: bool = False) -> None:
        """Keep these watermarks from changing, missing ones too; with `whole_table` all that the table has."""
        ...

    def watermarks(self, hubs: Iterable[str]) -> dict[Lane, Watermark]:
        """The watermarks of all partitions of these hubs that have one."""
        ...

    def lock_partitions(self, lanes: Collection[Lane]) -> None:
        """Keep those of these watermarks that there are from changing until the transaction ends."""
        ...

    def set_watermarks(self, marks: Mapping[Lane, Watermark]) -> None:
        """Write watermarks as they are given."""
        ...

    def count_change(self, lanes: Collection[Lane] | None = None) -> None:
        """Note that entities of these partitions, or of any, were written or forgotten outside of a batch."""
        ...

    def leave_none_whole(self) -> None:
        """Note that nobody knows what the last batch has read: rule 9 of the fence."""
        ...

    def fit(self, schema: pa.Schema) -> None:
        """Check the table for rows of this schema, and make what is missing. Raises `SchemaMismatch`."""
        ...

    def aside_between(self, lane: Lane, after: int, before: int, at_most: int) -> Sequence[RejectedRow]:
        """What is set aside of the events of the partition between these numbers, as many rows of it, in order."""
        ...

    def write(self, batch: Batch, kept: Kept, order: TableOrder, *, again: bool, each_row: bool) -> Outcome:
        """Write the rows of `batch` that are kept, and the memory of their keys, after `fit`.

        With `again` they are of events that are tried again: rule 2 of `set_aside`. Unless `each_row` is asked for, it
        may raise `EachRowNeeded`, with some of them written.
        """
        ...

    def replace_set_aside(self, read: Sequence[Admission], rows: Sequence[Rejected], now: float) -> None:
        """Set `rows` aside in the place of what an earlier reading of the events `read` has set aside.

        `now` is the time that they are marked with, in seconds since 1970.
        """
        ...

    def check_own_values(self, own: OwnValue) -> None:
        """After `fit`: refuse a table with a row whose own value cannot be compared (`remembered_order`, rule 6)."""
        ...

    @property
    def added(self) -> tuple[str, ...]:
        """The columns that `fit` has given the table, each with its type in the database's words."""
        ...

    def is_there(self) -> bool:
        """Whether the entity table is."""
        ...

    def rows(self) -> int:
        """How many rows the table has, which is there."""
        ...

    def check_still_there(self) -> None:
        """Raise `SinkError` if the entity table, or what is known of its keys, was there and has been dropped."""
        ...

    def forget_dropped(self) -> None:
        """If the entity table has been dropped, forget that it was there, and what is known of its keys."""
        ...

    def forget_keys(self) -> None:
        """Forget what is known of keys, and what they were ordered by."""
        ...

    def has_rows(self) -> bool:
        """Whether the table is there and has a row."""
        ...
