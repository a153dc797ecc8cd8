"""What waits in a table's database is spoiled, or made up: all else goes on, and an operator sees it and removes it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold import DeliverySettings, Event, EventProcessor
from leasehold.handlers import Failures, Spread, Writes
from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.table import HandledTable, Retries
from leasehold.hubs.log import LogHub
from leasehold.processors.events import Handlers
from leasehold.sinks import open_sink
from leasehold.sinks.features import STATES, require
from leasehold.sinks.set_aside import Selection
from leasehold_testkit.contracts.sinks.fixtures import UPSERT
from leasehold_testkit.contracts.sinks.messages import STATE as STATE_COLUMNS
from leasehold_testkit.contracts.sinks.messages import parked
from tests.handlers.batches import given
from tests.handlers.handler_program import OFTEN
from tests.waiting import until

Run = Callable[[str], list[Any]]

FILLED = 30  # events that are read before anything is spoiled, so that there are numbers for what is parked then
Z = '\'{"account": "z"}\''
KEYS = ["garbage", "[" * 20_000, '{"a": 1}', "5", "[1, 2]", "[[1]]", "[{}]", "[null]", "[NaN]", '[ "bad"]', "[true]"]
PARKED = [f"@n, '{key}', @z, 0, 0, 0, 'e', 0" for key in KEYS] + [
    "900, '[\"z\"]', @z, 0, 0, 0, 'e', 0",  # nobody has read it
    "-5, '[\"z\"]', @z, 0, 0, 0, 'e', 0",
    "@n, '[\"bad\"]', @z, 1e300, 2147483647, 0, 'e', 1e300",
    "@n, '[\"bad\"]', @z, -1e300, -9, -1e300, 'e', -1e300",
]
PARKED_POSTGRES = [
    "@n, '[\"y\"]', @z, 'NaN', 0, 'NaN', 'e', 'NaN'",
    "@n, '[\"q\"]', @z, 'infinity', 0, 'infinity', 'e', '-infinity'",
]
PARKED_SQLITE = [
    "@n, x'ff00', @z, 0, 0, 0, 'e', 0",
    "@n, CAST(x'ff' AS TEXT), @z, 0, 0, 0, 'e', 0",
    "@n, '[\"z\"]', 'text', 'x', 'y', 'z', x'ff', 'v'",
    "@n, '[\"z\"]', 5, x'ff', x'ff', x'ff', CAST(x'ff' AS TEXT), x'ff'",
    "'x', '[\"z\"]', @z, 0, 0, 0, 'e', 0",
    "@n, '[\"q\"]', @z, 9e999, 9223372036854775807, 9e999, 'e', 9e999",
]
PROPERTIES = ["garbage", "[" * 20_000, "[1]", "5", '{"a": 1, "b": null}', r'{"a": "\ud800"}']
OUTBOX = [f"@n, 0, '[\"z\"]', 'k', @z, '{text}', 0" for text in PROPERTIES]
OUTBOX_SQLITE = [
    "@n, 0, '[\"z\"]', 'k', @z, x'ff', 'x'",
    "@n, 0, '[\"z\"]', CAST(x'ff' AS TEXT), @z, '{}', 0",
]
_PLACE = "pipeline, entity_table, hub, partition, sequence_number"


@entity(keys=["account"])
def emitting(state: Any, event: EntityEvent) -> Any:
    if event.key.startswith("bad"):
        raise ValueError("no good")
    events = state["events"] + 1 if state else 1
    return Effects({"events": events}, [Emit(f"{event.key}-{events}", key=event.key)])


class Waiting:
    """A processor that keeps a table by the handler above, whose database somebody else writes to."""

    def __init__(self, folder: Path, url: str, run: Run) -> None:
        self.folder, self.url, self.run = folder, url, run
        LogHub.create(folder / "log.db", partitions=1).close()
        LogHub.create(folder / "out.db", partitions=1).close()

    def table(self) -> HandledTable:
        return HandledTable(
            emitting,
            self.url,
            table="accounts",
            pipeline="p",
            schema="account STRING",
            state=Writes("account STRING, events BIGINT", outbox=f"log:////{self.folder}/out.db"),
            failures=Failures(retries=Retries(deliveries=2, first=0.05, longest=0.1)),
        )

    def send(self, *accounts: str) -> None:
        with closing(LogHub(self.folder / "log.db")) as hub:
            hub.send([Event(json.dumps({"account": one}).encode(), partition_key=one) for one in accounts])

    def sent(self) -> int:
        with closing(LogHub(self.folder / "out.db")) as hub:
            return hub.partition_properties()["0"].end

    def spoil(self, table: str, columns: str, rows: list[str]) -> None:
        """Put rows into a table of the database, each under a number of its own where it names none."""
        [(pipeline, name, hub)] = self.run("SELECT pipeline, entity_table, hub FROM leasehold_watermark")
        body = f"CAST({Z} AS BLOB)" if self.url.startswith("sqlite") else f"convert_to({Z}, 'UTF8')"
        for number, row in enumerate(rows):
            values = row.replace("@n", str(number)).replace("@z", body)
            self.run(
                f"INSERT INTO {table} ({_PLACE}, {columns}) VALUES ('{pipeline}', '{name}', '{hub}', '0', {values})"
            )

    def goes_on(self, spoil: Callable[[], None]) -> None:
        """Run, `spoil` the database meanwhile, and see that all that is sent then is done."""
        table = self.table()
        processor = EventProcessor(
            f"log:////{self.folder}/log.db",
            f"sqlite:////{self.folder}/store.db",
            Handlers(table.on_events, on_partition_start=table.on_partition_start),
            table=table.sink,
            ownership=OFTEN,
            delivery=DeliverySettings(max_batch=50),
        )
        table.level_of = processor.recorded_owner_level
        self.send("bad-1", *["b"] * FILLED)
        with closing(table), processor:
            until(lambda: self.dead() == [0] and self.sent() == FILLED, "dead letters and what is emitted")
            spoil()
            self.send("a", "bad-2")
            until(lambda: ("a", 1) in self.run("SELECT account, events FROM accounts"), "an event that is applied")
            until(lambda: FILLED + 2 in self.dead() and self.sent() > FILLED, "dead letters and what is emitted")

    def dead(self) -> list[int]:
        return [number for (number,) in self.run("SELECT sequence_number FROM accounts_rejected ORDER BY 1")]


@pytest.fixture(params=["sqlite", "postgres"])
def waiting(request: pytest.FixtureRequest, tmp_path: Path) -> Waiting:
    if request.param == "postgres":
        there = request.getfixturevalue("place")

        def on_server(statement: str) -> list[Any]:
            try:
                cursor = there.connection.execute(statement.encode())
            except Exception as error:  # nothing has been made yet
                if "does not exist" in str(error):
                    return []
                raise
            return cursor.fetchall() if cursor.description else []

        return Waiting(tmp_path, there.url, on_server)

    def on_file(statement: str) -> list[Any]:
        with closing(sqlite3.connect(tmp_path / "table.db", timeout=30)) as connection, connection:
            try:
                return connection.execute(statement).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                raise

    return Waiting(tmp_path, f"sqlite:////{tmp_path}/table.db", on_file)


def test_parked_events_that_nobody_here_has_parked(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    more = PARKED_SQLITE if waiting.url.startswith("sqlite") else PARKED_POSTGRES
    columns = "key, body, enqueued_time, deliveries, next_at, error, parked_at"
    waiting.goes_on(lambda: waiting.spoil("leasehold_parked", columns, [*PARKED, *more]))
    said = [record.message for record in caplog.records if "is tried by nobody" in record.message]
    assert len(said) == len(set(said)) >= len(KEYS)
    with closing(open_sink(waiting.url, waiting.table().sink.spec)) as sink:
        parking = require(sink, STATES, "a test")
        left = parking.parked_rows(Selection(), 1_000)
        assert {("garbage",), ("[" * 119 + "…",), ("[null]",)} <= {row.event.key for row in left}
        counts = sink.set_aside_counts()
        assert counts.oldest_parked is not None
        assert counts.oldest_parked >= 0
        assert parking.drop_parked([row.id for row in left], "made up") == len(left)
        assert parking.parked_rows(Selection(), 1_000) == []


def test_events_of_the_outbox_that_no_handler_has_emitted(waiting: Waiting) -> None:
    rows = [*OUTBOX, *(OUTBOX_SQLITE if waiting.url.startswith("sqlite") else ())]
    columns = "place, entity, key, body, properties, emitted_at"
    waiting.goes_on(lambda: waiting.spoil("leasehold_outbox", columns, rows))
    refused = waiting.run("SELECT refused FROM leasehold_outbox")
    assert len(refused) == len(rows)
    assert all("no handler has emitted" in reason for (reason,) in refused)


def test_parked_messages_of_a_queue_that_nobody_here_has_parked(waiting: Waiting) -> None:
    with closing(open_sink(waiting.url, UPSERT)) as opened:
        sink = require(opened, STATES, "a test")
        sink.check_messages(STATE_COLUMNS)
        messages = sink.parked_messages
        wanted = {str(number): parked(number, str(number)) for number in range(len(KEYS) + 2)}
        for one in wanted.values():
            assert messages.park(one)
        for number, key in enumerate(KEYS):
            waiting.run(f"UPDATE leasehold_message_parked SET key = '{key}' WHERE sequence_number = {number}")
        nothing = "x'ff'" if waiting.url.startswith("sqlite") else "'NaN'"
        waiting.run(f"UPDATE leasehold_message_parked SET parked_at = {nothing} WHERE sequence_number = {len(KEYS)}")
        for _ in range(2):
            left = sorted(messages.due("shop/orders", 100))
            assert left == [(str(len(KEYS)),), (str(len(KEYS) + 1),)]
        assert messages.first("shop/orders", left[1], 9) == [wanted[left[1][0]]]
        [(count, oldest)] = messages.waiting().values()
        assert (count, oldest >= 0) == (len(wanted), True)


# Rows of the table itself, and what is known of its entities

STATE = "account STRING, day DATE, at TIMESTAMP, amount DECIMAL(10,2), note STRING, events BIGINT"


@entity(keys=["account"])
def dated(state: Any, event: EntityEvent) -> Any:
    known = {"day": date(2026, 1, 1), "at": datetime(2026, 1, 1, tzinfo=UTC), "amount": Decimal(1), "note": "n"}
    return {**known, "events": state["events"] + 1 if state else 1}


@pytest.mark.parametrize("spread", [False, True])
def test_a_row_that_is_no_state_is_told_and_the_others_go_on(waiting: Waiting, spread: bool) -> None:
    sqlite = waiting.url.startswith("sqlite")
    ways = (
        ["day = 'garbage'", "at = 'yesterday'", "amount = 'much'", "note = CAST(x'ff' AS TEXT)"]
        if sqlite
        else ["day = 'infinity'", "at = '-infinity'"]
    )
    accounts = [f"s{number}" for number in range(len(ways))]
    table = HandledTable(
        dated,
        waiting.url,
        table="accounts",
        pipeline="p",
        schema="account STRING, version BIGINT",
        state=STATE,
        spread=Spread("version") if spread else None,
        failures=Failures(retries=Retries(deliveries=2, first=0.05, longest=0.1)),
    )
    table.level_of = lambda hub, partition: 1
    context: Any = SimpleNamespace(start=0, call_again=lambda seconds: None)
    with closing(table):
        bodies = [{"account": one, "version": 1} for one in [*accounts, "a"]]
        table.on_events(given(1, 0, *bodies)[0], context)
        for account, way in zip(accounts, ways, strict=True):
            waiting.run(f"UPDATE accounts SET {way} WHERE account = '{account}'")
        again = [{"account": one, "version": 2} for one in [*accounts, "a", "b"]]
        table.on_events(given(1, len(bodies), *again)[0], context)
        counts = dict(waiting.run("SELECT account, events FROM accounts"))
        assert counts == {**dict.fromkeys(accounts, 1), "a": 2, "b": 1}

        def tried() -> bool:
            table.on_events(given(1, len(bodies) + len(again))[0], context)
            return len(waiting.dead()) == len(ways)

        until(tried, "tries that are made")
        for (reason,) in waiting.run("SELECT reason FROM accounts_rejected"):
            assert "the row of this entity cannot be read as the state" in reason
        waiting.run("DELETE FROM accounts WHERE account = 's0'")
        table.on_events(given(1, len(bodies) + len(again), {"account": "s0", "version": 3})[0], context)
        assert dict(waiting.run("SELECT account, events FROM accounts"))["s0"] == 1


def test_an_entity_whose_order_somebody_else_has_written_goes_on(waiting: Waiting) -> None:
    table = HandledTable(
        dated,
        waiting.url,
        table="accounts",
        pipeline="p",
        schema="account STRING, version BIGINT",
        state=STATE,
        spread=Spread("version"),
    )
    table.level_of = lambda hub, partition: 1
    context: Any = SimpleNamespace(start=0, call_again=lambda seconds: None)
    kept = ["garbage", "[" * 20_000, "[1]", "{}", "NaN", '"text"', "null", "true"]
    accounts = [f"s{number}" for number in range(len(kept))]
    with closing(table):
        table.on_events(given(1, 0, *({"account": one, "version": 1} for one in accounts))[0], context)
        for account, text in zip(accounts, kept, strict=True):
            waiting.run(f"UPDATE leasehold_entity SET latest = '{text}' WHERE key LIKE '%{account}%'")
        more = [{"account": one, "version": 2} for one in accounts]
        table.on_events(given(1, len(accounts), *more)[0], context)
    assert dict(waiting.run("SELECT account, events FROM accounts")) == dict.fromkeys(accounts, 2)
