"""Versions of entities in SQLite: the table `leasehold_entity`. The rules are in `sinks.beside.versions`.

Owns this table, one for all entity tables of a database, made by `check`, and its SQL. Every function here runs inside
a transaction of the caller's, which locks the database from its first statement; `known` also in one that only reads.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa

from leasehold.sinks.beside.keys import text_of, texts_of
from leasehold.sinks.beside.versions import latest_of
from leasehold.sinks.rules.batch import KnownEntity, OrderValue
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite import states
from leasehold.sinks.sqlite.kept import as_kept, number
from leasehold.sinks.sqlite.shape import exists

_SCHEMA = """CREATE TABLE IF NOT EXISTS leasehold_entity (
    pipeline TEXT, entity_table TEXT COLLATE NOCASE, key TEXT, version INTEGER NOT NULL, latest TEXT,
    PRIMARY KEY (pipeline, entity_table, key)) WITHOUT ROWID"""  # latest is JSON
_OF_TABLE = "pipeline = ? AND entity_table = ?"
_KEYS_A_QUERY = 400


def check(connection: sqlite3.Connection) -> None:
    """Make the table. Parked events are looked up by key from now on, and `leasehold_parked` is there."""
    connection.execute(_SCHEMA)
    connection.execute(
        "CREATE INDEX IF NOT EXISTS leasehold_parked_entity "
        "ON leasehold_parked (pipeline, entity_table, key, parked_at)"
    )


def versions(connection: sqlite3.Connection, spec: TableSpec, keys: Collection[Key]) -> dict[Key, int]:
    """See `VersionsEntities.lock_entities`."""
    found = {text: version for text, version, _ in _rows(connection, spec, keys)}
    return {key: found.get(text_of(spec, key), 0) for key in keys}


def known(
    connection: sqlite3.Connection, spec: TableSpec, schema: pa.Schema, keys: Sequence[Key]
) -> dict[Key, KnownEntity]:
    """See `KeepsVersions.read_entities`: versions are read first."""
    entities = {text: (version, latest) for text, version, latest in _rows(connection, spec, keys)}
    waiting = set(_waiting(connection, spec, keys))
    there = states.read(connection, spec, schema, keys)
    found = {}
    for key in keys:
        version, latest = entities.get(text := text_of(spec, key), (0, None))
        found[key] = KnownEntity(version, latest_of(latest), there.get(key), text in waiting)
    return found


def raised(
    connection: sqlite3.Connection, spec: TableSpec, keys: Collection[Key], latest: Mapping[Key, OrderValue]
) -> None:
    """See `VersionsEntities.raise_versions`."""
    connection.executemany(
        "INSERT INTO leasehold_entity VALUES (?, ?, ?, 1, ?) ON CONFLICT DO UPDATE SET version = version + 1, "
        "latest = coalesce(excluded.latest, latest)",
        [
            (spec.pipeline, spec.name, text_of(spec, key), json.dumps(latest[key]) if key in latest else None)
            for key in keys
        ],
    )


def forget(connection: sqlite3.Connection, spec: TableSpec, key: Mapping[str, str]) -> int:
    """Forget an entity, by its key as text; how many there were."""
    if not exists(connection, "leasehold_entity"):
        return 0
    return sum(
        connection.execute(
            f"DELETE FROM leasehold_entity WHERE {_OF_TABLE} AND key = ?", (spec.pipeline, spec.name, text)
        ).rowcount
        for text in texts_of(spec, key)
    )


def forget_all(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Forget all entities of the table."""
    if exists(connection, "leasehold_entity"):
        connection.execute(f"DELETE FROM leasehold_entity WHERE {_OF_TABLE}", (spec.pipeline, spec.name))


def _rows(
    connection: sqlite3.Connection, spec: TableSpec, keys: Collection[Key]
) -> Iterator[tuple[str, int, bytes | None]]:
    for some in _texts(spec, keys):
        query = (
            f"SELECT key, {number('version')}, {as_kept('latest')} FROM leasehold_entity WHERE {_OF_TABLE} "
            f"AND key IN ({', '.join('?' * len(some))})"
        )
        yield from connection.execute(query, (spec.pipeline, spec.name, *some))


def _waiting(connection: sqlite3.Connection, spec: TableSpec, keys: Collection[Key]) -> Iterator[str]:
    for some in _texts(spec, keys):
        query = f"SELECT DISTINCT key FROM leasehold_parked WHERE {_OF_TABLE} AND key IN ({', '.join('?' * len(some))})"
        yield from (text for (text,) in connection.execute(query, (spec.pipeline, spec.name, *some)))


def _texts(spec: TableSpec, keys: Collection[Key]) -> Iterator[list[str]]:
    texts = sorted(text_of(spec, key) for key in keys)
    for start in range(0, len(texts), _KEYS_A_QUERY):
        yield texts[start : start + _KEYS_A_QUERY]
