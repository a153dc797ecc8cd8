"""Ownership and checkpoints in one SQLite file, for all processes of one host.

Owns the tables `leasehold_ownership`, `leasehold_presence`, `leasehold_ask`, `leasehold_checkpoint` and
`leasehold_binding` (`layout.py` says how they look). Its clock is the boot id with the boot-time
clock: a record from before a reboot is infinitely old, since whoever wrote it is gone. Refuses
a URL whose file is on a network file system, where neither SQLite's locks nor this clock hold.

Concurrency: every write is one `BEGIN IMMEDIATE` transaction, so writers follow one another and a record
is compared and written under one lock. A writer stopped inside a transaction makes the others wait until
their time-out and then raise `StoreUnavailable`; one killed there has written nothing.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from leasehold.backends import local_file_of
from leasehold.clock import Clock, SystemClock, boot_id
from leasehold.database.sqlite import DatabaseFile
from leasehold.errors import NotTheOwner, StoreUnavailable
from leasehold.model import (
    Ask,
    Checkpoint,
    ConsumerGroup,
    Ownership,
    OwnershipListing,
    Presence,
    RecordKind,
    Unreadable,
)
from leasehold.stores.base import PipelineBinding, SchemaChange, StoreFeatures
from leasehold.stores.checkpoint_data import check_data, data_text, with_data
from leasehold.stores.readable import listing, read, read_binding
from leasehold.stores.rules import raised, refusal
from leasehold.stores.skipped import Skipped
from leasehold.stores.sqlite.layout import SCHEMA
from leasehold.stores.sqlite.schema import as_it_is

_Row = tuple[Any, ...]

_OF_GROUP = "namespace = ? AND hub = ? AND consumer_group = ?"
_OF_PARTITION = f"{_OF_GROUP} AND partition = ?"
_BINDING = f"SELECT pipeline, sink FROM leasehold_binding WHERE {_OF_GROUP}"
_CHECKPOINTS = 'SELECT partition, sequence_number, owner_level, "offset", data FROM leasehold_checkpoint'


def _group_key(group: ConsumerGroup) -> tuple[str, str, str]:
    return group.namespace, group.hub, group.name


def _key(record: Ownership | Checkpoint | Ask) -> tuple[str, str, str, str]:
    return *_group_key(record.group), record.partition


class SqliteStore:
    """Ownership and checkpoints in the SQLite file at `path`, which is made if it is missing.

    `timeout` is the longest that a call waits for another writer, in seconds.
    """

    features = StoreFeatures(shared=False)

    def __init__(
        self, path: Path, *, timeout: float = 3.0, clock: Clock | None = None, boot: str | None = None
    ) -> None:
        self._file = DatabaseFile(
            path,
            schema=SCHEMA.lay_out,
            check=SCHEMA.check,
            unavailable=StoreUnavailable,
            create=True,
            timeout=timeout,
            setup=as_it_is,
        )
        self._skipped = Skipped(str(path))
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._boot = boot or boot_id()

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._file.path)!r})"

    def create_schema(self) -> SchemaChange:
        return SCHEMA.create(self._file.path, self._timeout)

    def schema_statements(self) -> tuple[str, ...]:
        return () if self.is_made() else SCHEMA.statements

    def is_made(self) -> bool:
        return SCHEMA.is_there(self._file.path, self._timeout)

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        key = _group_key(group)
        with self._file.reading() as connection:
            owned = connection.execute(
                "SELECT partition, owner_id, owner_level, etag, boot_id, last_modified, nonce, successor, claimed_at, "
                f"failures, last_error FROM leasehold_ownership WHERE {_OF_GROUP}",
                key,
            ).fetchall()
            present = connection.execute(
                "SELECT owner_id, pipeline, strategy, capacity, maximum, created, boot_id, last_modified, etag "
                f"FROM leasehold_presence WHERE {_OF_GROUP}",
                key,
            ).fetchall()
            asked = connection.execute(
                f"SELECT partition, owner_level, asker FROM leasehold_ask WHERE {_OF_GROUP}", key
            ).fetchall()
            as_of = self._clock.monotonic()

        def tag(row: _Row) -> tuple[object, object]:
            return row[3], self._age_base(row[4], row[5], as_of)

        def ownership(row: _Row) -> Ownership:
            partition, owner, level, etag, boot, modified, *rest = row
            return Ownership(group, partition, owner, level, etag, self._age_base(boot, modified, as_of), *rest)

        def presence(row: _Row) -> Presence:
            owner, pipeline, strategy, capacity, maximum, created, boot, seen, etag = row
            at = self._age_base(boot, seen, as_of)
            return Presence(group, owner, pipeline, strategy, capacity, maximum, created, at, etag)

        return listing(
            [read(RecordKind.OWNERSHIP, group, row[0], ownership, row, tag=tag) for row in owned],
            as_of,
            [read(RecordKind.PRESENCE, group, row[0], presence, row) for row in present],
            [read(RecordKind.ASK, group, row[0], partial(_ask, group), row) for row in asked],
        )

    def _age_base(self, boot: str, modified: float, as_of: float) -> float:
        # A clock that has gone back is another boot's, also where the system gives no boot id.
        return modified if boot == self._boot and modified <= as_of else -math.inf

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        return self._write(claims, durable=True)

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        return self._write(held, durable=False, renewing=True, presence=presence)

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        given_up = [dataclasses.replace(record, owner_id="") for record in held if record.etag is not None]
        return self._write(given_up, durable=True)

    def _write(
        self,
        records: Sequence[Ownership],
        *,
        durable: bool,
        renewing: bool = False,
        presence: Presence | None = None,
    ) -> list[Ownership]:
        if not records and presence is None:
            return []
        won = []
        with self._file.writing(durable=durable) as connection:
            now = self._clock.monotonic()
            if presence is not None:
                self._put_presence(connection, presence, now)
            for record in records:
                new = dataclasses.replace(record, etag=secrets.token_hex(8), last_modified=now)
                if self._put(connection, new, expected=record.etag, renewing=renewing):
                    won.append(new)
        return won

    def _put(self, connection: sqlite3.Connection, record: Ownership, *, expected: str | None, renewing: bool) -> bool:
        values = (
            *(record.owner_id, record.owner_level, record.etag, self._boot, record.last_modified),
            *(record.nonce, record.successor, record.claimed_at, record.failures, record.last_error),
        )
        if expected is None:
            if renewing:
                return False
            cursor = connection.execute(
                "INSERT INTO leasehold_ownership (namespace, hub, consumer_group, partition, "
                "owner_id, owner_level, etag, boot_id, last_modified, nonce, successor, claimed_at, failures, "
                "last_error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*_key(record), *values),
            )
        else:
            cursor = connection.execute(
                "UPDATE leasehold_ownership SET owner_id = ?, owner_level = ?, etag = ?, boot_id = ?, "
                "last_modified = ?, nonce = ?, successor = ?, claimed_at = ?, failures = ?, last_error = ? "
                f"WHERE {_OF_PARTITION} AND etag = ? AND (NOT ? OR (owner_id = ? AND owner_level = ?))",
                (*values, *_key(record), expected, renewing, record.owner_id, record.owner_level),
            )
        return cursor.rowcount == 1

    def _put_presence(self, connection: sqlite3.Connection, presence: Presence, now: float) -> None:
        connection.execute(
            "INSERT INTO leasehold_presence VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "pipeline = excluded.pipeline, strategy = excluded.strategy, capacity = excluded.capacity, "
            "maximum = excluded.maximum, boot_id = excluded.boot_id, last_modified = excluded.last_modified, "
            "etag = excluded.etag",
            (
                *(*_group_key(presence.group), presence.owner_id),
                *(presence.pipeline, presence.strategy, presence.capacity, presence.maximum),
                *(self._boot, now, now, secrets.token_hex(8)),
            ),
        )

    def withdraw_presence(self, group: ConsumerGroup, owner_ids: Sequence[str]) -> None:
        with self._file.writing(durable=False) as connection:
            connection.executemany(
                f"DELETE FROM leasehold_presence WHERE {_OF_GROUP} AND owner_id = ?",
                [(*_group_key(group), owner_id) for owner_id in owner_ids],
            )

    def ask(self, asks: Sequence[Ask]) -> None:
        with self._file.writing(durable=False) as connection:
            connection.executemany(
                "INSERT INTO leasehold_ask VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "owner_level = excluded.owner_level, asker = excluded.asker",
                [(*_key(ask), ask.owner_level, ask.asker) for ask in asks],
            )

    def withdraw_asks(self, asks: Sequence[Ask]) -> None:
        with self._file.writing(durable=False) as connection:
            connection.executemany(
                f"DELETE FROM leasehold_ask WHERE {_OF_PARTITION} AND owner_level = ? AND asker = ?",
                [(*_key(ask), ask.owner_level, ask.asker) for ask in asks],
            )

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        with self._file.reading() as connection:
            rows = connection.execute(
                f"{_CHECKPOINTS} WHERE {_OF_GROUP}",
                _group_key(group),
            ).fetchall()
        found = [read(RecordKind.CHECKPOINT, group, row[0], partial(_checkpoint, group), row) for row in rows]
        return self._skipped.left(found)

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        if not starts:
            return []
        with self._file.writing() as connection:
            records = {}
            for start in starts:
                stands = self._checkpoint(connection, start)
                if isinstance(stands, Unreadable):
                    self._skipped.tell(stands)
                    continue
                records[_key(start)] = raised(stands, start)
                self._put_checkpoint(connection, records[_key(start)])
        return [records[_key(start)] for start in starts if _key(start) in records]

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        refused: list[NotTheOwner] = []
        if not checkpoints:
            return refused
        for checkpoint in checkpoints:
            check_data(checkpoint.data)
        with self._file.writing() as connection:
            for checkpoint in checkpoints:
                stands = self._checkpoint(connection, checkpoint)
                refusing = None if isinstance(stands, Unreadable) else refusal(stands, checkpoint)
                if refusing is None:
                    self._put_checkpoint(connection, checkpoint)
                else:
                    refused.append(refusing)
        return refused

    def _checkpoint(self, connection: sqlite3.Connection, like: Checkpoint) -> Checkpoint | Unreadable | None:
        row = connection.execute(
            f"{_CHECKPOINTS} WHERE {_OF_PARTITION}",
            _key(like),
        ).fetchone()
        if row is None:
            return None
        return read(RecordKind.CHECKPOINT, like.group, like.partition, partial(_checkpoint, like.group), row)

    def _put_checkpoint(self, connection: sqlite3.Connection, record: Checkpoint) -> None:
        connection.execute(
            "INSERT INTO leasehold_checkpoint VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "sequence_number = excluded.sequence_number, owner_level = excluded.owner_level, "
            '"offset" = excluded."offset", data = excluded.data',
            (*_key(record), record.sequence_number, record.owner_level, record.offset, data_text(record)),
        )

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        with self._file.reading() as connection:
            row = connection.execute(_BINDING, _group_key(group)).fetchone()
        return None if row is None else read_binding(str(self._file.path), group, tuple, row)

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        with self._file.writing() as connection:
            connection.execute(
                "INSERT INTO leasehold_binding VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*_group_key(group), binding.pipeline, binding.sink),
            )
            row = connection.execute(_BINDING, _group_key(group)).fetchone()
        return read_binding(str(self._file.path), group, tuple, row)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        with self._file.writing() as connection:
            connection.execute(
                "INSERT INTO leasehold_binding VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET pipeline = excluded.pipeline, sink = excluded.sink",
                (*_group_key(group), binding.pipeline, binding.sink),
            )


def _ask(group: ConsumerGroup, row: _Row) -> Ask:
    return Ask(group, *row)


def _checkpoint(group: ConsumerGroup, row: _Row) -> Checkpoint:
    partition, number, level, offset, data = row
    return with_data(Checkpoint(group, partition, number, level, offset), data)


def open_sqlite_store(url: str, base: Path, timeout: float) -> SqliteStore:
    """The store in the file that a `sqlite:///` URL names."""
    return SqliteStore(local_file_of(url, base, "store"), timeout=timeout)
