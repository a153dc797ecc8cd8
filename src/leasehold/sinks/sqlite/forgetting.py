"""Forgetting in SQLite: an entity, and what is old. The rules are in `sinks.beside.forgetting`.

Owns two tables, each for all entity tables of a database, made when they are needed: `leasehold_place`, the notes of
where partitions were and when, and `leasehold_cleared`, up to which place memories may have been cleared. Every
function here runs inside a transaction of the caller's, which locks the database from its first statement; a step of
clearing looks at no more rows than it is told.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from leasehold.sinks.beside.forgetting import Cleared, Forgotten, Retention, candidates, is_of
from leasehold.sinks.beside.kept_values import time_text
from leasehold.sinks.beside.set_aside.contract import EventId, RejectedRow
from leasehold.sinks.rules.columns import quoted
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.table import TableSpec, ordered_keys
from leasehold.sinks.sqlite.shape import exists

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS leasehold_place (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, consumer_group TEXT, at REAL, hub TEXT, partition TEXT,
        sequence_number INTEGER NOT NULL,
        PRIMARY KEY (pipeline, entity_table, consumer_group, at, hub, partition)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS leasehold_cleared (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, hub TEXT, partition TEXT, sequence_number INTEGER NOT NULL,
        PRIMARY KEY (pipeline, entity_table, hub, partition)) WITHOUT ROWID""",
)
_OF_READER = "pipeline = ? AND entity_table = ? AND consumer_group = ?"
_OF_TABLE = "pipeline = ? AND entity_table = ?"

Places = Mapping[Lane, int]


def clear(
    connection: sqlite3.Connection,
    spec: TableSpec,
    retention: Retention,
    now: float,
    after: tuple[object, ...] | None,
    at_most: int,
) -> Cleared:
    """One step."""
    rejected, more = 0, False
    if retention.rejected is not None:
        before = time_text(max(0.0, now - retention.rejected))
        rejected = _oldest(connection, spec.rejected, "rejected_at", before, at_most)
        _oldest(connection, "leasehold_dropped", "dropped_at", before, at_most)
        more = rejected == at_most
    if retention.note_every is None or not spec.memory or not exists(connection, spec.memory):
        return Cleared(rejected, 0, None, more)
    for statement in _SCHEMA:
        connection.execute(statement)
    _note_places(connection, spec, retention, now)
    memories = 0
    old = _places_before(connection, spec, now, retention.memories)
    old_of_deleted = _places_before(connection, spec, now, retention.of_tombstones)
    if old or old_of_deleted:
        memories, after = _clear_keys(connection, spec, old, old_of_deleted, after, at_most)
        more = more or after is not None
    return Cleared(rejected, memories, after, more)


def cleared_up_to(connection: sqlite3.Connection, spec: TableSpec) -> dict[Lane, int]:
    """Up to which sequence number of each partition memories may have been cleared."""
    if not exists(connection, "leasehold_cleared"):
        return {}
    query = f"SELECT hub, partition, sequence_number FROM leasehold_cleared WHERE {_OF_TABLE}"
    return {(hub, name): number for hub, name, number in connection.execute(query, (spec.pipeline, spec.name))}


def void_places(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Events are applied anew: what was noted of places says no more when they were applied."""
    if exists(connection, "leasehold_place"):
        connection.execute(f"DELETE FROM leasehold_place WHERE {_OF_TABLE}", (spec.pipeline, spec.name))


def void_cleared(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """All memories are forgotten, and made anew."""
    if exists(connection, "leasehold_cleared"):
        connection.execute(f"DELETE FROM leasehold_cleared WHERE {_OF_TABLE}", (spec.pipeline, spec.name))


def forget(connection: sqlite3.Connection, spec: TableSpec, key: Mapping[str, str]) -> Forgotten:
    """Forget what is known of a key, and the rejected rows of an entity."""
    memories = rejected = 0
    if spec.memory and exists(connection, spec.memory):
        terms, values = [], []
        for place, name in enumerate(ordered_keys(spec), 1):
            found = candidates(key[name])
            terms.append(f"key_{place} IN ({', '.join('?' * len(found))})")
            values += found
        statement = f"DELETE FROM {quoted(spec.memory)} WHERE {' AND '.join(terms)}"
        memories = connection.execute(statement, values).rowcount
    if exists(connection, spec.rejected):
        query = (
            "SELECT rowid, hub, partition, sequence_number, place, body, reason, source, rejected_at "
            f"FROM {quoted(spec.rejected)}"
        )
        its = [
            (row[0],)
            for row in connection.execute(query)
            if is_of(RejectedRow(EventId(row[1], row[2], row[3]), *row[4:]), key)
        ]
        connection.executemany(f"DELETE FROM {quoted(spec.rejected)} WHERE rowid = ?", its)
        rejected = len(its)
    return Forgotten(memories, rejected)


def _oldest(connection: sqlite3.Connection, table: str, column: str, before: str, at_most: int) -> int:
    """Delete what is old among the rows that were inserted first: they are the oldest."""
    if not exists(connection, table):
        return 0
    name = quoted(table)
    return connection.execute(
        f"DELETE FROM {name} WHERE rowid IN (SELECT rowid FROM {name} ORDER BY rowid LIMIT ?) AND {column} < ?",
        (at_most, before),
    ).rowcount


def _note_places(connection: sqlite3.Connection, spec: TableSpec, retention: Retention, now: float) -> None:
    """Note the places of now, if it is time for it, and forget notes that are older than the oldest one needed."""
    reader = (spec.pipeline, spec.name, spec.consumer_group)
    (last,) = connection.execute(f"SELECT max(at) FROM leasehold_place WHERE {_OF_READER}", reader).fetchone()
    if last is not None and retention.note_every is not None and now - last < retention.note_every:
        return
    connection.execute(
        "INSERT OR REPLACE INTO leasehold_place (pipeline, entity_table, consumer_group, at, hub, partition, "
        "sequence_number) SELECT pipeline, entity_table, consumer_group, ?, hub, partition, sequence_number "
        f"FROM leasehold_watermark WHERE {_OF_READER}",
        (now, *reader),
    )
    assert retention.longest_of_keys is not None
    connection.execute(
        f"DELETE FROM leasehold_place WHERE {_OF_READER} AND at < "
        f"(SELECT max(at) FROM leasehold_place WHERE {_OF_READER} AND at <= ?)",
        (*reader, *reader, now - retention.longest_of_keys),
    )


def _places_before(connection: sqlite3.Connection, spec: TableSpec, now: float, seconds: float | None) -> Places:
    """Where partitions were this many seconds ago, by the latest note that is that old."""
    if seconds is None:
        return {}
    reader = (spec.pipeline, spec.name, spec.consumer_group)
    query = (
        f"SELECT hub, partition, sequence_number FROM leasehold_place WHERE {_OF_READER} AND at = "
        f"(SELECT max(at) FROM leasehold_place WHERE {_OF_READER} AND at <= ?)"
    )
    rows = connection.execute(query, (*reader, *reader, now - seconds))
    return {(hub, partition): number for hub, partition, number in rows}


def _clear_keys(
    connection: sqlite3.Connection,
    spec: TableSpec,
    old: Places,
    old_of_deleted: Places,
    after: tuple[object, ...] | None,
    at_most: int,
) -> tuple[int, tuple[object, ...] | None]:
    """Look at the keys behind `after`. Returns how many were cleared, and where to go on, None after the last."""
    assert spec.memory is not None
    columns = [f"key_{place}" for place in range(1, len(spec.keys) + 1)]
    names, width = ", ".join(columns), len(columns)
    where = f"WHERE ({names}) > ({', '.join('?' * width)})" if after is not None else ""
    rows = connection.execute(
        f"SELECT {names}, hub, partition, sequence_number, deleted FROM {quoted(spec.memory)} {where} "
        f"ORDER BY {names} LIMIT ?",
        (*(after or ()), at_most),
    ).fetchall()
    gone: list[Sequence[object]] = []
    reached: dict[Lane, int] = {}
    for row in rows:
        hub, partition, number, deleted = row[width:]
        lane = (hub, partition)
        if number <= (old_of_deleted if deleted else old).get(lane, -1):
            gone.append(row[:width])
            reached[lane] = max(number, reached.get(lane, -1))
    match = " AND ".join(f"{column} = ?" for column in columns)
    connection.executemany(f"DELETE FROM {quoted(spec.memory)} WHERE {match}", gone)
    connection.executemany(
        "INSERT INTO leasehold_cleared VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET sequence_number = "
        "max(sequence_number, excluded.sequence_number)",
        [(spec.pipeline, spec.name, *lane, number) for lane, number in reached.items()],
    )
    return len(gone), tuple(rows[-1][:width]) if len(rows) == at_most else None
