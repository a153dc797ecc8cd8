"""States of entities in a SQLite table: one written, or many read back as the Python values that they were written as.

Owns the way from what SQLite stores (`sinks.rules.values`) to the values of an Arrow schema of flat columns, and which
other constraints a table has: a handler's state is written as one row of several events, which no constraint may set
aside.
"""

from __future__ import annotations

import reprlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types

from leasehold.database.statements import quoted
from leasehold.sinks.beside.states import misfit, ordered, refuse_constraints, row_of
from leasehold.sinks.features import SpoiledState
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.table_spec import TableSpec, folded
from leasehold.sinks.rules.values import convert
from leasehold.sinks.sqlite.blame import ROW_ERRORS, is_the_rows, refuse_own_columns
from leasehold.sinks.sqlite.key_rows import key_rows, stored_keys
from leasehold.sinks.sqlite.shape import TableShape, exists

_READ: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (types.is_boolean, bool),
    (types.is_decimal, Decimal),
    (types.is_date, date.fromisoformat),
    (types.is_timestamp, lambda text: datetime.fromisoformat(text)),
)


def read(
    connection: sqlite3.Connection, spec: TableSpec, schema: pa.Schema, keys: Sequence[Key]
) -> dict[Key, dict[str, Any]]:
    """The rows of these keys, those that are there, in the columns of `schema`."""
    given = stored_keys(pa.schema([schema.field(name) for name in spec.keys]), keys)
    columns = ", ".join(f"t.{quoted(name)}" for name in schema.names)
    match = " AND ".join(f"t.{quoted(name)} = w.column{place}" for place, name in enumerate(spec.keys, 1))
    readers = [_reader(field.type) for field in schema]
    places = [schema.names.index(name) for name in spec.keys]
    found: dict[Key, dict[str, Any]] = {}
    for some, rows, values in key_rows(list(given)):
        query = f"SELECT {columns} FROM {rows} w CROSS JOIN {quoted(spec.name)} t ON {match}"
        try:
            stored = connection.execute(query, values).fetchall()
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            if len(some) > 1:
                for key in some:
                    found |= read(connection, spec, schema, [given[key]])
            else:
                found[given[some[0]]] = SpoiledState(f"it has a text that is no UTF-8 ({error})")
            continue
        for row in stored:
            found[given[tuple(row[place] for place in places)]] = _state(schema, readers, row)
    return found


def _state(schema: pa.Schema, readers: Sequence[Callable[[Any], Any]], stored: Sequence[Any]) -> dict[str, Any]:
    state = {}
    for name, reader, value in zip(schema.names, readers, stored, strict=True):
        try:
            state[name] = None if value is None else reader(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            return SpoiledState(f"{name} has {reprlib.repr(value)}: {type(error).__name__}: {error}")
    return state


def write(
    connection: sqlite3.Connection,
    spec: TableSpec,
    schema: pa.Schema,
    layout: TableShape,
    key: Key,
    state: Mapping[str, Any] | None,
) -> None:
    """Write one state, None for none. Raises `UsageError` for one that the table refuses: it is the state's fault."""
    if state is None:
        assert layout.delete is not None
        connection.execute(layout.delete, ordered(spec, key))
        return
    row = row_of(spec, schema, key, state)
    columns = {name: convert(row[name]) for name in layout.columns}
    for name, column in columns.items():
        if column.problems:
            raise misfit(spec, key, f"{name} {column.problems[0]}")
    values = [column.values[0] for column in columns.values()]
    try:
        connection.execute(layout.upsert, values)
    except ROW_ERRORS as error:
        if not connection.in_transaction or not is_the_rows(connection, error, [(layout.upsert, len(values))]):
            raise
        refuse_own_columns(connection, spec.name, layout.columns, error)
        raise misfit(spec, key, error) from error


def _reader(type_: pa.DataType) -> Callable[[Any], Any]:
    if types.is_timestamp(type_) and type_.tz is not None:
        return lambda text: datetime.fromisoformat(text).astimezone(UTC)
    return next((reader for test, reader in _READ if test(type_)), lambda value: value)


def check(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Refuse a table that may refuse a row for more than its types. Raises `ConfigError`."""
    keys = {folded(name) for name in spec.keys}
    if not exists(connection, spec.name):
        return
    others = []
    for index, origin in connection.execute(
        'SELECT name, origin FROM pragma_index_list(?) WHERE "unique"', (spec.name,)
    ).fetchall():
        names = {folded(str(name)) for (name,) in connection.execute("SELECT name FROM pragma_index_info(?)", (index,))}
        if origin != "pk" and names != keys:
            others.append(f"the unique index {index}")
    if connection.execute("SELECT 1 FROM pragma_foreign_key_list(?)", (spec.name,)).fetchone():
        others.append("a foreign key")
    if connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE", (spec.name,)
    ).fetchone():
        others.append("a trigger")
    needed = connection.execute('SELECT name FROM pragma_table_info(?) WHERE "notnull" AND NOT pk', (spec.name,))
    others += [f"{name} NOT NULL" for (name,) in needed if folded(str(name)) not in keys]
    (made,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ? COLLATE NOCASE", (spec.name,)).fetchone()
    if "check" in str(made).lower().replace("(", " ").split():
        others.append("a CHECK")
    refuse_constraints(spec, others)
