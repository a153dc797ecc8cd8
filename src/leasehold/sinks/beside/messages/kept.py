"""Parked messages of queues: the table `leasehold_message_parked`. The rules are in `sinks.beside.messages.parking`.

Owns the transactions in which a processor parks, tries and gives up messages. Who changes them has locked their entity,
as whoever applies messages does; what is only read is judged anew in the transaction that changes something.
"""

from __future__ import annotations

from collections.abc import Callable

from leasehold.sinks.beside.kept_values import as_bytes, as_text, count, seconds
from leasehold.sinks.beside.keys import text_of
from leasehold.sinks.beside.messages import rows
from leasehold.sinks.beside.messages import table as messages
from leasehold.sinks.beside.messages.parking import ParkedMessage
from leasehold.sinks.beside.messages.table import MESSAGE_PARKED
from leasehold.sinks.beside.parking import reading
from leasehold.sinks.beside.session import MINE, Access, BesideTransaction, Session, mine_of
from leasehold.sinks.rules.messages import MessageName
from leasehold.sinks.rules.ordering import Key

_QUEUE = f"{MINE} AND queue = %(queue)s"


class KeptMessages:
    """See `ParkedMessages`."""

    def __init__(self, access: Access) -> None:
        self._access, self._wall = access, access.wall

    def park(self, message: ParkedMessage) -> bool:
        """See `ParkedMessages`."""

        def change(transaction: BesideTransaction) -> bool:
            session = transaction.session
            if messages.is_done(session, message.name, self._wall()):
                messages.unpark(session, message.name)
                return False
            _put(session, message, self._wall())
            return True

        return self._changed(message, change)

    def first(self, queue: str, key: Key, at_most: int) -> list[ParkedMessage]:
        """See `ParkedMessages`."""
        with self._access.looking(MESSAGE_PARKED) as session:
            number, text = session.number, session.text
            found = session.rows(
                f"SELECT message, {number('sequence_number')}, {number('enqueued_time')}, {text('body')}, "
                f"{text('about')}, {number('deliveries')}, {number('next_at')}, {text('error')} "
                f"FROM {session.of(MESSAGE_PARKED)} WHERE {_QUEUE} AND key = %(key)s AND {session.sound(('message',))} "
                "ORDER BY enqueued_time, sequence_number LIMIT %(at_most)s",
                **mine_of(session.spec),
                queue=queue,
                key=text_of(session.spec, key),
                at_most=at_most,
            )
        return [_message(MessageName(queue, name, place, at), key, *others) for name, place, at, *others in found]

    def due(self, queue: str, at_most: int) -> list[Key]:
        """See `ParkedMessages`."""
        with self._access.looking(MESSAGE_PARKED) as session:
            table = session.of(MESSAGE_PARKED)
            found = session.rows(
                f"SELECT {session.text('key')} FROM {table} AS p WHERE {_QUEUE} AND next_at <= %(now)s AND "
                f"message = (SELECT b.message FROM {table} AS b "
                "WHERE b.pipeline = p.pipeline AND b.entity_table = p.entity_table AND b.queue = p.queue "
                "AND b.key = p.key ORDER BY b.enqueued_time, b.sequence_number LIMIT 1) "
                "ORDER BY next_at LIMIT %(at_most)s",
                **mine_of(session.spec),
                queue=queue,
                now=self._wall(),
                at_most=at_most,
            )
            return [key for key, _ in reading.entities(session.spec, ((text, 0.0) for (text,) in found))]

    def waiting(self) -> dict[str, tuple[int, float]]:
        """See `ParkedMessages`."""
        with self._access.looking(MESSAGE_PARKED) as session:
            if not session.there(MESSAGE_PARKED):
                return {}
            found = session.rows(
                f"SELECT {session.text('queue')}, count(*), min({session.number('parked_at')}) "
                f"FROM {session.of(MESSAGE_PARKED)} WHERE {MINE} GROUP BY queue ORDER BY queue",
                **mine_of(session.spec),
            )
        return {as_text(queue): (count, seconds(oldest)) for queue, count, oldest in found}

    def remove(self, message: ParkedMessage) -> None:
        """See `ParkedMessages`."""

        def change(transaction: BesideTransaction) -> bool:
            messages.unpark(transaction.session, message.name)
            return True

        self._changed(message, change)

    def set_aside(self, message: ParkedMessage, reason: str) -> bool:
        """See `ParkedMessages`."""

        def change(transaction: BesideTransaction) -> bool:
            session, now = transaction.session, self._wall()
            messages.unpark(session, message.name)
            if messages.is_done(session, message.name, now) or not messages.note_done(session, message.name, now):
                return False
            transaction.set_aside([rows.rejected_row(message, reason)], now)
            return True

        return self._changed(message, change)

    def _changed(self, message: ParkedMessage, change: Callable[[BesideTransaction], bool]) -> bool:
        def once(transaction: BesideTransaction) -> bool:
            messages.lock_entity(transaction.session, message.key)
            return change(transaction)

        return self._access.changed(once)


def _put(session: Session, message: ParkedMessage, now: float) -> None:
    """Park a message, or note its later try."""
    name = message.name
    session.run(
        f"INSERT INTO {session.of(MESSAGE_PARKED)} AS was (pipeline, entity_table, queue, message, key, "
        "enqueued_time, sequence_number, body, about, deliveries, next_at, error, parked_at) VALUES (%(pipeline)s, "
        "%(name)s, %(queue)s, %(message)s, %(key)s, %(enqueued)s, %(number)s, %(body)s, %(about)s, %(deliveries)s, "
        "%(next_at)s, %(error)s, %(now)s) ON CONFLICT (pipeline, entity_table, queue, message) DO UPDATE SET "
        "deliveries = CASE WHEN was.deliveries > excluded.deliveries THEN was.deliveries ELSE excluded.deliveries END, "
        "next_at = excluded.next_at, error = excluded.error, about = excluded.about",
        **mine_of(session.spec),
        queue=name.queue,
        message=name.identity,
        key=text_of(session.spec, message.key),
        enqueued=name.enqueued_time,
        number=name.sequence_number,
        body=message.body,
        about=message.about,
        deliveries=message.deliveries,
        next_at=message.next_at,
        error=session.storable(message.error),
        now=now,
    )


def _message(
    name: MessageName, key: Key, body: object, about: object, deliveries: object, next_at: object, error: object
) -> ParkedMessage:
    """A parked message of an entity, from what was kept of it."""
    return ParkedMessage(name, key, as_bytes(body), as_text(about), count(deliveries), seconds(next_at), as_text(error))
