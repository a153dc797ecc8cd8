"""Parked events in SQLite: the table `leasehold_parked`. The rules are in `sinks.parking`.

Owns this table, one for all entity tables of a database, made by `check`, and its SQL. Every function here runs inside
a transaction of the caller's, which locks the database from its first statement; `entities` and `events` in one that
only reads.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Collection, Mapping

from leasehold.sinks.fence import Lane
from leasehold.sinks.parking import Key, ParkedEvent, Parking
from leasehold.sinks.parking.keys import key_of, text_of, texts_of
from leasehold.sinks.shape import exists
from leasehold.sinks.table import TableSpec

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS leasehold_parked (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, hub TEXT, partition TEXT, sequence_number INTEGER,
        key TEXT NOT NULL, body BLOB NOT NULL, enqueued_time REAL NOT NULL, deliveries INTEGER NOT NULL,
        next_at REAL NOT NULL, error TEXT NOT NULL, parked_at REAL NOT NULL,
        PRIMARY KEY (pipeline, entity_table, hub, partition, sequence_number)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS leasehold_parked_key ON leasehold_parked "
    "(pipeline, entity_table, hub, partition, key, sequence_number)",
)
_LANE = "pipeline = ? AND entity_table = ? AND hub = ? AND partition = ?"
_KEYS_A_QUERY = 400
_OF_KEY = "b.pipeline = p.pipeline AND b.entity_table = p.entity_table AND b.key = p.key"
_FIRST = (  # of its entity, in a spread table
    f"NOT EXISTS (SELECT 1 FROM leasehold_parked b WHERE {_OF_KEY} AND (b.parked_at, b.hub, b.partition, "
    "b.sequence_number) < (p.parked_at, p.hub, p.partition, p.sequence_number))"
)
_BEHIND_NO_OTHER = (
    f"NOT EXISTS (SELECT 1 FROM leasehold_parked b WHERE {_OF_KEY} AND (b.hub, b.partition) <> (p.hub, p.partition) "
    "AND b.parked_at < p.parked_at)"
)
_APART = 1e-6  # seconds between events of an entity that two partitions park


def check(connection: sqlite3.Connection) -> None:
    """Make the table."""
    for statement in SCHEMA:
        connection.execute(statement)


def entities(connection: sqlite3.Connection, spec: TableSpec, lane: Lane) -> dict[Key, float]:
    """See `KeepsParked`."""
    if spec.spread:
        firsts = connection.execute(
            "SELECT key, next_at, (hub, partition) = (?, ?) FROM leasehold_parked p WHERE pipeline = ? AND "
            f"entity_table = ? AND key IN (SELECT key FROM leasehold_parked WHERE {_LANE}) AND {_FIRST}",
            (*lane, spec.pipeline, spec.name, spec.pipeline, spec.name, *lane),
        )
        return {key_of(spec, text): next_at if mine else math.inf for text, next_at, mine in firsts}
    rows = connection.execute(
        # With min(), SQLite takes the other columns from the row that has it.
        f"SELECT key, next_at, min(sequence_number) FROM leasehold_parked WHERE {_LANE} GROUP BY key",
        (spec.pipeline, spec.name, *lane),
    )
    return {key_of(spec, text): next_at for text, next_at, _ in rows}


def events(
    connection: sqlite3.Connection, spec: TableSpec, lane: Lane, keys: Collection[Key], at_most: int
) -> list[ParkedEvent]:
    """See `KeepsParked`."""
    found: list[ParkedEvent] = []
    behind = _BEHIND_NO_OTHER if spec.spread else "true"
    texts = sorted(text_of(spec, key) for key in keys)
    for start in range(0, len(texts), _KEYS_A_QUERY):
        some = texts[start : start + _KEYS_A_QUERY]
        rows = connection.execute(
            "SELECT key, body, sequence_number, enqueued_time, deliveries, next_at, error FROM leasehold_parked "
            f"p WHERE {_LANE} AND key IN ({', '.join('?' * len(some))}) AND {behind} ORDER BY sequence_number LIMIT ?",
            (spec.pipeline, spec.name, *lane, *some, at_most),
        )
        found += [ParkedEvent(key_of(spec, row[0]), *row[1:]) for row in rows]
    return sorted(found, key=lambda event: event.sequence_number)[:at_most]


def change(connection: sqlite3.Connection, spec: TableSpec, parking: Parking, now: float) -> None:
    """Do what `parking` says. The table is there."""
    lane = (spec.pipeline, spec.name, parking.hub, parking.partition)
    connection.executemany(
        f"DELETE FROM leasehold_parked WHERE {_LANE} AND sequence_number = ?",
        [(*lane, number) for number in parking.removed],
    )
    at = _turns(connection, spec, parking, now) if spec.spread else {}
    connection.executemany(
        "INSERT INTO leasehold_parked VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "deliveries = excluded.deliveries, next_at = excluded.next_at, error = excluded.error",
        [
            (
                *(*lane, one.sequence_number, text_of(spec, one.key), one.body, one.enqueued_time),
                *(one.deliveries, one.next_at, one.error, at.get(one.key, now)),
            )
            for one in parking.put
        ],
    )


def _turns(connection: sqlite3.Connection, spec: TableSpec, parking: Parking, now: float) -> dict[Key, float]:
    """When these are parked: behind all that is parked of their entities, whatever the clocks say."""
    query = "SELECT max(parked_at) FROM leasehold_parked WHERE pipeline = ? AND entity_table = ? AND key = ?"
    found = {}
    for key in {one.key for one in parking.put}:
        (last,) = connection.execute(query, (spec.pipeline, spec.name, text_of(spec, key))).fetchone()
        found[key] = now if last is None else max(now, last + _APART)
    return found


def remove_above(connection: sqlite3.Connection, spec: TableSpec, marks: Mapping[Lane, int]) -> None:
    """See `ParksEvents.unpark_above`."""
    if exists(connection, "leasehold_parked"):
        connection.executemany(
            f"DELETE FROM leasehold_parked WHERE {_LANE} AND sequence_number > ?",
            [(spec.pipeline, spec.name, *lane, number) for lane, number in marks.items()],
        )


def remove_all(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """The entity table is gone, and what was parked for it with it."""
    if exists(connection, "leasehold_parked"):
        connection.execute(
            "DELETE FROM leasehold_parked WHERE pipeline = ? AND entity_table = ?", (spec.pipeline, spec.name)
        )


def forget(connection: sqlite3.Connection, spec: TableSpec, key: Mapping[str, str]) -> int:
    """Forget the parked events of an entity, by its key as text; how many there were."""
    if not exists(connection, "leasehold_parked"):
        return 0
    count = 0
    for text in texts_of(spec, key):
        count += connection.execute(
            "DELETE FROM leasehold_parked WHERE pipeline = ? AND entity_table = ? AND key = ?",
            (spec.pipeline, spec.name, text),
        ).rowcount
    return count
