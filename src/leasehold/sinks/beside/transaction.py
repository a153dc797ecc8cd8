"""What every transaction on a table changes beside it, in the same way whatever the database.

Owns what is refused where a table is gone that was there, and what is counted as a change outside of batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from leasehold.sinks.beside import entities, record, watermarks
from leasehold.sinks.beside.clearing import CLEARED, PLACE
from leasehold.sinks.beside.entities import ENTITY
from leasehold.sinks.beside.forgetting import Forgotten
from leasehold.sinks.beside.keys import texts_of
from leasehold.sinks.beside.messages import table as messages
from leasehold.sinks.beside.messages.table import MESSAGE_ENTITY, MESSAGE_PARKED, queue_of
from leasehold.sinks.beside.outbox import table as outbox
from leasehold.sinks.beside.outbox.table import OUTBOX
from leasehold.sinks.beside.parking import table as parked
from leasehold.sinks.beside.parking.table import PARKED
from leasehold.sinks.beside.session import MINE, Session, mine_of
from leasehold.sinks.beside.set_aside import rejected
from leasehold.sinks.beside.skipping import table as skips
from leasehold.sinks.beside.skipping.table import SKIP
from leasehold.sinks.beside.unwritten import UnwrittenFeatures
from leasehold.sinks.rules import claims
from leasehold.sinks.rules.again import EventId, RejectedRow
from leasehold.sinks.rules.batch import KnownEntity, OrderValue
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.rules.fence import Admission, Lane, Watermark
from leasehold.sinks.rules.messages import MessageOutcome, MessageStep
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.parking import Parking
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.remembered_order import TableOrder
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.sinks.transactions import Found, WriteState

if TYPE_CHECKING:
    import pyarrow as pa


class ChangesBeside(UnwrittenFeatures, ABC):
    """Of a transaction, what it does beside its table. See `WritesBeside`.

    A database extends it by the rest of `TableTransaction` (`claim`, `lock_watermarks`, `fit`, `write`), by `need` and
    `lock_partitions` of `BesideTransaction`, and for each feature that its sink says by the methods of
    `UnwrittenFeatures` that name it.
    """

    added: tuple[str, ...] = ()
    """See `TableTransaction`."""

    @property
    @abstractmethod
    def session(self) -> Session: ...

    def has(self, table: str) -> bool:
        """Whether this table is there."""
        return self.session.there(table)

    def is_there(self) -> bool:
        """See `TableTransaction`."""
        return self.session.there(self.session.spec.name)

    def recorded_order(self) -> TableOrder:
        """See `TableTransaction`."""
        return record.order(self.session)

    def reader_beside(self, hub: str) -> str | None:
        """See `TableTransaction`."""
        return watermarks.reader_beside(self.session, hub)

    def queue_beside(self) -> str | None:
        """See `TableTransaction`."""
        return queue_of(self.session) if self.has(MESSAGE_ENTITY) else None

    def watermarks(self, hubs: Iterable[str]) -> dict[Lane, Watermark]:
        """See `TableTransaction`."""
        return watermarks.read(self.session, hubs)

    def set_watermarks(self, marks: Mapping[Lane, Watermark]) -> None:
        """See `TableTransaction`."""
        watermarks.write(self.session, marks)

    def leave_none_whole(self) -> None:
        """See `TableTransaction`."""
        watermarks.leave_none_whole(self.session)

    def count_change(self, lanes: Collection[Lane] | None = None) -> None:
        """Note that entities of these partitions, or of any, were written or forgotten outside of a batch."""
        watermarks.count_change(self.session, lanes)

    def set_aside(self, rows: Sequence[Rejected], now: float) -> None:
        """Set rows aside, of events that have none."""
        rejected.insert(self.session, rows, now)

    def replace_set_aside(self, read: Sequence[Admission], rows: Sequence[Rejected], now: float) -> None:
        """See `TableTransaction`."""
        rejected.replace(self.session, read, rows, now)

    def aside_between(self, lane: Lane, after: int, before: int, at_most: int) -> Sequence[RejectedRow]:
        """See `TableTransaction`."""
        return rejected.between(self.session, lane, after, before, at_most)

    def rejected_of(self, events: Collection[EventId]) -> Found:
        """See `WritesBeside`."""
        return rejected.of_events(self.session, events)

    def replace_tried(self, tried: Sequence[RejectedRow], rows: Sequence[Rejected], now: float) -> None:
        """See `WritesBeside`."""
        rejected.remove(self.session, tried)
        self.set_aside(rows, now)

    def apply_messages(self, step: MessageStep, write: WriteState, now: float) -> list[MessageOutcome]:
        """See `WritesBeside`."""
        return messages.apply(self.session, write, step.changes, now, step.remember)

    def skip_notes(self, up_to: Mapping[Lane, int]) -> list[SkipNote]:
        """See `WritesBeside`."""
        return skips.notes(self.session, up_to) if self.has(SKIP) else []

    def pass_notes(self, notes: Sequence[SkipNote], now: float) -> None:
        """See `WritesBeside`."""
        places = [note.event for note in notes]
        self.session.remove_set_aside([(*place, place[-1]) for place in places])  # of an earlier reading
        self.set_aside([note.rejected for note in notes], now)
        skips.remove(self.session, {place[:2]: place[-1] for place in sorted(places)})

    def drop_notes(self, up_to: Mapping[Lane, int]) -> None:
        """See `WritesBeside`."""
        if self.has(SKIP):
            skips.remove(self.session, up_to)

    def are_parked(self, hub: str, partition: str, numbers: Collection[int]) -> bool:
        """See `WritesBeside`."""
        self._check(PARKED)
        return parked.are_there(self.session, (hub, partition), numbers)

    def park(self, parking: Parking, now: float) -> None:
        """See `WritesBeside`."""
        self._check(PARKED)
        parked.change(self.session, parking, now)
        if parking.retried and not parking.by_guest:
            self.count_change({(parking.hub, parking.partition)})

    def unpark_above(self, marks: Mapping[Lane, int]) -> None:
        """See `WritesBeside`."""
        if self.has(PARKED):
            parked.remove_above(self.session, marks)

    def emit(self, events: Sequence[EmittedEvent], now: float) -> None:
        """See `WritesBeside`."""
        self._check(OUTBOX)
        outbox.put(self.session, events, now)

    def lock_entities(self, keys: Collection[Key]) -> dict[Key, int]:
        """See `WritesBeside`."""
        self._check(ENTITY)
        return self.lock_versions(keys)

    def known_entities(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, KnownEntity]:
        """See `WritesBeside`."""
        return entities.known(self.session, partial(self.read_states, schema), keys)

    def raise_versions(self, keys: Collection[Key], latest: Mapping[Key, OrderValue]) -> None:
        """See `WritesBeside`."""
        entities.raised(self.session, keys, latest)

    def forget(self, key: Mapping[str, str]) -> Forgotten:
        """Forget what is kept of an entity beside its row, by its key as text. Watermarks are locked."""
        spec = self.session.spec
        memories = self.forget_key(key) if spec.memory and self.has(spec.memory) else 0
        memories += self._forget_of(key, {MESSAGE_ENTITY: "key", ENTITY: "key"})
        rows = rejected.forget(self.session, key) if self.has(spec.rejected) else 0
        rows += skips.forget(self.session, key) if self.has(SKIP) else 0
        rows += self._forget_of(key, {PARKED: "key", OUTBOX: "entity", MESSAGE_PARKED: "key"})
        return Forgotten(memories, rows)

    def _forget_of(self, key: Mapping[str, str], shared: Mapping[str, str]) -> int:
        """Remove what these tables, which several entity tables share, keep of an entity; how many rows.

        Each table is given with its column of keys.
        """
        session, count = self.session, 0
        asked, values = session.asked("its", {"key": "text"}, ((text,) for text in texts_of(session.spec, key)))
        for table, column in shared.items():
            if self.has(table):
                count += session.run(
                    f"DELETE FROM {session.of(table)} WHERE {MINE} AND {column} IN (SELECT its.key FROM {asked})",
                    **mine_of(session.spec),
                    **values,
                )
        return count

    def check_still_there(self) -> None:
        """See `TableTransaction`."""
        record.check_still_there(self.session)

    def forget_dropped(self) -> None:
        """See `TableTransaction`."""
        self.count_change()
        self._forget_all(PLACE)  # a reset: events are applied anew
        if self.session.there(self.session.spec.name):
            return
        self._forget_all(PARKED, ENTITY)
        record.note_made(self.session, is_new=False)
        record.forget_order(self.session, rows_count=True)
        for name in (self.session.spec.memory, self.session.spec.identities):
            if name and self.has(name):
                self.session.run(f"DELETE FROM {self.session.of(name)}")

    def forget_keys(self) -> None:
        """See `TableTransaction`."""
        self._forget_all(CLEARED, ENTITY)
        record.forget_order(self.session, rows_count=not self.has_rows())
        memory = self.session.spec.memory
        if memory and self.has(memory):
            self.session.run(f"DELETE FROM {self.session.of(memory)}")

    def _forget_all(self, *shared: str) -> None:
        """Remove what these tables, which several entity tables share, keep of this one."""
        for table in shared:
            if self.has(table):
                self.session.run(f"DELETE FROM {self.session.of(table)} WHERE {MINE}", **mine_of(self.session.spec))

    def has_rows(self) -> bool:
        """See `TableTransaction`."""
        name = self.session.spec.name
        return self.has(name) and bool(self.session.one(f"SELECT EXISTS (SELECT 1 FROM {self.session.of(name)})"))

    def rows(self) -> int:
        """See `TableTransaction`."""
        return int(self.session.one(f"SELECT count(*) FROM {self.session.of(self.session.spec.name)}"))

    def _check(self, table: str) -> None:
        if not self.has(table):
            raise claims.was_dropped(self.session.spec, table)
