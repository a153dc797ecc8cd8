"""Parked events in SQLite: the table `leasehold_parked`. The rules are in `sinks.beside.parking`.

Owns this table, one for all entity tables of a database, made by `check`, and its SQL. Every function here runs inside
a transaction of the caller's, which locks the database from its first statement; `entities` and `events` in one that
only reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from leasehold.sinks.beside.parking import reading
from leasehold.sinks.beside.parking.keys import key_of, text_of, texts_of
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.parking import ParkedEvent, Parking
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite.shape import exists

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
_READ = (  # no owner parks an event that it has not read
    "sequence_number BETWEEN 0 AND (SELECT max(sequence_number) FROM leasehold_watermark WHERE "
    "pipeline = ? AND entity_table = ? AND hub = ? AND partition = ?)"
)
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


def as_kept(column: str) -> str:
    """A column as its bytes: what is not UTF-8 would fail the whole query."""
    return f"CAST({column} AS BLOB)"


def number(column: str) -> str:
    """A column of numbers, 0 where it has none."""
    return f"CASE WHEN typeof({column}) IN ('integer', 'real') THEN {column} ELSE 0 END"


def names(rows: Iterable[Sequence[bytes]]) -> Iterator[tuple[str, ...]]:
    """Of texts `as_kept` those that are UTF-8: what was written as anything else names nothing that Leasehold has."""
    for row in rows:
        with suppress(UnicodeDecodeError):
            yield tuple(one.decode() for one in row)


EVENT = ", ".join(
    [as_kept("body"), "sequence_number", *map(number, ("enqueued_time", "deliveries", "next_at")), as_kept("error")]
)
"""What `reading.event` is given behind the key."""


def check(connection: sqlite3.Connection) -> None:
    """Make the table."""
    for statement in SCHEMA:
        connection.execute(statement)


def entities(connection: sqlite3.Connection, spec: TableSpec, lane: Lane) -> dict[Key, float]:
    """See `KeepsParked`."""
    mine = (spec.pipeline, spec.name, *lane)
    if spec.spread:
        firsts = connection.execute(
            f"SELECT {as_kept('key')}, {number('next_at')}, (hub, partition) = (?, ?) FROM leasehold_parked p WHERE "
            "pipeline = ? AND entity_table = ? "
            f"AND key IN (SELECT key FROM leasehold_parked WHERE {_LANE} AND {_READ}) AND {_FIRST}",
            (*lane, spec.pipeline, spec.name, *mine, *mine),
        )
        return dict(reading.entities(spec, ((text, at if mine else None) for text, at, mine in firsts)))
    rows = connection.execute(
        # With min(), SQLite takes the other columns from the row that has it.
        f"SELECT {as_kept('key')}, {number('next_at')}, min(sequence_number) FROM leasehold_parked WHERE {_LANE} "
        f"AND {_READ} GROUP BY key",
        (*mine, *mine),
    )
    return dict(reading.entities(spec, ((text, next_at) for text, next_at, _ in rows)))


def events(
    connection: sqlite3.Connection, spec: TableSpec, lane: Lane, keys: Collection[Key], at_most: int
) -> list[ParkedEvent]:
    """See `KeepsParked`."""
    found: list[ParkedEvent] = []
    mine = (spec.pipeline, spec.name, *lane)
    behind = _BEHIND_NO_OTHER if spec.spread else "true"
    texts = sorted(text_of(spec, key) for key in keys)
    for start in range(0, len(texts), _KEYS_A_QUERY):
        some = texts[start : start + _KEYS_A_QUERY]
        rows = connection.execute(
            f"SELECT key, {EVENT} FROM leasehold_parked p WHERE {_LANE} AND {_READ} "
            f"AND key IN ({', '.join('?' * len(some))}) AND {behind} ORDER BY sequence_number LIMIT ?",
            (*mine, *mine, *some, at_most),
        )
        found += [reading.event(key_of(spec, row[0]), *row[1:]) for row in rows]
    return sorted(found, key=lambda event: event.sequence_number)[:at_most]


def firsts(connection: sqlite3.Connection, spec: TableSpec, keys: Collection[Key]) -> dict[Key, tuple[Lane, float]]:
    """See `KeepsVersions.first_parked`."""
    found: dict[Key, tuple[Lane, float]] = {}
    texts = {text_of(spec, key): key for key in keys}
    ordered = sorted(texts)
    for start in range(0, len(ordered), _KEYS_A_QUERY):
        some = ordered[start : start + _KEYS_A_QUERY]
        rows = connection.execute(
            f"SELECT key, {as_kept('hub')}, {as_kept('partition')}, {number('next_at')} FROM leasehold_parked p "
            f"WHERE pipeline = ? AND entity_table = ? AND key IN ({', '.join('?' * len(some))}) AND {_FIRST}",
            (spec.pipeline, spec.name, *some),
        )
        for text, *place, at in rows:
            for hub, name in names([place]):  # others may write here
                found[texts[text]] = (hub, name), reading.seconds(at)
    return found


def are_there(connection: sqlite3.Connection, spec: TableSpec, lane: Lane, numbers: Collection[int]) -> bool:
    """See `ParksEvents.are_parked`. The table is there."""
    query = f"SELECT 1 FROM leasehold_parked WHERE {_LANE} AND sequence_number = ?"
    mine = (spec.pipeline, spec.name, *lane)
    return all(connection.execute(query, (*mine, its)).fetchone() is not None for its in numbers)


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
    query = (
        "SELECT max(parked_at) FROM leasehold_parked WHERE pipeline = ? AND entity_table = ? AND key = ? "
        "AND typeof(parked_at) IN ('integer', 'real')"
    )
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
