"""One transaction on an entity table in SQLite, which locks the whole database. See `TableTransaction`.

Owns the way from a batch to its rows, and to what is kept beside them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from leasehold.database.tables import Table
from leasehold.sinks.beside import record, writing
from leasehold.sinks.beside.alone import ChangesAlone
from leasehold.sinks.beside.states import fenced
from leasehold.sinks.rules.batch import Batch, Kept
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.related import EntityStep
from leasehold.sinks.rules.remembered_order import OwnValue, TableOrder, own_value
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite import (
    memory,
    own_values,
    rejected_table,
    related,
    states,
)
from leasehold.sinks.sqlite.session import SqliteSession
from leasehold.sinks.sqlite.shape import TableShape, fit
from leasehold.sinks.sqlite.tables import FORMAT
from leasehold.sinks.sqlite.writing import SqliteWriting
from leasehold.sinks.transactions import Outcome


@dataclass(frozen=True, slots=True)
class CheckedShape:
    """The layout last checked over a connection, with what it was checked against."""

    version: int
    schema: pa.Schema
    layout: TableShape


class SqliteTransaction(ChangesAlone):
    """One transaction, which has locked the whole database. See `TableTransaction`."""

    def __init__(self, connection: sqlite3.Connection, spec: TableSpec, checked: CheckedShape | None) -> None:
        self._connection = connection
        self._spec = spec
        self._session = SqliteSession(connection, spec)
        self._steps = related.SqliteSteps(connection, spec)
        self.checked = checked

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    @property
    def session(self) -> SqliteSession:
        return self._session

    def make(self, table: Table) -> None:
        for statement in table.in_sqlite():
            self._connection.execute(statement)

    def state_writer(self, schema: pa.Schema) -> Callable[[Key, Mapping[str, Any] | None], None]:
        return partial(states.write, self._connection, self._spec, schema, self.layout(fenced(schema)))

    def layout(self, schema: pa.Schema) -> TableShape:
        """How rows of this schema are written, after `fit`."""
        self.fit(schema)
        return self._fitted_layout

    def claim(self) -> str:
        return record.claim(self._session, FORMAT)

    def forget_key(self, key: Mapping[str, str]) -> int:
        return memory.forget(self._connection, self._spec, key)

    def read_states(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        return states.read(self._connection, self._spec, schema, keys)

    def written_by(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, int]:
        return memory.written_by(self._connection, self._spec, schema, keys)

    def write_step(self, schema: pa.Schema, step: EntityStep) -> str | None:
        return self._steps.write(schema, self._fitted_layout, step)

    def fit(self, schema: pa.Schema) -> None:
        checked = self.checked
        version = self._schema_version()
        if checked and checked.version == version and checked.schema.equals(schema):
            return
        record.check_still_there(self._session)
        layout = fit(self._connection, self._spec, schema)
        self.added += layout.added
        memory.make(self._connection, self._spec)
        rejected_table.make(self._connection, self._spec)
        record.note_made(self._session, is_new=True)
        self.checked = CheckedShape(self._schema_version(), schema, layout)

    def _schema_version(self) -> int:
        (version,) = self._connection.execute("PRAGMA schema_version").fetchone()
        return int(version)

    def write(self, batch: Batch, kept: Kept, order: TableOrder, *, again: bool, each_row: bool) -> Outcome:
        layout, known = self._fitted_layout, self._known(order)
        mine = SqliteWriting(self._connection, self._spec, layout, each_row=each_row or again)
        write = writing.write_again if again else writing.write
        if not again and order.kind is None:
            write = partial(writing.write, at_once=mine.write_last)
        return write(self._session, layout, batch, kept, order, known, mine.write_rows)

    def check_own_values(self, own: OwnValue) -> None:
        own_values.check(self._connection, self._spec, own)

    def _known(self, order: TableOrder) -> memory.SqliteKeyMemory:
        assert self.checked is not None
        own = own_value(self._spec, order, self.checked.layout.columns, self.checked.schema)
        return memory.SqliteKeyMemory(self._connection, self._spec, own)

    @property
    def _fitted_layout(self) -> TableShape:
        assert self.checked is not None
        return self.checked.layout
