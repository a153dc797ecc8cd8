"""Ownership and checkpoints in one SQLite file, for all processes of one host.

Owns the tables `leasehold_ownership`, `leasehold_checkpoint` and `leasehold_binding`. Its clock is the
boot id with the boot-time clock: a record from before a reboot is infinitely old, since whoever wrote it
is gone. Refuses nothing about hosts: do not put the file on a network file system, where neither SQLite's
locks nor this clock hold.

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
from pathlib import Path

from leasehold.backends import file_of
from leasehold.clock import Clock, SystemClock, boot_id
from leasehold.embedded import DatabaseFile
from leasehold.errors import StoreUnavailable
from leasehold.model import Checkpoint, ConsumerGroup, Ownership, OwnershipListing
from leasehold.stores.base import PipelineBinding
from leasehold.stores.rules import check_update, raised

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS leasehold_ownership (
        namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
        owner_id TEXT NOT NULL, owner_level INTEGER NOT NULL, etag TEXT NOT NULL,
        boot_id TEXT NOT NULL, last_modified REAL NOT NULL,
        PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS leasehold_checkpoint (
        namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
        sequence_number INTEGER NOT NULL, owner_level INTEGER NOT NULL, "offset" TEXT,
        PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS leasehold_binding (
        namespace TEXT, hub TEXT, consumer_group TEXT,
        pipeline TEXT NOT NULL, sink TEXT NOT NULL,
        PRIMARY KEY (namespace, hub, consumer_group)) WITHOUT ROWID""",
)
_OF_GROUP = "namespace = ? AND hub = ? AND consumer_group = ?"
_OF_PARTITION = f"{_OF_GROUP} AND partition = ?"


def _group_key(group: ConsumerGroup) -> tuple[str, str, str]:
    return group.namespace, group.hub, group.name


def _key(record: Ownership | Checkpoint) -> tuple[str, str, str, str]:
    return *_group_key(record.group), record.partition


class SqliteStore:
    """Ownership and checkpoints in the SQLite file at `path`, which is made if it is missing.

    `timeout` is the longest that a call waits for another writer, in seconds.
    """

    def __init__(
        self, path: Path, *, timeout: float = 3.0, clock: Clock | None = None, boot: str | None = None
    ) -> None:
        self._file = DatabaseFile(path, schema=_SCHEMA, unavailable=StoreUnavailable, create=True, timeout=timeout)
        self._clock = clock or SystemClock()
        self._boot = boot or boot_id()

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT partition, owner_id, owner_level, etag, boot_id, last_modified FROM leasehold_ownership "
                f"WHERE {_OF_GROUP}",
                _group_key(group),
            ).fetchall()
            as_of = self._clock.monotonic()
        records = tuple(
            Ownership(group, partition, owner, level, etag, self._age_base(boot, modified, as_of))
            for partition, owner, level, etag, boot, modified in rows
        )
        return OwnershipListing(records, as_of)

    def _age_base(self, boot: str, modified: float, as_of: float) -> float:
        # A clock that has gone back is another boot's, also where the system gives no boot id.
        return modified if boot == self._boot and modified <= as_of else -math.inf

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        return self._write(claims, durable=True)

    def renew_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        return self._write(held, durable=False)

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        return self._write([dataclasses.replace(record, owner_id="") for record in held], durable=True)

    def _write(self, records: Sequence[Ownership], *, durable: bool) -> list[Ownership]:
        if not records:
            return []
        won = []
        with self._file.writing(durable=durable) as connection:
            now = self._clock.monotonic()
            for record in records:
                new = dataclasses.replace(record, etag=secrets.token_hex(8), last_modified=now)
                if self._put(connection, new, expected=record.etag):
                    won.append(new)
        return won

    def _put(self, connection: sqlite3.Connection, record: Ownership, *, expected: str | None) -> bool:
        values = (record.owner_id, record.owner_level, record.etag, self._boot, record.last_modified)
        if expected is None:
            cursor = connection.execute(
                "INSERT INTO leasehold_ownership (namespace, hub, consumer_group, partition, "
                "owner_id, owner_level, etag, boot_id, last_modified) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                (*_key(record), *values),
            )
        else:
            cursor = connection.execute(
                "UPDATE leasehold_ownership SET owner_id = ?, owner_level = ?, etag = ?, boot_id = ?, "
                f"last_modified = ? WHERE {_OF_PARTITION} AND etag = ?",
                (*values, *_key(record), expected),
            )
        return cursor.rowcount == 1

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        with self._file.reading() as connection:
            rows = connection.execute(
                f'SELECT partition, sequence_number, owner_level, "offset" FROM leasehold_checkpoint WHERE {_OF_GROUP}',
                _group_key(group),
            ).fetchall()
        return [Checkpoint(group, *row) for row in rows]

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        if not starts:
            return []
        with self._file.writing() as connection:
            records = {}
            for start in starts:
                records[_key(start)] = raised(self._checkpoint(connection, start), start)
                self._put_checkpoint(connection, records[_key(start)])
        return [records[_key(start)] for start in starts]

    def update_checkpoint(self, checkpoint: Checkpoint) -> None:
        with self._file.writing() as connection:
            check_update(self._checkpoint(connection, checkpoint), checkpoint)
            self._put_checkpoint(connection, checkpoint)

    def _checkpoint(self, connection: sqlite3.Connection, like: Checkpoint) -> Checkpoint | None:
        row = connection.execute(
            f'SELECT sequence_number, owner_level, "offset" FROM leasehold_checkpoint WHERE {_OF_PARTITION}', _key(like)
        ).fetchone()
        return Checkpoint(like.group, like.partition, *row) if row else None

    def _put_checkpoint(self, connection: sqlite3.Connection, record: Checkpoint) -> None:
        connection.execute(
            "INSERT INTO leasehold_checkpoint VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "sequence_number = excluded.sequence_number, owner_level = excluded.owner_level, "
            '"offset" = excluded."offset"',
            (*_key(record), record.sequence_number, record.owner_level, record.offset),
        )

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        with self._file.writing() as connection:
            connection.execute(
                "INSERT INTO leasehold_binding VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*_group_key(group), binding.pipeline, binding.sink),
            )
            row = connection.execute(
                f"SELECT pipeline, sink FROM leasehold_binding WHERE {_OF_GROUP}", _group_key(group)
            ).fetchone()
        return PipelineBinding(*row)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        with self._file.writing() as connection:
            connection.execute(
                "INSERT INTO leasehold_binding VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET pipeline = excluded.pipeline, sink = excluded.sink",
                (*_group_key(group), binding.pipeline, binding.sink),
            )


def open_sqlite_store(url: str, base: Path, timeout: float) -> SqliteStore:
    """The store in the file that a `sqlite:///` URL names."""
    return SqliteStore(file_of(url, base, "store"), timeout=timeout)
