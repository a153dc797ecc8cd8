"""Messages of queues in SQLite: the tables `leasehold_message` and `leasehold_message_entity`.

Owns both, each for all entity tables of a database, and made by `check`: the messages that are done, and for each
entity its version and the last message that it was given. The rules are in `sinks.messages`. Every function here runs
inside a transaction of the caller's; `read` in one that only reads.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pyarrow as pa

from leasehold.errors import ConfigError, UsageError
from leasehold.sinks.forgetting import candidates
from leasehold.sinks.messages import KnownOfMessage, MessageChange, MessageName, MessageOutcome
from leasehold.sinks.ordering import Key
from leasehold.sinks.shape import Layout, exists
from leasehold.sinks.sqlite_beside import states
from leasehold.sinks.table import FENCE_COLUMNS, OWNER_LEVEL, SEQUENCE_NUMBER, TableSpec, ordered_keys
from leasehold.sinks.values import convert

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS leasehold_message (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, queue TEXT, message TEXT, done_at REAL NOT NULL,
        PRIMARY KEY (pipeline, entity_table, queue, message)) WITHOUT ROWID""",
    """CREATE INDEX IF NOT EXISTS leasehold_message_done_at ON leasehold_message (pipeline, entity_table, done_at)""",
    """CREATE TABLE IF NOT EXISTS leasehold_message_entity (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, key TEXT, version INTEGER NOT NULL, queue TEXT NOT NULL,
        sequence_number INTEGER NOT NULL, enqueued_time REAL NOT NULL,
        PRIMARY KEY (pipeline, entity_table, key)) WITHOUT ROWID""",
)
_FORGOTTEN_AT_ONCE = 10
_FENCE = [
    pa.field(name, pa.int64() if name in (SEQUENCE_NUMBER, OWNER_LEVEL) else pa.string()) for name in FENCE_COLUMNS
]


def fenced(schema: pa.Schema) -> pa.Schema:
    """The schema with the columns by which a hub's events are fenced, which every table is asked about."""
    return pa.schema([*schema, *_FENCE])


def check(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Make both tables, and refuse an entity table that a hub's events fill: neither would see the other's changes."""
    states.check(connection, spec)
    if spec.keep:
        raise ConfigError("keep", spec.keep, "messages of a queue have no such columns", "Leave it out")
    query = "SELECT hub FROM leasehold_watermark WHERE pipeline = ? AND entity_table = ? LIMIT 1"
    if (found := connection.execute(query, (spec.pipeline, spec.name)).fetchone()) is not None:
        rule = f"it is filled with events of the hub {found[0]}, and a table has one way to be filled"
        raise ConfigError("table", spec.name, rule, "Give the queue's messages a table of their own")
    for statement in SCHEMA:
        connection.execute(statement)


def read(
    connection: sqlite3.Connection, spec: TableSpec, schema: pa.Schema, key: Key, message: MessageName
) -> KnownOfMessage:
    """What is known of a message and its entity."""
    version, number, enqueued = _place(connection, spec, key, message.queue)
    return KnownOfMessage(
        done=_is_done(connection, spec, message),
        state=states.read(connection, spec, schema, [key]).get(key),
        version=version,
        late=number > message.sequence_number and enqueued >= message.enqueued_time,
    )


def apply(
    connection: sqlite3.Connection,
    spec: TableSpec,
    schema: pa.Schema,
    layout: Layout,
    change: MessageChange,
    now: float,
    remember: float,
) -> MessageOutcome:
    """Apply a change, unless the message is done or the entity has another version."""
    message, reader = change.message, (spec.pipeline, spec.name)
    if _is_done(connection, spec, message):
        return MessageOutcome.DONE_BEFORE
    version, number, enqueued = _place(connection, spec, change.key, message.queue)
    if version != change.version:
        return MessageOutcome.OVERTAKEN
    if change.changes:
        _write(connection, spec, schema, layout, change)
    enqueued, number = max((enqueued, number), (message.enqueued_time, message.sequence_number))
    place = (version + 1, message.queue, number, enqueued)
    connection.execute(
        "INSERT OR REPLACE INTO leasehold_message_entity VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*reader, _text(spec, change.key), *place),
    )
    connection.execute(
        "INSERT INTO leasehold_message VALUES (?, ?, ?, ?, ?)", (*reader, message.queue, message.identity, now)
    )
    connection.execute(
        "DELETE FROM leasehold_message WHERE (pipeline, entity_table, queue, message) IN (SELECT pipeline, "
        "entity_table, queue, message FROM leasehold_message WHERE pipeline = ? AND entity_table = ? AND done_at < ? "
        "ORDER BY done_at LIMIT ?)",
        (*reader, now - remember, _FORGOTTEN_AT_ONCE),
    )
    return MessageOutcome.APPLIED


def forget(connection: sqlite3.Connection, spec: TableSpec, key: Mapping[str, str]) -> int:
    """Forget an entity, by its key as text; how many there were."""
    if not exists(connection, "leasehold_message_entity"):
        return 0
    count = 0
    for values in product(*(candidates(key[name]) for name in ordered_keys(spec))):
        count += connection.execute(
            "DELETE FROM leasehold_message_entity WHERE pipeline = ? AND entity_table = ? AND key = ?",
            (spec.pipeline, spec.name, json.dumps(values)),
        ).rowcount
    return count


def _write(
    connection: sqlite3.Connection, spec: TableSpec, schema: pa.Schema, layout: Layout, change: MessageChange
) -> None:
    if change.state is None:
        assert layout.delete is not None
        connection.execute(layout.delete, _ordered(spec, change.key))
        return
    try:
        row = pa.Table.from_pylist([dict(change.state)], schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"the state of {change.key} does not fit the table {spec.name}: {error}") from error
    columns = {name: convert(row[name]) for name in layout.columns}
    for name, column in columns.items():
        if column.problems:
            raise UsageError(
                f"the state of {change.key} does not fit the table {spec.name}: {name} {column.problems[0]}"
            )
    connection.execute(layout.upsert, [column.values[0] for column in columns.values()])


def _is_done(connection: sqlite3.Connection, spec: TableSpec, message: MessageName) -> bool:
    query = "SELECT 1 FROM leasehold_message WHERE pipeline = ? AND entity_table = ? AND queue = ? AND message = ?"
    named = (spec.pipeline, spec.name, message.queue, message.identity)
    return connection.execute(query, named).fetchone() is not None


def _place(connection: sqlite3.Connection, spec: TableSpec, key: Key, queue: str) -> tuple[int, int, float]:
    """The entity's version, and where its last message stands in this queue."""
    row = connection.execute(
        "SELECT version, queue, sequence_number, enqueued_time FROM leasehold_message_entity "
        "WHERE pipeline = ? AND entity_table = ? AND key = ?",
        (spec.pipeline, spec.name, _text(spec, key)),
    ).fetchone()
    if row is None:
        return 0, -1, 0.0
    version, of, number, enqueued = row
    return (version, number, enqueued) if of == queue else (version, -1, 0.0)


def _ordered(spec: TableSpec, key: Key) -> Sequence[Any]:
    """The key's values in the order of the statements, however the spec writes its columns."""
    values = dict(zip(spec.keys, key, strict=True))
    return [values[name] for name in ordered_keys(spec)]


def _text(spec: TableSpec, key: Key) -> str:
    return json.dumps(_ordered(spec, key))
