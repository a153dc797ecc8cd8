"""Parked messages of queues in Postgres, `leasehold_message_parked`. The rules are in `sinks.beside.messages.parking`.

Owns the transactions in which a processor parks, tries and gives up messages. Who changes them has locked their entity,
as whoever applies messages does; what is only read is judged anew in the transaction that changes something.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from leasehold.sinks.beside.messages import rows
from leasehold.sinks.beside.messages.contract import MessageName
from leasehold.sinks.beside.messages.parking import ParkedMessage
from leasehold.sinks.beside.parking import reading
from leasehold.sinks.postgres import messages, rejected
from leasehold.sinks.postgres.catalog import kind_of_relation
from leasehold.sinks.postgres.names import MESSAGE_PARKED
from leasehold.sinks.postgres.session import Session
from leasehold.sinks.postgres.transaction import PostgresTransaction
from leasehold.sinks.rules.ordering import Key

_QUEUE = "pipeline = %(pipeline)s AND entity_table = %(name)s AND queue = %(queue)s"

Opens = Callable[[], AbstractContextManager[PostgresTransaction]]
Again = Callable[[Callable[[], Any]], Any]


class PostgresParkedMessages:
    """See `ParkedMessages`. `claimed` opens a transaction on the table, and `again` does what the server has undone."""

    def __init__(self, claimed: Opens, again: Again, wall: Callable[[], float]) -> None:
        self._claimed, self._again, self._wall = claimed, again, wall

    def park(self, message: ParkedMessage) -> bool:
        """See `ParkedMessages`."""

        def change(session: Session) -> bool:
            if messages.is_done(session, message.name, self._wall()):
                messages.unpark(session, message.name)
                return False
            _put(session, message, self._wall())
            return True

        return self._changed(message, change)

    def first(self, queue: str, key: Key, at_most: int) -> list[ParkedMessage]:
        """See `ParkedMessages`."""

        def read() -> list[ParkedMessage]:
            with self._claimed() as transaction:
                session = transaction.session
                found = session.rows(
                    "SELECT message, sequence_number, enqueued_time, body, about, deliveries, next_at, error FROM "
                    f"{session.names.of(MESSAGE_PARKED)} WHERE {_QUEUE} AND key = %(key)s "
                    "ORDER BY enqueued_time, sequence_number LIMIT %(at_most)s",
                    **messages.mine_of(session),
                    queue=queue,
                    key=rows.key_text(session.spec, key),
                    at_most=at_most,
                )
                return [
                    reading.message(MessageName(queue, name, number, at), key, *others)
                    for name, number, at, *others in found
                ]

        found: list[ParkedMessage] = self._again(read)
        return found

    def due(self, queue: str, at_most: int) -> list[Key]:
        """See `ParkedMessages`."""

        def read() -> list[Key]:
            with self._claimed() as transaction:
                session = transaction.session
                table = session.names.of(MESSAGE_PARKED)
                found = session.rows(
                    f"SELECT key FROM {table} AS p WHERE {_QUEUE} AND next_at <= %(now)s AND "
                    "(enqueued_time, sequence_number) = (SELECT b.enqueued_time, b.sequence_number FROM "
                    f"{table} AS b WHERE b.pipeline = p.pipeline AND b.entity_table = p.entity_table AND b.queue = "
                    "p.queue AND b.key = p.key ORDER BY b.enqueued_time, b.sequence_number LIMIT 1) "
                    "ORDER BY next_at LIMIT %(at_most)s",
                    **messages.mine_of(session),
                    queue=queue,
                    now=self._wall(),
                    at_most=at_most,
                )
                return [key for key, _ in reading.entities(session.spec, ((text, 0.0) for (text,) in found))]

        found: list[Key] = self._again(read)
        return found

    def waiting(self) -> dict[str, tuple[int, float]]:
        """See `ParkedMessages`."""

        def read() -> dict[str, tuple[int, float]]:
            with self._claimed() as transaction:
                session = transaction.session
                if not kind_of_relation(session, MESSAGE_PARKED):
                    return {}
                found = session.rows(
                    f"SELECT queue, count(*), min(parked_at) FROM {session.names.of(MESSAGE_PARKED)} "
                    "WHERE pipeline = %(pipeline)s AND entity_table = %(name)s GROUP BY queue ORDER BY queue",
                    **messages.mine_of(session),
                )
                return {queue: (count, reading.seconds(oldest)) for queue, count, oldest in found}

        found: dict[str, tuple[int, float]] = self._again(read)
        return found

    def deferred(self, queue: str) -> int:
        """See `ParkedMessages`."""

        def read() -> int:
            with self._claimed() as transaction:
                session = transaction.session
                query = f"SELECT count(*) FROM {session.names.of(MESSAGE_PARKED)} WHERE {_QUEUE} AND body IS NULL"
                return int(session.one(query, **messages.mine_of(session), queue=queue))

        found: int = self._again(read)
        return found

    def remove(self, message: ParkedMessage) -> None:
        """See `ParkedMessages`."""

        def change(session: Session) -> bool:
            messages.unpark(session, message.name)
            return True

        self._changed(message, change)

    def set_aside(self, message: ParkedMessage, reason: str) -> bool:
        """See `ParkedMessages`."""

        def change(session: Session) -> bool:
            now = self._wall()
            messages.unpark(session, message.name)
            if messages.is_done(session, message.name, now) or not messages.note_done(session, message.name, now):
                return False
            rejected.insert(session, [rows.rejected_row(message, reason)], now)
            return True

        return self._changed(message, change)

    def _changed(self, message: ParkedMessage, change: Callable[[Session], bool]) -> bool:
        def once() -> bool:
            with self._claimed() as transaction:
                messages.lock_entity(transaction.session, message.key)
                return change(transaction.session)

        return bool(self._again(once))


def _put(session: Session, message: ParkedMessage, now: float) -> None:
    name = message.name
    session.run(
        f"INSERT INTO {session.names.of(MESSAGE_PARKED)} AS was (pipeline, entity_table, queue, message, key, "
        "enqueued_time, sequence_number, body, about, deliveries, next_at, error, parked_at) VALUES (%(pipeline)s, "
        "%(name)s, %(queue)s, %(message)s, %(key)s, %(enqueued)s, %(number)s, %(body)s, %(about)s, %(deliveries)s, "
        "%(next_at)s, %(error)s, %(now)s) ON CONFLICT (pipeline, entity_table, queue, message) DO UPDATE SET "
        "deliveries = greatest(was.deliveries, excluded.deliveries), next_at = excluded.next_at, "
        "error = excluded.error, about = excluded.about, body = coalesce(excluded.body, was.body)",
        **messages.mine_of(session),
        queue=name.queue,
        message=name.identity,
        key=rows.key_text(session.spec, message.key),
        enqueued=name.enqueued_time,
        number=name.sequence_number,
        body=message.body,
        about=message.about,
        deliveries=message.deliveries,
        next_at=message.next_at,
        error=message.error.replace("\0", "\\0"),
        now=now,
    )
