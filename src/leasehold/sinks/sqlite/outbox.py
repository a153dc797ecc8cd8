"""The outbox in SQLite: the table `leasehold_outbox`. The rules are in `sinks.beside.outbox`.

Owns this table, one for all entity tables of a database, made by `check`, and its SQL. The numbers are SQLite's, which
gives none twice (AUTOINCREMENT). `put` and `forget` run inside a transaction of the caller's, which locks the database
from its first statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager

from leasehold.sinks.beside.outbox.contract import OutboxCounts, WaitingEvent, text_of_properties, waiting_event
from leasehold.sinks.beside.outbox.listing import RefusedEvent, refused_event
from leasehold.sinks.beside.parking.keys import text_of, texts_of
from leasehold.sinks.rules import claims
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite import bookkeeping
from leasehold.sinks.sqlite.parked import as_kept, names, number
from leasehold.sinks.sqlite.shape import exists

OUTBOX = "leasehold_outbox"
SCHEMA = (
    """CREATE TABLE IF NOT EXISTS leasehold_outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT, pipeline TEXT NOT NULL, entity_table TEXT COLLATE NOCASE NOT NULL,
        hub TEXT NOT NULL, partition TEXT NOT NULL, sequence_number INTEGER NOT NULL, place INTEGER NOT NULL,
        entity TEXT NOT NULL, key TEXT, body BLOB NOT NULL, properties TEXT NOT NULL, emitted_at REAL NOT NULL,
        refused TEXT)""",
    "CREATE INDEX IF NOT EXISTS leasehold_outbox_lane ON leasehold_outbox "
    "(pipeline, entity_table, hub, partition, number)",
)
_MINE = "pipeline = ? AND entity_table = ?"
_LANE = f"{_MINE} AND hub = ? AND partition = ?"

Opens = Callable[[], AbstractContextManager[sqlite3.Connection]]


class SqliteOutbox:
    """See `Outbox`. `writing` opens a transaction on the table, `reading` a view of the file."""

    def __init__(self, spec: TableSpec, writing: Opens, reading: Opens) -> None:
        self._spec, self._writing, self._reading = spec, writing, reading
        self._mine = (spec.pipeline, spec.name)

    def check(self) -> None:
        """Make the table."""
        with self._writing() as connection:
            for statement in SCHEMA:
                connection.execute(statement)

    def waiting(self, hub: str, partition: str, at_most: int, size: int) -> list[WaitingEvent]:
        """See `Outbox`."""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT number, hub, partition, {number('sequence_number')}, {number('place')}, {as_kept('key')}, "
                f"{as_kept('body')}, {as_kept('properties')} FROM "
                f"(SELECT *, sum(length(body)) OVER (ORDER BY number) - length(body) AS before FROM (SELECT * FROM "
                f"{OUTBOX} WHERE {_LANE} AND refused IS NULL ORDER BY number LIMIT ?)) WHERE before < ? "
                "ORDER BY number",
                (*self._mine, hub, partition, at_most, size),
            ).fetchall()
        return [waiting_event(*row) for row in rows]

    def lanes(self) -> list[tuple[str, str]]:
        """See `Outbox`."""
        query = (
            f"SELECT DISTINCT {as_kept('hub')}, {as_kept('partition')} FROM {OUTBOX} WHERE {_MINE} "
            "AND refused IS NULL ORDER BY 1, 2"
        )
        with self._reading() as connection:
            return [(hub, name) for hub, name in names(connection.execute(query, self._mine))]

    def remove(self, hub: str, partition: str, owner_level: int, numbers: Collection[int]) -> bool:
        """See `Outbox`."""
        with self._writing() as connection:
            if self._is_another_s(connection, hub, partition, owner_level):
                return False
            connection.executemany(
                f"DELETE FROM {OUTBOX} WHERE number = ? AND {_LANE}",
                [(number, *self._mine, hub, partition) for number in numbers],
            )
        return True

    def refuse(self, hub: str, partition: str, owner_level: int, number: int, reason: str) -> bool:
        """See `Outbox`."""
        with self._writing() as connection:
            if self._is_another_s(connection, hub, partition, owner_level):
                return False
            connection.execute(
                f"UPDATE {OUTBOX} SET refused = ? WHERE number = ? AND {_LANE}",
                (reason, number, *self._mine, hub, partition),
            )
        return True

    def refused(self, limit: int, after: int = 0) -> list[RefusedEvent]:
        """See `ListsRefused`."""
        with self._reading() as connection:
            if not exists(connection, OUTBOX):
                return []
            rows = connection.execute(
                f"SELECT {as_kept('hub')}, {as_kept('partition')}, {number('emitted_at')}, {as_kept('refused')}, "
                f"number, {number('sequence_number')}, {number('place')}, {as_kept('key')}, {as_kept('body')}, "
                f"{as_kept('properties')} FROM {OUTBOX} WHERE {_MINE} AND refused IS NOT NULL AND number > ? "
                "ORDER BY number LIMIT ?",
                (*self._mine, after, limit),
            ).fetchall()
        return [refused_event(*row) for row in rows]

    def send_again(self, numbers: Collection[int]) -> int:
        """See `ListsRefused`."""
        return self._refused_changed(f"UPDATE {OUTBOX} SET refused = NULL", numbers)

    def drop_refused(self, numbers: Collection[int]) -> int:
        """See `ListsRefused`."""
        return self._refused_changed(f"DELETE FROM {OUTBOX}", numbers)

    def _refused_changed(self, statement: str, numbers: Collection[int]) -> int:
        with self._writing() as connection:
            if not exists(connection, OUTBOX):
                return 0
            return connection.executemany(
                f"{statement} WHERE number = ? AND {_MINE} AND refused IS NOT NULL",
                [(number, *self._mine) for number in numbers],
            ).rowcount

    def counts(self) -> OutboxCounts:
        """See `Outbox`."""
        with self._reading() as connection:
            return counts(connection, self._spec)

    def _is_another_s(self, connection: sqlite3.Connection, hub: str, partition: str, owner_level: int) -> bool:
        mark = bookkeeping.watermarks(connection, self._spec, [hub]).get((hub, partition))
        return mark is not None and mark.owner_level > owner_level


def put(connection: sqlite3.Connection, spec: TableSpec, events: Sequence[EmittedEvent], now: float) -> None:
    """See `TakesEvents`."""
    if not exists(connection, OUTBOX):
        raise claims.was_dropped(spec, OUTBOX)
    connection.executemany(
        f"INSERT INTO {OUTBOX} (pipeline, entity_table, hub, partition, sequence_number, place, entity, key, body, "
        "properties, emitted_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                *(spec.pipeline, spec.name, one.hub, one.partition, one.sequence_number, one.place),
                *(text_of(spec, one.entity), one.key, one.body, text_of_properties(one.properties), now),
            )
            for one in events
        ],
    )


def counts(connection: sqlite3.Connection, spec: TableSpec) -> OutboxCounts:
    """How much is in the outbox of a table."""
    if not exists(connection, OUTBOX):
        return OutboxCounts()
    row = connection.execute(
        "SELECT count(*) FILTER (WHERE refused IS NULL), min(emitted_at) FILTER (WHERE refused IS NULL), "
        f"count(refused) FROM {OUTBOX} WHERE {_MINE}",
        (spec.pipeline, spec.name),
    ).fetchone()
    return OutboxCounts(*row)


def forget(connection: sqlite3.Connection, spec: TableSpec, key: Mapping[str, str]) -> int:
    """Forget what events of an entity have emitted, by its key as text; how many there were."""
    if not exists(connection, OUTBOX):
        return 0
    count = 0
    for text in texts_of(spec, key):
        count += connection.execute(
            f"DELETE FROM {OUTBOX} WHERE {_MINE} AND entity = ?", (spec.pipeline, spec.name, text)
        ).rowcount
    return count
