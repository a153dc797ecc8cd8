"""Parked events in SQLite, for an operator: listed, tried at once, dropped.

The contract is in `sinks.beside.parking.listing`.

A row that says of no event where it stands, since somebody else has written it, is not listed. Every function here runs
inside a transaction of the caller's, which locks the database from its first statement.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence

from leasehold.sinks.beside import kept_values
from leasehold.sinks.beside.parking import reading
from leasehold.sinks.beside.parking.listing import ParkedRow
from leasehold.sinks.beside.set_aside.contract import EventId, Selection
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite import bookkeeping
from leasehold.sinks.sqlite.parked import EVENT, as_kept, number
from leasehold.sinks.sqlite.rejected_rows import DROPPED
from leasehold.sinks.sqlite.shape import exists

_MINE = "p.pipeline = ? AND p.entity_table = ?"
_EVENT = "pipeline = ? AND entity_table = ? AND hub = ? AND partition = ? AND sequence_number = ?"
_FIRST = (
    "NOT EXISTS (SELECT 1 FROM leasehold_parked b WHERE b.pipeline = p.pipeline AND b.entity_table = p.entity_table "
    "AND b.hub = p.hub AND b.partition = p.partition AND b.key = p.key AND b.sequence_number < p.sequence_number)"
)


def prepare(connection: sqlite3.Connection) -> None:
    """Make the functions that are used here; once for a connection."""
    connection.create_function("leasehold_is_text", 1, _is_text, deterministic=True)


def _is_text(kept: bytes) -> bool:
    try:
        kept.decode()
    except UnicodeDecodeError:
        return False
    return True


def rows(
    connection: sqlite3.Connection, spec: TableSpec, selection: Selection, limit: int, after: EventId | None
) -> list[ParkedRow]:
    """See `ListsParked`."""
    if not exists(connection, "leasehold_parked"):
        return []
    terms, values = [_MINE], [spec.pipeline, spec.name]
    if selection.events is not None:
        terms.append(
            "(p.partition, p.sequence_number) IN "
            "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))"
        )
        values.append(json.dumps(sorted(selection.events)))
    if selection.reason is not None:
        terms.append("instr(p.error, ?)")
        values.append(selection.reason)
    if selection.hub is not None:
        terms.append("p.hub = ?")
        values.append(selection.hub)
    behind: tuple[object, ...] = ()
    if after is not None:
        terms.append("(p.hub, p.partition, p.sequence_number) > (?, ?, ?)")
        behind = (after.hub, after.partition, after.sequence_number)
    found = connection.execute(
        f"SELECT p.hub, p.partition, {as_kept('key')}, {EVENT}, {number('parked_at')}, {_FIRST} "
        f"FROM leasehold_parked p WHERE {' AND '.join(terms)} AND typeof(p.sequence_number) = 'integer' "
        f"AND leasehold_is_text({as_kept('p.hub')}) AND leasehold_is_text({as_kept('p.partition')}) "
        "AND typeof(p.hub) = 'text' AND typeof(p.partition) = 'text' "
        "ORDER BY p.hub, p.partition, p.sequence_number LIMIT ?",
        (*values, *behind, limit),
    )
    return [
        ParkedRow(
            EventId(hub, name, its[1]),
            reading.event(reading.shown_key(spec, text), *its),
            kept_values.seconds(at),
            bool(first),
        )
        for hub, name, text, *its, at, first in found
    ]


def counts(connection: sqlite3.Connection, spec: TableSpec) -> tuple[int, float | None, float | None]:
    """How many are parked, when the oldest was, and when the next is tried: see `SetAsideCounts`."""
    if not exists(connection, "leasehold_parked"):
        return 0, None, None
    mine = (spec.pipeline, spec.name)
    count, oldest = connection.execute(
        f"SELECT count(*), min(p.parked_at) FROM leasehold_parked p WHERE {_MINE}", mine
    ).fetchone()
    (following,) = connection.execute(
        "SELECT min(CASE WHEN p.next_at > 0 THEN p.next_at ELSE p.parked_at END) "
        f"FROM leasehold_parked p WHERE {_MINE} AND {_FIRST}",
        mine,
    ).fetchone()
    return count, *(None if at is None else kept_values.seconds(at) for at in (oldest, following))


def hurry(connection: sqlite3.Connection, spec: TableSpec, events: Collection[EventId]) -> int:
    """See `ListsParked`."""
    if not exists(connection, "leasehold_parked"):
        return 0
    count = 0
    for event in events:
        its = (spec.pipeline, spec.name, event.hub, event.partition, event.sequence_number)
        count += connection.execute(f"UPDATE leasehold_parked SET next_at = 0 WHERE {_EVENT}", its).rowcount
    bookkeeping.count_change(connection, spec)
    return count


def drop(connection: sqlite3.Connection, spec: TableSpec, events: Sequence[EventId], reason: str, now: str) -> int:
    """See `ListsParked`."""
    if not exists(connection, "leasehold_parked"):
        return 0
    connection.execute(DROPPED)
    count = 0
    for event in events:
        its = (spec.pipeline, spec.name, event.hub, event.partition, event.sequence_number)
        noted = connection.execute(
            "INSERT INTO leasehold_dropped SELECT pipeline, entity_table, hub, partition, sequence_number, 0, error, "
            "coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', parked_at, 'unixepoch'), ?), ?, ? "
            f"FROM leasehold_parked WHERE {_EVENT}",
            (now, reason, now, *its),
        )
        count += noted.rowcount
        connection.execute(f"DELETE FROM leasehold_parked WHERE {_EVENT}", its)
    bookkeeping.count_change(connection, spec)
    return count
