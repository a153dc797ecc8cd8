"""Parked messages of queues in SQLite: the table `leasehold_message_parked`.

The rules are in `sinks.beside.messages.parking`.

Owns what is done with this table, which `messages` makes, and the transactions of it. `forget` runs inside one of the
caller's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from leasehold.sinks.beside.messages import rows
from leasehold.sinks.beside.messages.contract import MessageName
from leasehold.sinks.beside.messages.parking import ParkedMessage
from leasehold.sinks.beside.parking import reading
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite import messages, rejected
from leasehold.sinks.sqlite.parked import as_kept, names, number
from leasehold.sinks.sqlite.shape import exists

_QUEUE = "pipeline = ? AND entity_table = ? AND queue = ?"
_COLUMNS = "message, key, enqueued_time, sequence_number, body, about, deliveries, next_at, error"
_FOUND = ", ".join(
    [
        *(as_kept("message"), number("sequence_number"), number("enqueued_time"), as_kept("body"), as_kept("about")),
        *(number("deliveries"), number("next_at"), as_kept("error")),
    ]
)

Opens = Callable[[], AbstractContextManager[sqlite3.Connection]]


def forget(connection: sqlite3.Connection, spec: TableSpec, key: Mapping[str, str]) -> int:
    """Forget the parked messages of an entity, by its key as text; how many there were."""
    if not exists(connection, "leasehold_message_parked"):
        return 0
    return sum(
        connection.execute(
            "DELETE FROM leasehold_message_parked WHERE pipeline = ? AND entity_table = ? AND key = ?",
            (spec.pipeline, spec.name, text),
        ).rowcount
        for text in rows.key_texts(spec, key)
    )


class SqliteParkedMessages:
    """See `ParkedMessages`. `changing` and `looking` open a transaction on the table, the second one to read."""

    def __init__(self, spec: TableSpec, changing: Opens, looking: Opens, wall: Callable[[], float]) -> None:
        self._spec, self._changing, self._looking, self._wall = spec, changing, looking, wall

    def park(self, message: ParkedMessage) -> bool:
        """See `ParkedMessages`."""
        with self._changing() as connection:
            if messages.is_done(connection, self._spec, message.name, self._wall()):
                messages.unpark(connection, self._spec, message.name)
                return False
            _put(connection, self._spec, message, self._wall())
        return True

    def first(self, queue: str, key: Key, at_most: int) -> list[ParkedMessage]:
        """See `ParkedMessages`."""
        query = (
            f"SELECT {_FOUND} FROM leasehold_message_parked WHERE {_QUEUE} AND key = ? "
            "AND typeof(message) = 'text' ORDER BY enqueued_time, sequence_number LIMIT ?"
        )
        with self._looking() as connection:
            values = (*_of(self._spec, queue), rows.key_text(self._spec, key), at_most)
            found = connection.execute(query, values).fetchall()
        return [
            reading.message(MessageName(queue, name, its, at), key, *others)
            for kept, its, at, *others in found
            for (name,) in names([[kept]])
        ]

    def due(self, queue: str, at_most: int) -> list[Key]:
        """See `ParkedMessages`."""
        query = (
            f"SELECT {as_kept('key')} FROM leasehold_message_parked AS p WHERE {_QUEUE} AND next_at <= ? "
            "AND NOT EXISTS (SELECT 1 FROM leasehold_message_parked AS b WHERE b.pipeline = p.pipeline "
            "AND b.entity_table = p.entity_table AND "
            "b.queue = p.queue AND b.key = p.key AND (b.enqueued_time, b.sequence_number) < (p.enqueued_time, "
            "p.sequence_number)) ORDER BY next_at LIMIT ?"
        )
        with self._looking() as connection:
            found = connection.execute(query, (*_of(self._spec, queue), self._wall(), at_most)).fetchall()
        return [key for key, _ in reading.entities(self._spec, ((text, 0.0) for (text,) in found))]

    def waiting(self) -> dict[str, tuple[int, float]]:
        """See `ParkedMessages`."""
        query = (
            f"SELECT {as_kept('queue')}, count(*), min({number('parked_at')}) FROM leasehold_message_parked "
            "WHERE pipeline = ? AND entity_table = ? GROUP BY queue ORDER BY queue"
        )
        with self._looking() as connection:
            if not exists(connection, "leasehold_message_parked"):
                return {}
            found = connection.execute(query, (self._spec.pipeline, self._spec.name)).fetchall()
        return {reading.as_text(queue): (count, reading.seconds(oldest)) for queue, count, oldest in found}

    def deferred(self, queue: str) -> int:
        """See `ParkedMessages`."""
        with self._looking() as connection:
            query = f"SELECT count(*) FROM leasehold_message_parked WHERE {_QUEUE} AND body IS NULL"
            (count,) = connection.execute(query, _of(self._spec, queue)).fetchone()
        return int(count)

    def remove(self, message: ParkedMessage) -> None:
        """See `ParkedMessages`."""
        with self._changing() as connection:
            messages.unpark(connection, self._spec, message.name)

    def set_aside(self, message: ParkedMessage, reason: str) -> bool:
        """See `ParkedMessages`."""
        with self._changing() as connection:
            now = self._wall()
            messages.unpark(connection, self._spec, message.name)
            if messages.is_done(connection, self._spec, message.name, now):
                return False
            messages.note_done(connection, self._spec, message.name, now)
            row = rows.rejected_row(message, reason)
            rejected.insert(connection, self._spec, [row], rejected.time_text(now))
        return True


def _put(connection: sqlite3.Connection, spec: TableSpec, message: ParkedMessage, now: float) -> None:
    """Park a message, or note its later try."""
    name = message.name
    connection.execute(
        f"INSERT INTO leasehold_message_parked (pipeline, entity_table, queue, {_COLUMNS}, parked_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET deliveries = "
        "max(deliveries, excluded.deliveries), next_at = excluded.next_at, error = excluded.error, "
        "about = excluded.about, body = coalesce(excluded.body, body)",
        (
            *(*_of(spec, name.queue), name.identity, rows.key_text(spec, message.key)),
            *(name.enqueued_time, name.sequence_number, message.body, message.about),
            *(message.deliveries, message.next_at, message.error, now),
        ),
    )


def _of(spec: TableSpec, queue: str) -> tuple[str, str, str]:
    return spec.pipeline, spec.name, queue
