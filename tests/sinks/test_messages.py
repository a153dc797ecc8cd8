"""What earlier commits have kept of messages of queues, and what is forgotten of an entity."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.messages import MessageChange, MessageName, MessageOutcome

FIRST = """
CREATE TABLE leasehold_message (
    pipeline TEXT, entity_table TEXT COLLATE NOCASE, queue TEXT, message TEXT, done_at REAL NOT NULL,
    PRIMARY KEY (pipeline, entity_table, queue, message)) WITHOUT ROWID;
CREATE INDEX leasehold_message_done_at ON leasehold_message (pipeline, entity_table, done_at);
CREATE TABLE leasehold_message_entity (
    pipeline TEXT, entity_table TEXT COLLATE NOCASE, key TEXT, version INTEGER NOT NULL, queue TEXT NOT NULL,
    sequence_number INTEGER NOT NULL, enqueued_time REAL NOT NULL,
    PRIMARY KEY (pipeline, entity_table, key)) WITHOUT ROWID;
INSERT INTO leasehold_message VALUES ('p', 'orders', 'shop/orders', '7@1800000000000', 1800000001.5);
INSERT INTO leasehold_message_entity VALUES ('p', 'orders', '["eu", 5]', 3, 'shop/orders', 7, 1800000000.0);
"""
STATES = pa.schema({"number": pa.int64(), "area": pa.string(), "total": pa.int64()})
KEY = (5, "eu")


def opened(tmp_path: Path) -> Any:
    sink: Any = open_sink(
        "sqlite:///table.db", TableSpec(name="orders", pipeline="p", keys=("number", "area")), base=tmp_path
    )
    sink.check_messages(STATES)
    return sink


def name(number: int) -> MessageName:
    return MessageName("shop/orders", f"{number}@1800000000000", number, 1_800_000_000.0)


def test_the_first_form_is_read(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
        connection.executescript(FIRST)
    with closing(opened(tmp_path)) as sink:
        known = sink.read_message(STATES, KEY, name(7))
        assert (known.done, known.version, known.late) == (True, 3, False)
        earlier = sink.read_message(STATES, KEY, name(6))
        assert (earlier.done, earlier.late) == (False, True)
        state = {"number": 5, "area": "eu", "total": 1}
        assert sink.apply_message(STATES, MessageChange(name(6), KEY, 3, state), 1e9) is MessageOutcome.APPLIED


def test_an_entity_is_forgotten_with_its_version(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as sink:
        sink.apply_message(STATES, MessageChange(name(1), KEY, 0, None), 1e9)
        assert sink.forget_entity({"number": "5", "area": "eu"}).memories == 1
        assert sink.read_message(STATES, KEY, name(2)).version == 0
