"""Where a server keeps its queues: a SQLite file.

Owns the tables, and the one transaction of each `write`. Queues are served from memory; what they change is written
here before anybody is told. The file names its server: a second one that opens it takes it over, and the first fails
at its next write (`StoreUnavailable`) instead of writing over the other's; so nothing that was acknowledged is lost.

A server that is killed at any line leaves what it has acknowledged. One that is stopped for a minute and wakes up
behind another finds at its next write that it has been replaced.

Format 1: `entity` (settings as JSON, last sequence number), `message` (content as the sender's message, encoded),
`session_state`, `seen` (message ids within the window of duplicate detection), `server`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from leasehold.database.sqlite import DatabaseFile
from leasehold.errors import ConfigError, StoreUnavailable, Verdict
from leasehold_testkit.emulators.service_bus.content import content_of
from leasehold_testkit.emulators.service_bus.settings import QueueSettings
from leasehold_testkit.emulators.service_bus.stored import Changes, Lock, MessageState, QueuedMessage

_APPLICATION, _FORMAT = 0x4C485342, 1  # "LHSB"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS entity (name TEXT PRIMARY KEY, kind TEXT NOT NULL, settings TEXT NOT NULL,"
    " last_number INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS message (entity TEXT NOT NULL, dead INTEGER NOT NULL, number INTEGER NOT NULL,"
    " state INTEGER NOT NULL, enqueued INTEGER NOT NULL, expires INTEGER, delivery_count INTEGER NOT NULL,"
    " lock_token BLOB, locked_until INTEGER, source TEXT, first_number INTEGER, content BLOB NOT NULL,"
    " PRIMARY KEY (entity, dead, number))",
    "CREATE TABLE IF NOT EXISTS session_state (entity TEXT NOT NULL, session TEXT NOT NULL, state BLOB NOT NULL,"
    " PRIMARY KEY (entity, session)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS seen (entity TEXT NOT NULL, message_id TEXT NOT NULL, at INTEGER NOT NULL,"
    " PRIMARY KEY (entity, message_id)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS server (only INTEGER PRIMARY KEY CHECK (only = 1), incarnation TEXT NOT NULL)",
)


@dataclass(frozen=True, slots=True)
class EntityChanges:
    """What one write says of an entity: of its messages, and of its dead letters."""

    entity: str
    last_number: int
    alive: Changes
    dead: Changes = field(default_factory=Changes)


@dataclass(frozen=True, slots=True)
class KeptEntity:
    """An entity as it was kept. `kind` is queue, topic or subscription; of the last, `name` is `TOPIC/SUBSCRIPTION`."""

    name: str
    kind: str
    settings: QueueSettings
    last_number: int = 0


class KeptQueues:
    """The file of one server, used in its `thread` alone. Raises `StoreUnavailable` where it cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.thread = ThreadPoolExecutor(1, "queues-kept")
        self._incarnation = uuid4().hex
        self._file = DatabaseFile(
            path, schema=_lay_out, unavailable=StoreUnavailable, create=True, timeout=10.0, check=_check
        )

    def open(self) -> list[KeptEntity]:
        """Take the file over, and return the entities in it."""
        with self._file.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO server VALUES (1, ?)", (self._incarnation,))
            rows = connection.execute("SELECT name, kind, settings, last_number FROM entity ORDER BY name").fetchall()
        return [KeptEntity(name, kind, QueueSettings(**json.loads(text)), last) for name, kind, text, last in rows]

    def define(self, entities: Iterable[KeptEntity]) -> None:
        """Write down entities that are new, or have other settings now."""
        with self._writing() as connection:
            connection.executemany(
                "INSERT INTO entity VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET settings = excluded.settings",
                [(each.name, each.kind, json.dumps(asdict(each.settings)), each.last_number) for each in entities],
            )

    def messages(self, entity: str, *, dead: bool) -> list[QueuedMessage]:
        """The messages of an entity, or its dead letters, in the order of their numbers."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT number, state, enqueued, expires, delivery_count, lock_token, locked_until, source,"
                " first_number, content FROM message WHERE entity = ? AND dead = ? ORDER BY number",
                (entity, dead),
            ).fetchall()
        return [_message(row) for row in rows]

    def session_states(self, entity: str) -> dict[str, bytes]:
        """What receivers have left in the entity's sessions."""
        with self._file.reading() as connection:
            return dict(connection.execute("SELECT session, state FROM session_state WHERE entity = ?", (entity,)))

    def seen(self, entity: str) -> dict[str, int]:
        """Message ids within the window of duplicate detection, the oldest first."""
        with self._file.reading() as connection:
            rows = connection.execute("SELECT message_id, at FROM seen WHERE entity = ? ORDER BY at", (entity,))
            return dict(rows)

    def write(self, changes: Iterable[EntityChanges]) -> None:
        """Write down what has changed, all or nothing."""
        with self._writing() as connection:
            for entity in changes:
                connection.execute(
                    "UPDATE entity SET last_number = ? WHERE name = ?", (entity.last_number, entity.entity)
                )
                _write_messages(connection, entity.entity, False, entity.alive.messages)
                _write_messages(connection, entity.entity, True, entity.dead.messages)
                states, seen = entity.alive.session_states, entity.alive.seen
                _write_pairs(connection, entity.entity, "session_state", "session", states)
                _write_pairs(connection, entity.entity, "seen", "message_id", seen)

    def close(self) -> None:
        """Give file and thread back, once what the thread has been given is done."""
        self.thread.submit(self._file.close)
        self.thread.shutdown()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction of the server that the file names, and of no other."""
        with self._file.writing() as connection:
            row = connection.execute("SELECT incarnation FROM server").fetchone()
            if row is None or row[0] != self._incarnation:
                what = "another server has taken this file over; this one serves it no more"
                raise StoreUnavailable(f"{self.path}: {what}", verdict=Verdict.MEND)
            yield connection


def _write_messages(
    connection: sqlite3.Connection, entity: str, dead: bool, messages: Mapping[int, QueuedMessage | None]
) -> None:
    gone = [(entity, dead, number) for number, message in messages.items() if message is None]
    connection.executemany("DELETE FROM message WHERE entity = ? AND dead = ? AND number = ?", gone)
    there = [_row(entity, dead, message) for message in messages.values() if message is not None]
    connection.executemany("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", there)


def _write_pairs(connection: sqlite3.Connection, entity: str, name: str, key: str, pairs: Mapping[str, Any]) -> None:
    gone = [(entity, each) for each, value in pairs.items() if value is None]
    connection.executemany(f"DELETE FROM {name} WHERE entity = ? AND {key} = ?", gone)
    there = [(entity, each, value) for each, value in pairs.items() if value is not None]
    connection.executemany(f"INSERT OR REPLACE INTO {name} VALUES (?, ?, ?)", there)


def _row(entity: str, dead: bool, message: QueuedMessage) -> tuple[object, ...]:
    lock = message.lock
    return (
        *(entity, dead, message.sequence_number, int(message.state), message.enqueued, message.expires),
        *(message.delivery_count, lock.token.bytes if lock else None, lock.until if lock else None),
        *(message.source, message.first_number, message.content.encoded()),
    )


def _message(row: tuple[Any, ...]) -> QueuedMessage:
    number, state, enqueued, expires, count, token, until, source, first_number, content = row
    lock = None if token is None else Lock(UUID(bytes=token), until)
    return QueuedMessage(
        number, content_of(content), enqueued, MessageState(state), count, expires, lock, source, first_number
    )


def _check(connection: sqlite3.Connection) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if empty:
        return
    if application != _APPLICATION:
        raise ConfigError("servicebus", _place(connection), "a file of queues, and this one holds something else")
    if version != _FORMAT:
        rule = f"a file of queues in format {_FORMAT}, and this one has format {version}"
        raise ConfigError("servicebus", _place(connection), rule, "Use the release that made it")


def _place(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA database_list").fetchone()[2])


def _lay_out(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] == _FORMAT:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
