"""The tables that all entity tables of a SQLite database share, each made when it is needed first: their definitions.

Owns the columns and indexes, which are a format: files of former releases have them.
"""

from __future__ import annotations

from leasehold.sinks.beside.outbox.table import OUTBOX
from leasehold.sinks.beside.parking.table import PARKED
from leasehold.sinks.beside.set_aside.dropping import DROPPED

MADE = {
    DROPPED: (
        """CREATE TABLE IF NOT EXISTS leasehold_dropped (
            pipeline TEXT NOT NULL, entity_table TEXT COLLATE NOCASE NOT NULL, hub TEXT NOT NULL,
            partition TEXT NOT NULL, sequence_number INTEGER NOT NULL, place INTEGER NOT NULL, reason TEXT NOT NULL,
            rejected_at TEXT NOT NULL, dropped_for TEXT NOT NULL, dropped_at TEXT NOT NULL)""",
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
"""By the table's name, the statements that make it where it is missing."""
