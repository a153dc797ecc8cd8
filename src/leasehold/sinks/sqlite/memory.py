"""The memory of keys in SQLite: which event has written each key last, also after the entity was deleted.

Owns the table `leasehold_key_<table>`, one row a key of an upserted table. A late older event does not bring an entity
back that was deleted. Every function here runs inside a transaction of the caller's, which locks the database from its
first statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from leasehold.database.statements import quoted
from leasehold.sinks.beside.alone import key_columns
from leasehold.sinks.beside.forgetting import candidates
from leasehold.sinks.beside.writing import KnownKeys
from leasehold.sinks.rules.batch import OrderValue
from leasehold.sinks.rules.ordering import Claim, Key
from leasehold.sinks.rules.remembered_order import OwnValue
from leasehold.sinks.rules.table_spec import TableSpec, ordered_keys
from leasehold.sinks.sqlite import own_values
from leasehold.sinks.sqlite.inserts import Insert, insert
from leasehold.sinks.sqlite.key_rows import key_rows, stored_keys


def make(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Make the table if it is missing, and there are keys."""
    for statement in statements(spec):
        connection.execute(statement)


def statements(spec: TableSpec) -> list[str]:
    """What makes the table if it is missing; nothing where there are no keys."""
    if not spec.memory:
        return []
    columns = ", ".join(key_columns(spec))
    return [
        f"CREATE TABLE IF NOT EXISTS {quoted(spec.memory)} ({columns}, hub TEXT NOT NULL, "
        "partition TEXT NOT NULL, sequence_number INTEGER NOT NULL, sequence_by, deleted INTEGER NOT NULL, "
        f"PRIMARY KEY ({columns})) WITHOUT ROWID"
    ]


class SqliteKeyMemory(KnownKeys):
    """The memory of keys of a table, as `sinks.beside.writing` asks for it; with `own`, rows count beside it."""

    def __init__(self, connection: sqlite3.Connection, spec: TableSpec, own: OwnValue | None) -> None:
        self._connection, self._spec, self._own = connection, spec, own

    def known(self, keys: Sequence[Key]) -> Iterator[tuple[Key, str, str, int, OrderValue | None]]:
        return _known(self._connection, self._spec, keys)

    def own_claims(self, keys: Sequence[Key]) -> dict[Key, Claim]:
        return {} if self._own is None else own_values.claims(self._connection, self._spec, self._own, keys)

    def remember(self, rows: Iterable[tuple[object, ...]]) -> int:
        columns = list(zip(*rows, strict=True))
        return remember(self._connection, self._spec, columns) if columns else 0


def _known(
    connection: sqlite3.Connection, spec: TableSpec, keys: Sequence[Key]
) -> Iterator[tuple[Key, str, str, int, OrderValue | None]]:
    """Of each of these keys that is known: hub, partition, sequence number and value of `sequence_by`."""
    assert spec.memory is not None
    columns = key_columns(spec)
    width = len(columns)
    match = " AND ".join(f"k.{column} = w.column{place}" for place, column in enumerate(columns, 1))
    wanted = ", ".join(f"k.{column}" for column in columns)
    for _, rows, values in key_rows(keys):
        query = (
            f"SELECT {wanted}, k.hub, k.partition, k.sequence_number, k.sequence_by "
            f"FROM {rows} w CROSS JOIN {quoted(spec.memory)} k ON {match}"
        )
        for row in connection.execute(query, values):
            yield (row[:width], *row[width:])


def written_by(
    connection: sqlite3.Connection, spec: TableSpec, schema: pa.Schema, keys: Sequence[Key]
) -> dict[Key, int]:
    """Which event has written each of these keys last, by its number; `schema` has their columns."""
    if not keys:
        return {}
    places = [schema.names.index(name) for name in ordered_keys(spec)]
    given = {tuple(one[place] for place in places): key for one, key in stored_keys(schema, keys).items()}
    return {given[key]: number for key, _, _, number, _ in _known(connection, spec, list(given))}


def remember(
    connection: sqlite3.Connection, spec: TableSpec, noted: Sequence[Sequence[Any]], *, one_lane: bool = False
) -> int:
    """Note the last event of each key, column by column: the key's, hub, partition, number, sequence_by, deleted.

    With `one_lane`, a key that is known from another partition stays as it is. Returns how many were noted: none where
    there are no keys.
    """
    if not spec.memory:
        return 0
    columns = ("hub", "partition", "sequence_number", "sequence_by", "deleted")
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns)
    those = " WHERE memory.hub = excluded.hub AND memory.partition = excluded.partition" if one_lane else ""
    into, width = f"INSERT INTO {quoted(spec.memory)} AS memory", len(spec.keys) + len(columns)
    return insert(connection, Insert(into, width, f"ON CONFLICT DO UPDATE SET {changes}{those}"), noted)


def forget(connection: sqlite3.Connection, spec: TableSpec, key: Mapping[str, str]) -> int:
    """Forget what is known of a key, which a person states as text; how many there were. The table is there."""
    terms, values = [], []
    for column, name in zip(key_columns(spec), ordered_keys(spec), strict=True):
        found = candidates(key[name])
        terms.append(f"{column} IN ({', '.join('?' * len(found))})")
        values += found
    assert spec.memory is not None
    return connection.execute(f"DELETE FROM {quoted(spec.memory)} WHERE {' AND '.join(terms)}", values).rowcount
