"""What every sink with transactions offers beside its table, on the ways into its database.

Owns which table each of these needs, and what is locked first. A database brings an `Access`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from leasehold.sinks.base import Sink, TableContents
from leasehold.sinks.beside import clearing, contents, entities, record
from leasehold.sinks.beside.clearing import CLEARED, PLACE
from leasehold.sinks.beside.entities import ENTITY
from leasehold.sinks.beside.forgetting import AT_A_TIME, Cleared, Forgotten, Retention
from leasehold.sinks.beside.messages import table as messages
from leasehold.sinks.beside.messages.contract import KnownOfMessage, MessageName
from leasehold.sinks.beside.messages.kept import KeptMessages
from leasehold.sinks.beside.messages.parking import ParkedMessages
from leasehold.sinks.beside.messages.table import MESSAGES
from leasehold.sinks.beside.outbox.contract import Outbox
from leasehold.sinks.beside.outbox.sending import KeptOutbox
from leasehold.sinks.beside.outbox.table import OUTBOX
from leasehold.sinks.beside.parking import table as parked
from leasehold.sinks.beside.parking.contract import ParkedRow
from leasehold.sinks.beside.parking.table import PARKED
from leasehold.sinks.beside.session import Access, BesideTransaction, Session
from leasehold.sinks.beside.set_aside.dropping import DROPPED
from leasehold.sinks.beside.set_aside.kept import KeptRejectedRows
from leasehold.sinks.beside.skipping import table as skips
from leasehold.sinks.beside.skipping.contract import Noted
from leasehold.sinks.beside.skipping.table import SKIP
from leasehold.sinks.beside.states import fenced
from leasehold.sinks.rules import claims
from leasehold.sinks.rules.batch import KnownEntity
from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.parking import ParkedEvent
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.sinks.set_aside import EventId, RejectedRows, Selection, SetAsideCounts


class BesideSink(Sink):
    """Of a sink, what it offers beside its table."""

    @property
    @abstractmethod
    def _access(self) -> Access: ...

    @property
    def rejected_rows(self) -> RejectedRows:
        """See `Sink`."""
        return KeptRejectedRows(self._access)

    def row_count(self) -> int:
        """See `Sink`."""
        return self.contents().rows

    def contents(self) -> TableContents:
        """See `Sink`."""
        with self._access.looking(self.spec.name, self.spec.rejected) as session:
            return contents.of_tables(session)

    def set_aside_counts(self) -> SetAsideCounts:
        """See `Sink`."""
        with self._access.looking(self.spec.rejected, PARKED, OUTBOX, SKIP) as session:
            return contents.set_aside(session)

    def recorded_identity(self) -> str | None:
        """See `Sink`."""
        with self._access.looking(record.TABLE) as session:
            return record.recorded_identity(session)

    def table_is_there(self) -> bool:
        """See `Sink`."""
        with self._access.looking(self.spec.name) as session:
            return session.there(self.spec.name)

    def read_states(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        """See `KeepsStates`."""
        with self._access.looking(self.spec.name) as session:
            return self._access.read_states(session, schema, keys)

    def check_states(self, *, referred: bool = False) -> None:
        """See `KeepsStates`."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method check_states, which the feature STATES asks for: write it, or leave "
            "STATES out of the sink's features"
        )

    def forget_entity(self, key: Mapping[str, str]) -> Forgotten:
        """See `KeepsNotes`."""

        def once(transaction: BesideTransaction) -> Forgotten:
            transaction.lock_watermarks([], whole_table=True)
            transaction.count_change()
            return transaction.forget(key)

        return self._access.changed(once)

    def clear(
        self,
        retention: Retention,
        now: float | None = None,
        after: tuple[object, ...] | None = None,
        at_most: int = AT_A_TIME,
    ) -> Cleared:
        """See `KeepsNotes`."""

        def once(transaction: BesideTransaction) -> Cleared:
            at = transaction.session.clock() if now is None else now
            return clearing.clear(transaction, retention, at, after, at_most)

        return self._access.changed(once, *((PLACE, CLEARED) if retention.note_every and self.spec.memory else ()))

    def note_skip(self, note: SkipNote) -> Noted:
        """See `KeepsNotes`."""
        lane, up_to = note.lane, {note.lane: note.sequence_number}

        def once(transaction: BesideTransaction) -> Noted:
            transaction.lock_watermarks([lane])
            if (group := transaction.reader_beside(note.hub)) is not None:
                raise claims.another_reader(self.spec, group)
            mark = transaction.watermarks([note.hub]).get(lane)
            if mark is not None and mark.sequence_number >= note.sequence_number:
                return Noted(passed=mark.sequence_number)
            session = transaction.session
            if before := [one for one in skips.notes(session, up_to) if one.event == note.event]:
                return Noted(before=before[0])
            if mark is None:  # or there is nothing that counts the change
                transaction.set_watermarks({lane: Watermark()})
            skips.insert(session, note, self._access.wall())
            transaction.count_change([lane])
            return Noted()

        return self._access.changed(once, SKIP)

    def skip_notes(self) -> list[SkipNote]:
        """See `KeepsNotes`."""
        with self._access.looking(SKIP) as session:
            return skips.notes(session) if session.there(SKIP) else []

    def noted(self, hub: str) -> dict[str, frozenset[int]]:
        """See `KeepsNotes`."""
        with self._access.looking() as session:  # once a batch, and most tables never have a note
            return skips.numbers(session, hub) if session.there(SKIP) else {}

    def check_messages(self, schema: pa.Schema) -> None:
        """See `KeepsStates`."""
        self.check_states()
        self.check(fenced(schema))
        self._access.changed(lambda transaction: messages.check(transaction.session), *MESSAGES)

    def read_messages(self, schema: pa.Schema, key: Key, named: Sequence[MessageName]) -> list[KnownOfMessage]:
        """See `KeepsStates`."""

        def once() -> list[KnownOfMessage]:
            with self._access.viewing(self.spec.name, *MESSAGES) as session:
                state = self._access.read_states(session, schema, [key]).get(key)
                return messages.read(session, state, key, named, self._access.wall())

        known: list[KnownOfMessage] = self._access.again(once)
        return known

    @property
    def parked_messages(self) -> ParkedMessages:
        """See `KeepsStates`."""
        return KeptMessages(self._access)

    @property
    def outbox(self) -> Outbox:
        """See `KeepsStates`."""
        return KeptOutbox(self._access)

    def check_parked(self) -> None:
        """See `KeepsStates`."""
        self._access.changed(lambda transaction: None, PARKED)

    def parked_entities(self, hub: str, partition: str) -> dict[Key, float]:
        """See `KeepsStates`."""
        with self._access.looking(PARKED) as session:
            return parked.entities(session, (hub, partition))

    def parked_events(self, hub: str, partition: str, keys: Collection[Key], at_most: int) -> list[ParkedEvent]:
        """See `KeepsStates`."""
        with self._access.looking(PARKED) as session:
            return parked.events(session, (hub, partition), keys, at_most)

    def check_entities(self) -> None:
        """See `KeepsStates`."""
        self._access.changed(lambda transaction: None, PARKED, ENTITY)

    def read_entities(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, KnownEntity]:
        """See `KeepsStates`."""
        with self._access.looking(self.spec.name, PARKED, ENTITY) as session:
            return entities.known(session, partial(self._access.read_states, session, schema), keys)

    def first_parked(self, keys: Collection[Key]) -> dict[Key, tuple[Lane, float]]:
        """See `KeepsStates`."""
        with self._access.looking(PARKED) as session:
            return parked.firsts(session, keys)

    def parked_rows(self, selection: Selection, limit: int, after: EventId | None = None) -> list[ParkedRow]:
        """See `KeepsStates`."""
        with self._access.looking(PARKED) as session:
            return parked.listed(session, selection, limit, after)

    def hurry_parked(self, events: Collection[EventId]) -> int:
        """See `KeepsStates`."""
        return self._change_parked(events, lambda session: parked.hurry(session, events))

    def drop_parked(self, events: Sequence[EventId], reason: str) -> int:
        """See `KeepsStates`."""
        now = self._access.wall()
        return self._change_parked(events, lambda session: parked.drop(session, events, reason, now), DROPPED)

    def _change_parked(self, events: Collection[EventId], change: Callable[[Session], int], *needed: str) -> int:
        lanes = {(event.hub, event.partition) for event in events}

        def once(transaction: BesideTransaction) -> int:
            if not transaction.has(PARKED):
                return 0
            transaction.lock_partitions(lanes)
            transaction.count_change(lanes)
            return change(transaction.session)

        return self._access.changed(once, *needed)
