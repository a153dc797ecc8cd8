"""Messages of queues in SQLite: the tables `leasehold_message`, `leasehold_message_sent`, `…_entity` and `…_parked`.

Owns them, each for all entity tables of a database, and made by `check`: the messages that are done, what they were
sent as, for each entity its version and the last message that it was given, and the messages that wait
(`parked_messages`). The rules are in `sinks.beside.messages`.
Every function here runs inside a transaction of the caller's; `read` in one that only reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import pyarrow as pa

from leasehold.sinks.beside.messages import rows
from leasehold.sinks.beside.messages.contract import KnownOfMessage, MessageChange, MessageName, MessageOutcome, SentAs
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite import states
from leasehold.sinks.sqlite.kept import number
from leasehold.sinks.sqlite.shape import Layout, exists

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS leasehold_message (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, queue TEXT, message TEXT, done_at REAL NOT NULL,
        PRIMARY KEY (pipeline, entity_table, queue, message)) WITHOUT ROWID""",
    """CREATE INDEX IF NOT EXISTS leasehold_message_done_at ON leasehold_message (pipeline, entity_table, done_at)""",
    """CREATE TABLE IF NOT EXISTS leasehold_message_sent (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, queue TEXT, sent_as TEXT, done_at REAL NOT NULL,
        PRIMARY KEY (pipeline, entity_table, queue, sent_as)) WITHOUT ROWID""",
    """CREATE INDEX IF NOT EXISTS leasehold_message_sent_done_at
        ON leasehold_message_sent (pipeline, entity_table, done_at)""",
    """CREATE TABLE IF NOT EXISTS leasehold_message_entity (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, key TEXT, version INTEGER NOT NULL, queue TEXT NOT NULL,
        sequence_number INTEGER NOT NULL, enqueued_time REAL NOT NULL,
        PRIMARY KEY (pipeline, entity_table, key)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS leasehold_message_parked (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, queue TEXT, message TEXT, key TEXT NOT NULL,
        enqueued_time REAL NOT NULL, sequence_number INTEGER NOT NULL, body BLOB, about TEXT NOT NULL,
        deliveries INTEGER NOT NULL, next_at REAL NOT NULL, error TEXT NOT NULL, parked_at REAL NOT NULL,
        PRIMARY KEY (pipeline, entity_table, queue, message)) WITHOUT ROWID""",
    """CREATE INDEX IF NOT EXISTS leasehold_message_parked_key ON leasehold_message_parked
        (pipeline, entity_table, queue, key, enqueued_time, sequence_number)""",
    """CREATE INDEX IF NOT EXISTS leasehold_message_parked_next ON leasehold_message_parked
        (pipeline, entity_table, queue, next_at)""",
)
_QUEUE = "pipeline = ? AND entity_table = ? AND queue = ?"


def check(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Make the tables, and refuse an entity table that a hub's events fill: neither would see the other's changes."""
    states.check(connection, spec)
    rows.check_spec(spec)
    query = "SELECT hub FROM leasehold_watermark WHERE pipeline = ? AND entity_table = ? LIMIT 1"
    if (found := connection.execute(query, (spec.pipeline, spec.name)).fetchone()) is not None:
        raise rows.filled_by_hub(spec, found[0])
    for statement in SCHEMA:
        connection.execute(statement)


def queue_of(connection: sqlite3.Connection, spec: TableSpec) -> str | None:
    """A queue whose messages the entity table has been filled with."""
    if not exists(connection, "leasehold_message_entity"):
        return None
    query = "SELECT queue FROM leasehold_message_entity WHERE pipeline = ? AND entity_table = ? LIMIT 1"
    row = connection.execute(query, (spec.pipeline, spec.name)).fetchone()
    return None if row is None else str(row[0])


def read(
    connection: sqlite3.Connection,
    spec: TableSpec,
    schema: pa.Schema,
    key: Key,
    messages: Sequence[MessageName],
    now: float,
) -> list[KnownOfMessage]:
    """What is known of messages of one queue and entity."""
    version, reached, enqueued = _place(connection, spec, key, messages[0].queue)
    state = states.read(connection, spec, schema, [key]).get(key)
    return [
        KnownOfMessage(
            done=is_done(connection, spec, message, now),
            state=state,
            version=version,
            late=reached > message.sequence_number and enqueued >= message.enqueued_time,
            behind=_is_behind(connection, spec, key, message),
        )
        for message in messages
    ]


def apply(
    connection: sqlite3.Connection,
    spec: TableSpec,
    schema: pa.Schema,
    layout: Layout,
    changes: Sequence[MessageChange],
    now: float,
    remember: float,
) -> list[MessageOutcome]:
    """Apply changes of one queue and entity up to the first whose message is done, or that finds another version."""
    key, queue, reader = changes[0].key, changes[0].message.queue, (spec.pipeline, spec.name)
    version, number, enqueued = _place(connection, spec, key, queue)
    outcomes: list[MessageOutcome] = []
    last: MessageChange | None = None
    for change in changes:
        message = change.message
        if is_done(connection, spec, message, now):
            unpark(connection, spec, message)
            outcomes.append(MessageOutcome.DONE_BEFORE)
            break
        if version != change.version or _is_behind(connection, spec, key, message):
            break
        enqueued, number = max((enqueued, number), (message.enqueued_time, message.sequence_number))
        version, last = version + 1, change if change.changes else last
        unpark(connection, spec, message)
        note_done(connection, spec, message, now)
        if message.sent_as is not None:
            _note_sent(connection, reader, queue, message.sent_as, now)
        outcomes.append(MessageOutcome.APPLIED)
    if MessageOutcome.APPLIED in outcomes:
        if last is not None:
            states.write(connection, spec, schema, layout, key, last.state)
        connection.execute(
            "INSERT OR REPLACE INTO leasehold_message_entity VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*reader, rows.key_text(spec, key), version, queue, number, enqueued),
        )
        connection.execute(
            "DELETE FROM leasehold_message WHERE (pipeline, entity_table, queue, message) IN (SELECT pipeline, "
            "entity_table, queue, message FROM leasehold_message WHERE pipeline = ? AND entity_table = ? "
            "AND done_at < ? ORDER BY done_at LIMIT ?)",
            (*reader, now - remember, rows.FORGOTTEN_AT_ONCE * len(outcomes)),
        )
    return outcomes + [MessageOutcome.OVERTAKEN] * (len(changes) - len(outcomes))


def forget(connection: sqlite3.Connection, spec: TableSpec, key: Mapping[str, str]) -> int:
    """Forget an entity, by its key as text; how many there were."""
    if not exists(connection, "leasehold_message_entity"):
        return 0
    count = 0
    for text in rows.key_texts(spec, key):
        count += connection.execute(
            "DELETE FROM leasehold_message_entity WHERE pipeline = ? AND entity_table = ? AND key = ?",
            (spec.pipeline, spec.name, text),
        ).rowcount
    return count


def _note_sent(
    connection: sqlite3.Connection, reader: tuple[str, str], queue: str, sent_as: SentAs, now: float
) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO leasehold_message_sent VALUES (?, ?, ?, ?, ?)", (*reader, queue, sent_as.digest, now)
    )
    connection.execute(
        "DELETE FROM leasehold_message_sent WHERE (pipeline, entity_table, queue, sent_as) IN (SELECT pipeline, "
        "entity_table, queue, sent_as FROM leasehold_message_sent WHERE pipeline = ? AND entity_table = ? "
        "AND done_at < ? ORDER BY done_at LIMIT ?)",
        (*reader, now - sent_as.remember, rows.FORGOTTEN_AT_ONCE),
    )


def note_done(connection: sqlite3.Connection, spec: TableSpec, message: MessageName, now: float) -> None:
    """Note that a message is done, which was not."""
    connection.execute(
        "INSERT INTO leasehold_message VALUES (?, ?, ?, ?, ?)",
        (spec.pipeline, spec.name, message.queue, message.identity, now),
    )


def is_done(connection: sqlite3.Connection, spec: TableSpec, message: MessageName, now: float) -> bool:
    """Whether a message, or one that was sent as it, is done."""
    query = "SELECT 1 FROM leasehold_message WHERE pipeline = ? AND entity_table = ? AND queue = ? AND message = ?"
    named = (spec.pipeline, spec.name, message.queue, message.identity)
    if connection.execute(query, named).fetchone() is not None:
        return True
    if (sent_as := message.sent_as) is None:
        return False
    query = (
        "SELECT 1 FROM leasehold_message_sent WHERE pipeline = ? AND entity_table = ? AND queue = ? AND sent_as = ? "
        "AND done_at >= ?"
    )
    named = (spec.pipeline, spec.name, message.queue, sent_as.digest)
    return connection.execute(query, (*named, now - sent_as.remember)).fetchone() is not None


def _is_behind(connection: sqlite3.Connection, spec: TableSpec, key: Key, message: MessageName) -> bool:
    """Whether an earlier message of the entity is parked."""
    query = (
        f"SELECT 1 FROM leasehold_message_parked WHERE {_QUEUE} AND key = ? "
        "AND (enqueued_time, sequence_number) < (?, ?) LIMIT 1"
    )
    place = (message.enqueued_time, message.sequence_number)
    values = (spec.pipeline, spec.name, message.queue, rows.key_text(spec, key), *place)
    return connection.execute(query, values).fetchone() is not None


def unpark(connection: sqlite3.Connection, spec: TableSpec, message: MessageName) -> None:
    """Remove what is parked of a message."""
    connection.execute(
        f"DELETE FROM leasehold_message_parked WHERE {_QUEUE} AND message = ?",
        (spec.pipeline, spec.name, message.queue, message.identity),
    )


def _place(connection: sqlite3.Connection, spec: TableSpec, key: Key, queue: str) -> tuple[int, int, float]:
    """The entity's version, and where its last message stands in this queue."""
    row = connection.execute(
        f"SELECT {', '.join(map(number, ('version', 'sequence_number', 'enqueued_time')))}, queue = ? "
        "FROM leasehold_message_entity WHERE pipeline = ? AND entity_table = ? AND key = ?",
        (queue, spec.pipeline, spec.name, rows.key_text(spec, key)),
    ).fetchone()
    if row is None:
        return 0, -1, 0.0
    version, reached, enqueued, same = row
    return (version, reached, enqueued) if same else (version, -1, 0.0)
