"""The tables of the SQLite store, version by version.

Owns what each version added. Version 1 had no presence, no asks and nothing about how a partition came to its
owner, and version 2 no data with a checkpoint; files of its time do not state a version. A file that states none is
known by its columns.
"""

from __future__ import annotations

import sqlite3

from leasehold.stores.sqlite.schema import Schema, has_table

_VERSION_1 = (
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

_VERSION_2 = (
    "ALTER TABLE leasehold_ownership ADD COLUMN nonce TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE leasehold_ownership ADD COLUMN successor TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE leasehold_ownership ADD COLUMN claimed_at INTEGER NOT NULL DEFAULT -1",
    "ALTER TABLE leasehold_ownership ADD COLUMN failures INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE leasehold_ownership ADD COLUMN last_error TEXT NOT NULL DEFAULT ''",
    """CREATE TABLE IF NOT EXISTS leasehold_presence (
        namespace TEXT, hub TEXT, consumer_group TEXT, owner_id TEXT,
        pipeline TEXT NOT NULL, strategy TEXT NOT NULL, capacity REAL NOT NULL, maximum INTEGER,
        boot_id TEXT NOT NULL, created REAL NOT NULL, last_modified REAL NOT NULL, etag TEXT NOT NULL,
        PRIMARY KEY (namespace, hub, consumer_group, owner_id)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS leasehold_ask (
        namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
        owner_level INTEGER NOT NULL, asker TEXT NOT NULL,
        PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID""",
)

_VERSION_3 = ("ALTER TABLE leasehold_checkpoint ADD COLUMN data TEXT",)


def _by_its_columns(connection: sqlite3.Connection) -> int:
    """The version of a file that states none: the highest that has left a trace in what is still there."""
    if any(name == "data" for _, name, *_ in connection.execute("PRAGMA table_info(leasehold_checkpoint)")):
        return 3
    columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(leasehold_ownership)")}
    if "nonce" in columns or has_table(connection, "leasehold_presence"):
        return 2
    return 1 if columns or has_table(connection, "leasehold_checkpoint") else 0


SCHEMA = Schema("stores", (_VERSION_1, _VERSION_2, _VERSION_3), _by_its_columns)
