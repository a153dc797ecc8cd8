"""The tables that all entity tables of a SQLite database share, most of them made when they are needed first.

Owns their columns and indexes, which are a format: files of former releases have them.
"""

from __future__ import annotations

from leasehold.sinks.beside.clearing import CLEARED, PLACE
from leasehold.sinks.beside.entities import ENTITY
from leasehold.sinks.beside.messages.table import MESSAGE, MESSAGE_ENTITY, MESSAGE_PARKED, MESSAGE_SENT
from leasehold.sinks.beside.outbox.table import OUTBOX
from leasehold.sinks.beside.parking.table import PARKED
from leasehold.sinks.beside.set_aside.dropping import DROPPED

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS leasehold_table (
        name TEXT COLLATE NOCASE PRIMARY KEY, format INTEGER NOT NULL, pipeline TEXT NOT NULL,
        mode TEXT NOT NULL, keys TEXT NOT NULL, sequence_by TEXT, made INTEGER NOT NULL DEFAULT 0,
        sink_id TEXT NOT NULL, ordered_by TEXT, deletes INTEGER) WITHOUT ROWID""",  # sequence_by is the values' kind
    """CREATE TABLE IF NOT EXISTS leasehold_watermark (
        pipeline TEXT, entity_table TEXT COLLATE NOCASE, hub TEXT, consumer_group TEXT, partition TEXT,
        sequence_number INTEGER NOT NULL, owner_level INTEGER NOT NULL, whole INTEGER NOT NULL DEFAULT 0,
        disputed INTEGER NOT NULL DEFAULT 0, changes INTEGER NOT NULL DEFAULT 0,
        timed_number INTEGER, enqueued_time REAL,
        PRIMARY KEY (pipeline, entity_table, hub, consumer_group, partition)) WITHOUT ROWID""",
)
"""Those that every entity table needs: the statements that make them."""

MADE = {
    DROPPED: (
        """CREATE TABLE IF NOT EXISTS leasehold_dropped (
            pipeline TEXT NOT NULL, entity_table TEXT COLLATE NOCASE NOT NULL, hub TEXT NOT NULL,
            partition TEXT NOT NULL, sequence_number INTEGER NOT NULL, place INTEGER NOT NULL, reason TEXT NOT NULL,
            rejected_at TEXT NOT NULL, dropped_for TEXT NOT NULL, dropped_at TEXT NOT NULL)""",
    ),
    MESSAGE: (
        """CREATE TABLE IF NOT EXISTS leasehold_message (
            pipeline TEXT, entity_table TEXT COLLATE NOCASE, queue TEXT, message TEXT, done_at REAL NOT NULL,
            PRIMARY KEY (pipeline, entity_table, queue, message)) WITHOUT ROWID""",
        "CREATE INDEX IF NOT EXISTS leasehold_message_done_at ON leasehold_message (pipeline, entity_table, done_at)",
    ),
    MESSAGE_SENT: (
        """CREATE TABLE IF NOT EXISTS leasehold_message_sent (
            pipeline TEXT, entity_table TEXT COLLATE NOCASE, queue TEXT, sent_as TEXT, done_at REAL NOT NULL,
            PRIMARY KEY (pipeline, entity_table, queue, sent_as)) WITHOUT ROWID""",
        """CREATE INDEX IF NOT EXISTS leasehold_message_sent_done_at
            ON leasehold_message_sent (pipeline, entity_table, done_at)""",
    ),
    MESSAGE_ENTITY: (
        """CREATE TABLE IF NOT EXISTS leasehold_message_entity (
            pipeline TEXT, entity_table TEXT COLLATE NOCASE, key TEXT, version INTEGER NOT NULL, queue TEXT NOT NULL,
            sequence_number INTEGER NOT NULL, enqueued_time REAL NOT NULL,
            PRIMARY KEY (pipeline, entity_table, key)) WITHOUT ROWID""",
    ),
    MESSAGE_PARKED: (
        """CREATE TABLE IF NOT EXISTS leasehold_message_parked (
            pipeline TEXT, entity_table TEXT COLLATE NOCASE, queue TEXT, message TEXT, key TEXT NOT NULL,
            enqueued_time REAL NOT NULL, sequence_number INTEGER NOT NULL, body BLOB, about TEXT NOT NULL,
            deliveries INTEGER NOT NULL, next_at REAL NOT NULL, error TEXT NOT NULL, parked_at REAL NOT NULL,
            PRIMARY KEY (pipeline, entity_table, queue, message)) WITHOUT ROWID""",
        """CREATE INDEX IF NOT EXISTS leasehold_message_parked_key ON leasehold_message_parked
            (pipeline, entity_table, queue, key, enqueued_time, sequence_number)""",
        """CREATE INDEX IF NOT EXISTS leasehold_message_parked_next ON leasehold_message_parked
            (pipeline, entity_table, queue, next_at)""",
    ),
    PLACE: (
        """CREATE TABLE IF NOT EXISTS leasehold_place (
            pipeline TEXT, entity_table TEXT COLLATE NOCASE, consumer_group TEXT, at REAL, hub TEXT, partition TEXT,
            sequence_number INTEGER NOT NULL,
            PRIMARY KEY (pipeline, entity_table, consumer_group, at, hub, partition)) WITHOUT ROWID""",
    ),
    CLEARED: (
        """CREATE TABLE IF NOT EXISTS leasehold_cleared (
            pipeline TEXT, entity_table TEXT COLLATE NOCASE, hub TEXT, partition TEXT,
            sequence_number INTEGER NOT NULL, PRIMARY KEY (pipeline, entity_table, hub, partition)) WITHOUT ROWID""",
    ),
    PARKED: (
        """CREATE TABLE IF NOT EXISTS leasehold_parked (
            pipeline TEXT, entity_table TEXT COLLATE NOCASE, hub TEXT, partition TEXT, sequence_number INTEGER,
            key TEXT NOT NULL, body BLOB NOT NULL, enqueued_time REAL NOT NULL, deliveries INTEGER NOT NULL,
            next_at REAL NOT NULL, error TEXT NOT NULL, parked_at REAL NOT NULL,
            PRIMARY KEY (pipeline, entity_table, hub, partition, sequence_number)) WITHOUT ROWID""",
        "CREATE INDEX IF NOT EXISTS leasehold_parked_key ON leasehold_parked "
        "(pipeline, entity_table, hub, partition, key, sequence_number)",
    ),
    ENTITY: (  # latest is JSON
        """CREATE TABLE IF NOT EXISTS leasehold_entity (
            pipeline TEXT, entity_table TEXT COLLATE NOCASE, key TEXT, version INTEGER NOT NULL, latest TEXT,
            PRIMARY KEY (pipeline, entity_table, key)) WITHOUT ROWID""",
        "CREATE INDEX IF NOT EXISTS leasehold_parked_entity "  # behind leasehold_parked
        "ON leasehold_parked (pipeline, entity_table, key, parked_at)",
    ),
    OUTBOX: (
        """CREATE TABLE IF NOT EXISTS leasehold_outbox (
            number INTEGER PRIMARY KEY AUTOINCREMENT, pipeline TEXT NOT NULL,
            entity_table TEXT COLLATE NOCASE NOT NULL,
            hub TEXT NOT NULL, partition TEXT NOT NULL, sequence_number INTEGER NOT NULL, place INTEGER NOT NULL,
            entity TEXT NOT NULL, key TEXT, body BLOB NOT NULL, properties TEXT NOT NULL, emitted_at REAL NOT NULL,
            refused TEXT)""",
        "CREATE INDEX IF NOT EXISTS leasehold_outbox_lane ON leasehold_outbox "
        "(pipeline, entity_table, hub, partition, number)",
    ),
}
"""Of the others, by their names, the statements that make each where it is missing."""
