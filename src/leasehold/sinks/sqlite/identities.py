"""What events are known by, remembered in SQLite: the table `leasehold_identity_<table>`.

Owns this table, and its SQL. It is made when the first identity comes, so that a table without `deduplicate_by` has
none. A row without an identity has the time that the table has reached. Every function
here runs inside a transaction of the caller's, which locks the database from its first statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from leasehold.database.statements import quoted
from leasehold.sinks.rules.duplicates import Memory, Seen
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.shape import exists

_A_QUERY = 500


def statements(spec: TableSpec) -> tuple[str, str]:
    """What makes the table, and its index, if they are missing."""
    name = quoted(spec.identities)
    return (
        f"CREATE TABLE IF NOT EXISTS {name} (identity TEXT PRIMARY KEY, hub TEXT NOT NULL, partition TEXT NOT NULL, "
        "sequence_number INTEGER NOT NULL, enqueued INTEGER NOT NULL) WITHOUT ROWID",
        f"CREATE INDEX IF NOT EXISTS {quoted(f'{spec.identities}_enqueued')} ON {name} (enqueued)",
    )


def known(connection: sqlite3.Connection, spec: TableSpec, digests: Collection[str]) -> dict[str, Seen]:
    """What is remembered of these identities."""
    if not digests or not exists(connection, spec.identities):
        return {}
    found: dict[str, Seen] = {}
    wanted = sorted(digests)
    for start in range(0, len(wanted), _A_QUERY):
        some = wanted[start : start + _A_QUERY]
        query = (
            f"SELECT identity, hub, partition, sequence_number, enqueued FROM {quoted(spec.identities)} "
            f"WHERE identity IN ({', '.join('?' * len(some))})"
        )
        found |= {row[0]: Seen(*row[1:]) for row in connection.execute(query, some)}
    return found


def remember(connection: sqlite3.Connection, spec: TableSpec, memory: Memory) -> None:
    """Remember these, in place of what was."""
    if not memory:
        return
    name = quoted(spec.identities)
    for statement in statements(spec):
        connection.execute(statement)
    connection.executemany(
        f"INSERT OR REPLACE INTO {name} VALUES (?, ?, ?, ?, ?)",
        [(identity, *seen.event, seen.time) for identity, seen in sorted(memory.items())],
    )


def reached(connection: sqlite3.Connection, spec: TableSpec) -> int | None:
    """The time that the table has reached, if it is noted."""
    if not exists(connection, spec.identities):
        return None
    row = connection.execute(f"SELECT enqueued FROM {quoted(spec.identities)} WHERE identity = ''").fetchone()
    return row[0] if row is not None and isinstance(row[0], int) else None


def reach(connection: sqlite3.Connection, spec: TableSpec, time: int | None) -> None:
    """Note the time that the table has reached; None: note none."""
    if not exists(connection, spec.identities):
        return
    name = quoted(spec.identities)
    connection.execute(f"DELETE FROM {name} WHERE identity = ''")
    if time is not None:
        connection.execute(f"INSERT INTO {name} VALUES ('', '', '', 0, ?)", (time,))


def forget(connection: sqlite3.Connection, spec: TableSpec, before: int, at_most: int) -> None:
    """Forget the oldest of those from before this time."""
    if not exists(connection, spec.identities):
        return
    name = quoted(spec.identities)
    connection.execute(
        f"DELETE FROM {name} WHERE identity IN "
        f"(SELECT identity FROM {name} WHERE enqueued < ? AND identity <> '' ORDER BY enqueued LIMIT ?)",
        (before, at_most),
    )
