"""The tables of the SQLite store."""

from __future__ import annotations

from leasehold.stores.sqlite.schema import SqliteSchema
from leasehold.stores.table_versions import Component

SCHEMA = SqliteSchema(
    Component(
        "stores",
        3,
        (
            """CREATE TABLE leasehold_ownership (
                namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
                owner_id TEXT NOT NULL, owner_level INTEGER NOT NULL, etag TEXT NOT NULL,
                boot_id TEXT NOT NULL, last_modified REAL NOT NULL, nonce TEXT NOT NULL, successor TEXT NOT NULL,
                claimed_at INTEGER NOT NULL, failures INTEGER NOT NULL, last_error TEXT NOT NULL,
                PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID""",
            """CREATE TABLE leasehold_checkpoint (
                namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
                sequence_number INTEGER NOT NULL, owner_level INTEGER NOT NULL, "offset" TEXT, data TEXT,
                PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID""",
            """CREATE TABLE leasehold_binding (
                namespace TEXT, hub TEXT, consumer_group TEXT,
                pipeline TEXT NOT NULL, sink TEXT NOT NULL,
                PRIMARY KEY (namespace, hub, consumer_group)) WITHOUT ROWID""",
            """CREATE TABLE leasehold_presence (
                namespace TEXT, hub TEXT, consumer_group TEXT, owner_id TEXT,
                pipeline TEXT NOT NULL, strategy TEXT NOT NULL, capacity REAL NOT NULL, maximum INTEGER,
                boot_id TEXT NOT NULL, created REAL NOT NULL, last_modified REAL NOT NULL, etag TEXT NOT NULL,
                PRIMARY KEY (namespace, hub, consumer_group, owner_id)) WITHOUT ROWID""",
            """CREATE TABLE leasehold_ask (
                namespace TEXT, hub TEXT, consumer_group TEXT, partition TEXT,
                owner_level INTEGER NOT NULL, asker TEXT NOT NULL,
                PRIMARY KEY (namespace, hub, consumer_group, partition)) WITHOUT ROWID""",
        ),
    )
)
