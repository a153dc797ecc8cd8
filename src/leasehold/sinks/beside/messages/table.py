"""Messages of queues: the tables `leasehold_message`, `leasehold_message_sent`, `…_entity` and `…_parked`.

Owns their SQL (`kept` has what is done with parked messages), each one table for all entity tables of a database. The
rules are in `sinks.beside.messages.contract`. Every function here runs inside a transaction of the caller's; `read` in
one that sees one moment.

Concurrency: any number of threads and processes apply and park messages at once. Those of one entity follow one
another by the lock on its row of `leasehold_message_entity`, taken first (SQLite: by the lock on the database); so a
version that was compared stays until the end. Two that bring one message under two keys follow one another by the row
of `leasehold_message`, which the second does not insert; so do two that were sent as one, by that of
`leasehold_message_sent`. Who applies one change takes no two locks of a kind; those who apply several, with messages
that another brings in another order under another key, may wait for each other in a circle: then the server undoes one
of the two, which is done again. What is forgotten leaves out what others have locked. A process that stops in here
keeps those waiting that want its entity, until the server ends its transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from leasehold.sinks.beside.keys import text_of
from leasehold.sinks.beside.messages import rows
from leasehold.sinks.beside.messages.contract import KnownOfMessage
from leasehold.sinks.beside.session import MINE, Session, mine_of
from leasehold.sinks.rules.messages import MessageChange, MessageName, MessageOutcome, SentAs
from leasehold.sinks.rules.ordering import Key

MESSAGE, MESSAGE_SENT, MESSAGE_ENTITY = "leasehold_message", "leasehold_message_sent", "leasehold_message_entity"
MESSAGE_PARKED = "leasehold_message_parked"
MESSAGES = (MESSAGE, MESSAGE_SENT, MESSAGE_ENTITY, MESSAGE_PARKED)
"""Messages of queues that are done, what they were sent as, at which version each entity is, and messages that wait."""

Write = Callable[[Key, Mapping[str, Any] | None], None]

_OF_ENTITY = f"{MINE} AND key = %(key)s"
_NEVER = (0, -1, 0.0)


def check(session: Session) -> None:
    """Refuse an entity table that a hub's events fill: neither would see the other's changes."""
    rows.check_spec(session.spec)
    query = f"SELECT hub FROM {session.of('leasehold_watermark')} WHERE {MINE} LIMIT 1"
    if (hub := session.one(query, **mine_of(session.spec))) is not None:
        raise rows.filled_by_hub(session.spec, hub)


def queue_of(session: Session) -> str | None:
    """A queue whose messages the entity table has been filled with. The table is there."""
    query = f"SELECT queue FROM {session.of(MESSAGE_ENTITY)} WHERE {MINE} AND version > 0 LIMIT 1"
    found = session.one(query, **mine_of(session.spec))
    return None if found is None else str(found)


def read(
    session: Session, state: Mapping[str, Any] | None, key: Key, messages: Sequence[MessageName], now: float
) -> list[KnownOfMessage]:
    """What is known of messages of one queue and entity, which has this state."""
    version, number, enqueued = _place(session, key, messages[0].queue)
    return [
        KnownOfMessage(
            done=is_done(session, message, now),
            state=state,
            version=version,
            late=number > message.sequence_number and enqueued >= message.enqueued_time,
            behind=_is_behind(session, key, message),
        )
        for message in messages
    ]


def apply(
    session: Session, write: Write, changes: Sequence[MessageChange], now: float, remember: float
) -> list[MessageOutcome]:
    """Apply changes of one queue and entity up to the first whose message is done, or that finds another version.

    `write` writes a state, None for none.
    """
    key, queue = changes[0].key, changes[0].message.queue
    if session.locking and is_done(session, changes[0].message, now):  # nobody has to be waited for
        unpark(session, changes[0].message)
        return [MessageOutcome.DONE_BEFORE, *[MessageOutcome.OVERTAKEN] * (len(changes) - 1)]
    lock_entity(session, key)
    version, number, enqueued = _place(session, key, queue)
    outcomes: list[MessageOutcome] = []
    last: MessageChange | None = None
    for change in changes:
        message = change.message
        if is_done(session, message, now):  # the first: while this waited for the lock
            unpark(session, message)
            outcomes.append(MessageOutcome.DONE_BEFORE)
            break
        if version != change.version or _is_behind(session, key, message):
            break
        unpark(session, message)
        if not note_done(session, message, now):  # under another key
            outcomes.append(MessageOutcome.DONE_BEFORE)
            break
        if message.sent_as is not None and not _noted_sent(session, message, message.sent_as, now):
            outcomes.append(MessageOutcome.DONE_BEFORE)
            break  # another of its name has come between; that this one is done stays noted
        enqueued, number = max((enqueued, number), (message.enqueued_time, message.sequence_number))
        version, last = version + 1, change if change.changes else last
        outcomes.append(MessageOutcome.APPLIED)
    if MessageOutcome.APPLIED in outcomes:
        if last is not None:
            write(key, last.state)
        session.run(
            f"INSERT INTO {session.of(MESSAGE_ENTITY)} (pipeline, entity_table, key, version, queue, sequence_number, "
            "enqueued_time) VALUES (%(pipeline)s, %(name)s, %(key)s, %(version)s, %(queue)s, %(number)s, %(enqueued)s) "
            "ON CONFLICT (pipeline, entity_table, key) DO UPDATE SET version = excluded.version, "
            "queue = excluded.queue, sequence_number = excluded.sequence_number, "
            "enqueued_time = excluded.enqueued_time",
            **_of_entity(session, key),
            version=version,
            queue=queue,
            number=number,
            enqueued=enqueued,
        )
        _forget_old(session, MESSAGE, "message", rows.by_queue(message, now) - remember, len(outcomes))
    return outcomes + [MessageOutcome.OVERTAKEN] * (len(changes) - len(outcomes))


def lock_entity(session: Session, key: Key) -> None:
    """Make others wait who apply or park messages of this entity."""
    if not session.locking:
        return  # they wait for the whole database
    entities, of_entity = session.of(MESSAGE_ENTITY), _of_entity(session, key)
    session.run(
        f"INSERT INTO {entities} (pipeline, entity_table, key, version, queue, sequence_number, enqueued_time) "
        "VALUES (%(pipeline)s, %(name)s, %(key)s, 0, '', -1, 0) ON CONFLICT DO NOTHING",
        **of_entity,
    )
    session.run(f"SELECT 1 FROM {entities} WHERE {_OF_ENTITY} {session.locking}", **of_entity)


def note_done(session: Session, message: MessageName, now: float) -> bool:
    """Note that a message is done; whether it was not."""
    noted = session.run(
        f"INSERT INTO {session.of(MESSAGE)} (pipeline, entity_table, queue, message, done_at) "
        "VALUES (%(pipeline)s, %(name)s, %(queue)s, %(message)s, %(now)s) ON CONFLICT DO NOTHING",
        **mine_of(session.spec),
        queue=message.queue,
        message=message.identity,
        now=rows.done_at(message, now),
    )
    return noted > 0


def unpark(session: Session, message: MessageName) -> None:
    """Remove what is parked of a message."""
    session.run(
        f"DELETE FROM {session.of(MESSAGE_PARKED)} WHERE {MINE} AND queue = %(queue)s AND message = %(it)s",
        **mine_of(session.spec),
        queue=message.queue,
        it=message.identity,
    )


def is_done(session: Session, message: MessageName, now: float) -> bool:
    """Whether a message, or one that was sent as it, is done."""
    query = f"SELECT 1 FROM {session.of(MESSAGE)} WHERE {MINE} AND queue = %(queue)s AND message = %(it)s"
    named = {**mine_of(session.spec), "queue": message.queue}
    if session.one(query, **named, it=message.identity) is not None:
        return True
    if (sent_as := message.sent_as) is None:
        return False
    query = (
        f"SELECT 1 FROM {session.of(MESSAGE_SENT)} WHERE {MINE} AND queue = %(queue)s "
        "AND sent_as = %(it)s AND done_at >= %(since)s"
    )
    return (
        session.one(query, **named, it=sent_as.digest, since=rows.by_queue(message, now) - sent_as.remember) is not None
    )


def _noted_sent(session: Session, message: MessageName, sent_as: SentAs, now: float) -> bool:
    """Note what a message was sent as, and forget some of what is old; whether nobody else has noted it."""
    before = rows.by_queue(message, now) - sent_as.remember
    noted = session.run(
        f"INSERT INTO {session.of(MESSAGE_SENT)} AS was (pipeline, entity_table, queue, sent_as, done_at) "
        "VALUES (%(pipeline)s, %(name)s, %(queue)s, %(sent_as)s, %(now)s) "
        "ON CONFLICT (pipeline, entity_table, queue, sent_as) DO UPDATE SET done_at = excluded.done_at "
        "WHERE was.done_at < %(before)s",
        **mine_of(session.spec),
        queue=message.queue,
        sent_as=sent_as.digest,
        now=rows.done_at(message, now),
        before=before,
    )
    _forget_old(session, MESSAGE_SENT, "sent_as", before)
    return noted > 0


def _forget_old(session: Session, table: str, column: str, before: float, messages: int = 1) -> None:
    key, name = f"pipeline, entity_table, queue, {column}", session.of(table)
    old = session.first_free(name, key, f"{MINE} AND done_at < %(before)s ORDER BY done_at LIMIT %(at_most)s")
    at_most = rows.FORGOTTEN_AT_ONCE * messages
    session.run(f"DELETE FROM {name} WHERE {old}", **mine_of(session.spec), before=before, at_most=at_most)


def _is_behind(session: Session, key: Key, message: MessageName) -> bool:
    """Whether an earlier message of the entity is parked."""
    query = (
        f"SELECT 1 FROM {session.of(MESSAGE_PARKED)} WHERE {_OF_ENTITY} AND queue = %(queue)s "
        "AND (enqueued_time, sequence_number) < (%(enqueued)s, %(number)s) LIMIT 1"
    )
    place = {"queue": message.queue, "enqueued": message.enqueued_time, "number": message.sequence_number}
    return session.one(query, **_of_entity(session, key), **place) is not None


def _place(session: Session, key: Key, queue: str) -> tuple[int, int, float]:
    """The entity's version, and where its last message stands in this queue."""
    columns = ", ".join(map(session.number, ("version", "sequence_number", "enqueued_time")))
    found = session.rows(
        f"SELECT {columns}, queue = %(queue)s FROM {session.of(MESSAGE_ENTITY)} WHERE {_OF_ENTITY}",
        **_of_entity(session, key),
        queue=queue,
    )
    if not found:
        return _NEVER
    [(version, number, enqueued, same)] = found
    return (version, number, enqueued) if same else (version, *_NEVER[1:])


def _of_entity(session: Session, key: Key) -> dict[str, Any]:
    return {**mine_of(session.spec), "key": text_of(session.spec, key)}
