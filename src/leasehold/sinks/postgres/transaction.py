"""One transaction on an entity table in Postgres. See `TableTransaction`.

Owns the way from a batch to its staged rows, and the making of what belongs to one table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa

from leasehold.database.postgres.connections import ROLLED_BACK
from leasehold.database.postgres.place import check_relations
from leasehold.database.postgres.troubles import passes
from leasehold.sinks.beside import clearing, record
from leasehold.sinks.beside.clearing import CLEARED
from leasehold.sinks.beside.messages import table as messages
from leasehold.sinks.beside.messages.table import MESSAGE_ENTITY
from leasehold.sinks.beside.session import Places
from leasehold.sinks.beside.states import fenced
from leasehold.sinks.beside.transaction import ChangesBeside
from leasehold.sinks.postgres import forgetting, identities, memory, own_values, rejected_table, states
from leasehold.sinks.postgres.at_once import AtOnce, Chance
from leasehold.sinks.postgres.bookkeeping import FORMAT, LOCK, Bookkeeping
from leasehold.sinks.postgres.catalog import check_tables, has_its_labels, kind_of_relation, state_of
from leasehold.sinks.postgres.entity_locks import locked
from leasehold.sinks.postgres.layout import Layout, fit
from leasehold.sinks.postgres.memory import claims_of
from leasehold.sinks.postgres.merging import Merge, Merged
from leasehold.sinks.postgres.own_values import OwnColumn, own_column
from leasehold.sinks.postgres.related import PostgresSteps
from leasehold.sinks.postgres.rows import BatchRows
from leasehold.sinks.postgres.session import PostgresSession, until_it_stays
from leasehold.sinks.postgres.staging import Filled, StagedTables, Staging
from leasehold.sinks.rules.batch import Batch, Kept
from leasehold.sinks.rules.duplicates import Memory
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.related import EntityStep
from leasehold.sinks.rules.remembered_order import OwnValue, TableOrder, own_value
from leasehold.sinks.transactions import Outcome


@dataclass(frozen=True, slots=True)
class CheckedLayout:
    """The layout last checked, with what it was checked against, and how its batches went the short ways since.

    `chance` is of the short way of staged rows (`at_once`), `quick` of the last row of each key alone, and of rows that
    are copied straight into the table.
    """

    state: tuple[str, ...]
    schema: pa.Schema
    layout: Layout
    chance: Chance = field(default_factory=Chance, compare=False)
    quick: Chance = field(default_factory=Chance, compare=False)


class PostgresTransaction(ChangesBeside):
    """One transaction of `session`. `staged` says which temporary tables its connection has.

    `patience` are the seconds for which a merge is tried again that the server undoes.
    """

    def __init__(
        self, session: PostgresSession, checked: CheckedLayout | None, staged: StagedTables, shown: str, patience: float
    ) -> None:
        self._session = session
        self._shown = shown
        self._patience = patience
        self._steps = PostgresSteps(session, shown)
        self.bookkeeping = Bookkeeping(session)
        self.checked = checked
        self.staged = staged

    def claim(self) -> str:
        return record.claim(self._session, FORMAT)

    def queue_beside(self) -> str | None:
        # A user who fills tables from hubs alone needs no rights on it: docs/table.md.
        readable = self.has(MESSAGE_ENTITY) and not self._session.missing_rights(MESSAGE_ENTITY, ["SELECT"])
        return messages.queue_of(self._session) if readable else None

    def lock_watermarks(self, lanes: Collection[Lane], *, whole_table: bool = False) -> None:
        self.bookkeeping.lock_watermarks(lanes, whole_table=whole_table)

    def lock_partitions(self, lanes: Collection[Lane]) -> None:
        self.bookkeeping.lock_watermarks(lanes, whole_table=False, missing=False)

    def forget_key(self, key: Mapping[str, str]) -> int:
        return forgetting.forget(self._session, key)

    def clear_keys(
        self, old: Places, old_of_deleted: Places, after: tuple[object, ...] | None, at_most: int
    ) -> tuple[list[tuple[Lane, int]], tuple[object, ...] | None]:
        return forgetting.clear(self._session, self.bookkeeping, old, old_of_deleted, after, at_most)

    def read_states(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        return states.read(self._session, schema, keys)

    def written_by(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, int]:
        return states.written_by(self._session, schema, keys)

    def lock_versions(self, keys: Collection[Key]) -> dict[Key, int]:
        return locked(self._session, keys)

    def write_step(self, schema: pa.Schema, step: EntityStep) -> str | None:
        assert self.checked is not None
        return self._steps.write(schema, self.checked.layout, step)

    @property
    def session(self) -> PostgresSession:
        return self._session

    def need(self, *names: str) -> None:
        """Make these shared tables if they are missing, before anything is locked. Raises `UsageError`."""
        self.bookkeeping.make_shared(names)
        check_tables(self._session, names, self._shown)

    def has(self, name: str) -> bool:
        """Whether this table is there. Raises `UsageError` for somebody else's."""
        there = kind_of_relation(self._session, name) is not None
        if there:
            check_tables(self._session, [name], self._shown)
        return there

    @property
    def _mine(self) -> tuple[str, ...]:
        """The table and what is beside it alone."""
        spec = self._session.spec
        return (spec.name, spec.rejected, spec.identities, *([spec.memory] if spec.memory else []))

    def known_identities(self, digests: Collection[str]) -> Memory:
        if not digests:
            return {}
        session, name = self._session, self._session.spec.identities
        identities.make(session)
        check_tables(session, [name], self._shown)
        return identities.known(session, digests)

    def remember_identities(self, memory: Memory) -> None:
        if memory:
            identities.remember(self._session, memory)

    def identities_reached(self) -> int | None:
        return identities.reached(self._session)

    def identities_reach(self, time: int | None) -> None:
        identities.reach(self._session, time)

    def forget_identities(self, before: int, at_most: int) -> None:
        identities.forget(self._session, before, at_most)

    def fit(self, schema: pa.Schema, *, only_look: bool = False) -> None:
        """See `TableTransaction`. With `only_look`, in a transaction that is undone, the table is not altered."""
        state, checked = state_of(self._session, self._mine), self.checked
        is_same = checked is not None and checked.state == state and checked.schema.equals(schema)
        if checked and is_same and has_its_labels(self._session, checked.layout.relation):
            return
        session, spec = self._session, self._session.spec
        session.run("SELECT pg_advisory_xact_lock(%(lock)s)", lock=LOCK)
        for name, partitioned in ((spec.name, True), *((name, False) for name in self._mine[1:])):
            if kind_of_relation(session, name) not in (None, "v", "m", "f") or name != spec.name:
                check_relations(session.connection, session.names.schema, [name], self._shown, partitioned=partitioned)
        record.check_still_there(session)
        layout = fit(session, schema, only_look=only_look)
        self.added += layout.added
        if spec.memory and kind_of_relation(session, spec.memory) is None:
            memory.make(session, layout)
        elif spec.memory and not only_look:
            memory.fit(session, layout)
        rejected_table.make_or_check(session, there=kind_of_relation(session, spec.rejected) is not None)
        record.note_made(session, is_new=True)
        self.checked = CheckedLayout(state_of(session, self._mine), schema, layout)

    def state_writer(self, schema: pa.Schema) -> Callable[[Key, Mapping[str, Any] | None], None]:
        return partial(states.write, self._session, schema, self.layout(fenced(schema)))

    def layout(self, schema: pa.Schema) -> Layout:
        """How rows of this schema are written, after `fit`."""
        self.fit(schema)
        assert self.checked is not None
        return self.checked.layout

    def write(self, batch: Batch, kept: Kept, order: TableOrder, *, again: bool, each_row: bool) -> Outcome:
        """See `TableTransaction`. Never raises `EachRowNeeded`: a savepoint costs the server next to nothing."""
        assert self.checked is not None
        layout, session = self.checked.layout, self._session
        own = own_column(layout, own_value(session.spec, order, layout.columns, self.checked.schema))
        began = time.monotonic()
        rows = BatchRows(batch, layout, kept, session)
        merged, filled = None, time.monotonic()
        if not again:
            merged = self._merged_last(layout, rows, own) if layout.keys else self._appended(layout, rows)
        if merged is None:
            self._ready_staging(layout)
            staged = rows.fill(self.bookkeeping)
            filled = time.monotonic()
            merged = self._merged(layout, batch, order, staged, own, past=again) if staged.rows else Merged()
        if layout.keys and merged.applied:
            record.note_order(self._session, order)
        seconds = {"stage": filled - began, "merge": time.monotonic() - filled}
        return Outcome(merged.applied, merged.superseded, rows.rejected(merged.broken), seconds)

    def _ready_staging(self, layout: Layout) -> None:
        """Make the temporary tables, or empty those that are there, and let the server sort in memory."""
        staging = Staging(self._session, layout)
        if self.staged.signature != staging.signature:
            staging.make()
            self.staged.signature = staging.signature
        else:
            staging.empty()
        staging.sort_in_memory()

    def check_own_values(self, own: OwnValue) -> None:
        assert self.checked is not None
        column = own_column(self.checked.layout, own)
        assert column is not None
        own_values.check(self._session, column)

    def _cleared(self) -> dict[int, int]:
        """Up to which sequence number memories may have been cleared, by the partition's number."""
        cleared = clearing.cleared_up_to(self._session) if self.has(CLEARED) else {}
        return {number: cleared[lane] for lane, number in self.bookkeeping.lane_ids(cleared).items()}

    def _appended(self, layout: Layout, rows: BatchRows) -> Merged | None:
        """Bring rows that all count straight into the table. None, with nothing written, where it does not take all.

        COPY knows no rules, and refuses a table with row security.
        """
        assert self.checked is not None
        chance, session = self.checked.quick, self._session
        if layout.relation.ruled or not chance.taken():
            return None
        try:
            with session.savepoint():
                merged = Merged(applied=rows.fill_table())
        except psycopg.Error as error:
            if passes(error):
                raise
            merged = None
        chance.note(went=merged is not None)
        return merged

    def _merged_last(self, layout: Layout, rows: BatchRows, own: OwnColumn | None) -> Merged | None:
        """Stage and merge the last row of each key alone. None, with nothing written, where that is wrong."""
        assert self.checked is not None
        chance, session = self.checked.quick, self._session
        if session.spec.spread or not layout.lets_last_alone or not chance.taken() or (last := rows.last()) is None:
            return None
        self._ready_staging(layout)
        rows.fill_last(last, self.bookkeeping)
        count, by_value = len(last.places), last.judged is not None
        it = AtOnce(session, layout, by_value=by_value, deletes=last.deletes, repeated=False, own=own)

        def write() -> Merged | None:
            if not by_value or count == len(last.rows):  # what is known decides about no rows but these
                older = it.write(count)
                return None if older is None else Merged(len(last.rows) - older, older)
            step = it.write_judged(count, lambda known: last.beside(claims_of(known, self.bookkeeping)))
            return None if step is None else Merged(len(step.winners), step.superseded)

        # Undone to its only savepoint, all locks but those on watermarks are given back: nothing is staged again.
        merged = until_it_stays(write, ROLLED_BACK, self._patience)
        chance.note(went=merged is not None)
        return merged

    def _merged(
        self, layout: Layout, batch: Batch, order: TableOrder, filled: Filled, own: OwnColumn | None, *, past: bool
    ) -> Merged:
        """Merge what is staged. If the server undoes that for others' sake, the whole transaction is done again.

        Undoing it to a savepoint would not do: rows were written under savepoints in it, which are released, and who
        waits for such a row waits for the end of the transaction. So both would find the same deadlock again.
        """
        assert self.checked is not None
        by_value, deletes = order.kind is not None, batch.delete is not None
        merge = Merge(self._session, layout, self.bookkeeping, by_value=by_value, deletes=deletes, own=own)
        if not layout.keys:
            return merge.append(filled.rows)
        return merge.past(self._cleared) if past else merge.upsert(filled, self.checked.chance)
