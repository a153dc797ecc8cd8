"""The tables that all entity tables of a SQLite database share, each made when it is needed first: their definitions.

Owns the columns and indexes, which are a format: files of former releases have them.
"""

from __future__ import annotations

from leasehold.sinks.beside.outbox.table import OUTBOX

MADE = {
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
