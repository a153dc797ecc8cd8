"""What SQLite takes in any column, such as bytes that are no text, holds up its own entity at most."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.handlers import Spread, Writes
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.table import HandledTable
from leasehold.hubs.log import LogHub
from leasehold.sinks import open_sink
from leasehold.sinks.beside.messages.contract import MessageOutcome
from leasehold.sinks.features import STATES, require
from leasehold.sinks.set_aside import Selection
from leasehold_testkit.contracts.sinks.fixtures import UPSERT
from leasehold_testkit.contracts.sinks.messages import (
    REMEMBER,
    STATE,
    apply_message,
    change,
    message,
    parked,
    read_message,
)
from tests.handlers.batches import given, rows

NO_TEXT = "CAST(x'ff' AS TEXT)"
VALUES = ["'x'", "x'ff'", NO_TEXT, "9e999"]
PLACES = [f"{NO_TEXT}, '0'", "x'ff', '0'", f"'h', {NO_TEXT}", "'h', x'ff'", "'other', '0'"]
_MINE = "'p', 'accounts'"


@entity(keys=["account"])
def adding(state: Any, event: EntityEvent) -> Any:
    if event.row["fails"]:
        raise RuntimeError("down")
    return {"seen": f"{state['seen']},{event.row['version']}" if state else str(event.row["version"])}


def write(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "table.db", timeout=30)) as connection, connection:
        connection.execute(statement)


class Table:
    """A spread table, and one owner of a partition after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.level, self._next = folder, 0, 0
        LogHub.create(folder / "out.db", partitions=1).close()

    def give(self, *accounts: str, fails: str = "") -> None:
        """Give the next owner an event of each account."""
        self.level += 1
        with closing(self.open()) as table:
            version = self.level
            bodies = [{"account": one, "version": version, "fails": one == fails} for one in accounts]
            batch, _ = given(self.level, self._next, *bodies)
            place = {"hub": "h", "partition": "0", "owner_level": self.level, "trusted": True}
            context: Any = SimpleNamespace(start=0, call_again=lambda seconds: None, **place)
            table.on_events(batch, context)
            self._next += len(accounts)

    def open(self) -> HandledTable:
        table = HandledTable(
            adding,
            f"sqlite:////{self.folder}/table.db",
            table="accounts",
            pipeline="p",
            schema="account STRING, version BIGINT, fails BOOLEAN",
            state=Writes("account STRING, seen STRING", outbox=f"log:////{self.folder}/out.db"),
            spread=Spread("version"),
        )
        table.level_of = lambda hub, partition: self.level
        return table

    def run(self, statement: str) -> None:
        write(self.folder, statement)

    def seen(self) -> dict[str, str]:
        return dict(rows(self.folder, "SELECT account, seen FROM accounts"))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


@pytest.mark.more(but=3)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("column", ["parked_at", "next_at"])
def test_the_times_of_a_parked_event(table: Table, column: str, value: str) -> None:
    table.give("a", "b", fails="a")
    table.run(f"UPDATE leasehold_parked SET {column} = {value}")
    for _ in range(2):
        table.give("a", "b")
    assert table.seen()["b"] == "1,2,3"


@pytest.mark.more(but=4)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("column", ["latest", "version"])
def test_what_is_known_of_an_entity(table: Table, column: str, value: str) -> None:
    table.give("a", "b")
    table.run(f"UPDATE leasehold_entity SET {column} = {value} WHERE key = '[\"a\"]'")
    for _ in range(2):
        table.give("a", "b")
    assert table.seen()["b"] == "1,2,3"


@pytest.mark.more(but=2)
@pytest.mark.parametrize("where", PLACES)
def test_where_parked_events_and_those_of_the_outbox_come_from(table: Table, where: str) -> None:
    table.give("a", "b")
    table.run(f"INSERT INTO leasehold_parked VALUES ({_MINE}, {where}, 0, '[\"z\"]', x'7b7d', 0, 0, 0, '', 0)")
    table.run(
        "INSERT INTO leasehold_outbox (pipeline, entity_table, hub, partition, sequence_number, place, entity, body, "
        f"properties, emitted_at) VALUES ({_MINE}, {where}, 0, 0, '[\"z\"]', x'7b7d', '{{}}', 0)"
    )
    table.give("a", "z", "b")
    table.give("a", "b")
    assert table.seen() == {"a": "1,2,3", "b": "1,2,3"}
    with closing(table.open()) as its:
        listed = require(its.sink, STATES, "a test").parked_rows(Selection(), 9)
        assert {row.id.hub for row in listed} <= {"h", "other"}
        assert len(listed) == 1 + ("other" in where), "the event of z, which waits, is"


@pytest.mark.more(but=2)
@pytest.mark.parametrize("partition", [NO_TEXT, "x'ff'", "'9'", "9"])
def test_watermarks_of_partitions_that_are_none(table: Table, partition: str) -> None:
    table.give("a")
    table.run(
        "INSERT INTO leasehold_watermark (pipeline, entity_table, hub, consumer_group, partition, sequence_number, "
        f"owner_level) VALUES ({_MINE}, 'h', '$Default', {partition}, 5, 1)"
    )
    table.give("a", "b")
    assert table.seen() == {"a": "1,2", "b": "2"}


# Messages of a queue


@pytest.mark.more(but=2)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("column", ["version", "queue", "sequence_number", "enqueued_time"])
def test_the_place_of_an_entity_among_messages(tmp_path: Path, column: str, value: str) -> None:
    with closing(open_sink(f"sqlite:////{tmp_path}/table.db", UPSERT)) as opened:
        sink = require(opened, STATES, "a test")
        sink.check_messages(STATE)
        apply_message(sink, STATE, change(1, "a", 0, 5), REMEMBER)
        write(tmp_path, f"UPDATE leasehold_message_entity SET {column} = {value}")
        known = read_message(sink, STATE, ("a",), message(2))
        assert apply_message(sink, STATE, change(2, "a", known.version, 6), REMEMBER) is MessageOutcome.APPLIED
    assert rows(tmp_path, "SELECT value FROM entities") == [(6,)]


@pytest.mark.more(but=2)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "column", ["message", "sequence_number", "enqueued_time", "body", "deliveries", "parked_at", "queue"]
)
def test_a_parked_message(tmp_path: Path, column: str, value: str) -> None:
    """One without a name can be worked on by nobody: it holds up its entity."""
    with closing(open_sink(f"sqlite:////{tmp_path}/table.db", UPSERT)) as opened:
        sink = require(opened, STATES, "a test")
        sink.check_messages(STATE)
        messages = sink.parked_messages
        for number, account in ((1, "a"), (2, "b"), (3, "a")):
            messages.park(parked(number, account))
        write(tmp_path, f"UPDATE leasehold_message_parked SET {column} = {value} WHERE sequence_number = 1")
        assert set(messages.due("shop/orders", 9)) >= {("b",)}
        found = sorted(messages.first("shop/orders", ("a",), 9), key=lambda one: one.place)
        assert 3 in [one.name.sequence_number for one in found]
        read_message(sink, STATE, ("a",), message(4))
        for one in found:
            messages.set_aside(one, "made up")
        assert len(messages.first("shop/orders", ("a",), 9)) == 0
        assert sum(count for count, _ in messages.waiting().values()) >= 1
