"""A handler in the plain processor: with processes that are killed and paused, each event counts once and in order."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leasehold import Event
from leasehold.errors import ConfigError, KeyFromTwoPartitions, OwnerLevelWentBack, SchemaMismatch
from leasehold.handlers import Failures, Writes
from leasehold.handlers.contract import Delete, EntityEvent, HandlerFailed, entity
from leasehold.handlers.table import HandledTable
from leasehold.hubs.log import LogHub
from leasehold.sinks import Batch
from leasehold.sinks.features import BOOKKEEPING, require
from leasehold.sinks.set_aside import EventId
from leasehold_testkit.contracts.sinks.fixtures import retried
from tests.handlers.batches import body, given, overtaken_once, rows
from tests.handlers.handler_program import processor, table
from tests.handlers.processes import Processes
from tests.waiting import until

ACCOUNTS, EACH = 40, 25


def send(folder: Path) -> None:
    hub = LogHub.create(folder / "log.db", partitions=4)
    bodies = [{"account": f"a{n}", "amount": n, "place": place} for place in range(EACH) for n in range(ACCOUNTS)]
    hub.send(Event(json.dumps(body).encode(), partition_key=body["account"]) for body in bodies)  # type: ignore[arg-type]
    hub.send([Event(b'{"account": "a1"}', partition_key="a1"), Event(b"{", partition_key="a1")])
    hub.close()


def complete(folder: Path) -> bool:
    events = sum(row[1] for row in rows(folder))
    return events == ACCOUNTS * EACH and len(rows(folder, "SELECT 1 FROM accounts_rejected")) == 2


def check(folder: Path) -> None:
    assert rows(folder) == sorted((f"a{n}", EACH, n * EACH) for n in range(ACCOUNTS))
    assert sorted(reason for (reason,) in rows(folder, "SELECT reason FROM accounts_rejected"))[0] == "no amount"


def test_a_processor_keeps_the_table(tmp_path: Path) -> None:
    send(tmp_path)
    with processor(tmp_path, "one"):
        until(lambda: complete(tmp_path), "the whole table")
    check(tmp_path)


@pytest.mark.more
def test_a_process_that_is_killed(tmp_path: Path) -> None:
    send(tmp_path)
    with ExitStack() as stack:
        processes = Processes(stack, tmp_path)
        first = processes.start("one")
        until(lambda: processes.applied() > 100, "events that are applied")
        first.kill()
        processes.start("one")  # takes the partitions of its predecessor at once
        until(lambda: complete(tmp_path), "the whole table")
    check(tmp_path)


@pytest.mark.soak  # the partitions of a process that is paused expire first
def test_a_process_that_is_paused_past_its_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTITION_EXPIRATION", "12")
    send(tmp_path)
    with ExitStack() as stack:
        processes = Processes(stack, tmp_path)
        paused = processes.start("first")
        until(lambda: processes.applied() > 100, "events that are applied")
        processes.pause(paused)
        processes.start("second")
        until(lambda: complete(tmp_path), "the whole table")
        os.kill(paused.pid, signal.SIGCONT)
    check(tmp_path)


# One table, batches by hand


def test_the_watermark_says_when_its_event_was_enqueued(tmp_path: Path) -> None:
    accounts = table(tmp_path)
    accounts.on_events(*given(1, 0, body(0), body(1)))
    assert accounts.sink.watermarks("h")["0"].enqueued_time == 9.5


def test_events_that_come_again_are_passed_by(tmp_path: Path) -> None:
    accounts = table(tmp_path)
    accounts.on_events(*given(1, 0, body(0), body(1)))
    accounts.on_events(*given(1, 0, body(0), body(1), body(2)))
    table(tmp_path).on_events(*given(2, 1, body(1), body(2), body(3), start=1))
    assert rows(tmp_path) == [("a", 4, 4)]
    assert rows(tmp_path, "SELECT 1 FROM accounts_rejected") == []


def test_a_former_owner_commits_nothing_once_the_next_one_has_begun(tmp_path: Path) -> None:
    former, later = table(tmp_path), table(tmp_path)
    former.level_of = later.level_of = lambda hub, partition: 2
    former.on_events(*given(1, 0, body(0)))

    computed = former._compute

    def overtaken(batch: Any, mark: Any, again: int) -> Any:
        done = computed(batch, mark, again)
        later.on_events(*given(2, 1, body(1, amount=10), start=1))  # between its computation and its commit
        return done

    former._compute = overtaken  # type: ignore[method-assign]
    former.on_events(*given(1, 1, body(1, amount=10), body(2, amount=100)))
    assert rows(tmp_path) == [("a", 2, 11)]
    former._compute = computed  # type: ignore[method-assign]
    former._known.clear()
    former.on_events(*given(1, 1, body(1), body(2)))
    assert rows(tmp_path) == [("a", 2, 11)]


def test_a_rejected_event_that_is_tried_again_meanwhile_is_built_upon(tmp_path: Path) -> None:
    accounts, beside = table(tmp_path), table(tmp_path)
    accounts.on_events(*given(1, 0, body(1, "a")))  # rejected: place 0 is missing
    row = {"account": ["a"], "events": [1], "total": [500]}
    fence = {"hub": ["h"], "partition": ["0"], "sequenceNumber": [0], "ownerLevel": [1]}
    mended = Batch(pa.table(row | fence), delete=pa.array([False]))

    def retry() -> None:
        assert retried(beside.sink, mended, [EventId("h", "0", 0)]).applied == 1

    overtaken_once(accounts, retry)
    accounts.on_events(*given(1, 1, body(1, "a"), body(0, "b"), start=0))
    assert rows(tmp_path) == [("a", 2, 501), ("b", 1, 1)]


def test_an_entity_that_is_forgotten_meanwhile_begins_anew(tmp_path: Path) -> None:
    accounts, beside = table(tmp_path), table(tmp_path)
    accounts.on_events(*given(1, 0, body(0)))

    def forget() -> None:
        with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
            connection.execute("DELETE FROM accounts")
            connection.commit()
        require(beside.sink, BOOKKEEPING, "a test").forget_entity({"account": "a"})

    overtaken_once(accounts, forget)
    accounts.on_events(*given(1, 1, body(0, "a", 7), start=0))
    assert rows(tmp_path) == [("a", 1, 7)]
    assert rows(tmp_path, "SELECT 1 FROM accounts_rejected") == []


def test_levels_that_went_back_are_told(tmp_path: Path) -> None:
    accounts = table(tmp_path)
    accounts.level_of = lambda hub, partition: 1
    accounts.on_events(*given(5, 0, body(0)))
    with pytest.raises(OwnerLevelWentBack):
        accounts.on_events(*given(1, 1, body(1)))


def test_a_failure_keeps_what_came_before_and_counts_its_tries(tmp_path: Path) -> None:
    tries: list[tuple[int, int]] = []

    @entity(keys=["account"])
    def failing(state: Any, event: EntityEvent) -> Any:
        tries.append((event.sequence_number, event.delivery))
        if event.row["amount"] == 13 and event.delivery < 3:
            raise RuntimeError("unlucky")
        return Delete() if event.row["amount"] == 0 else {"total": (state["total"] if state else 0) + 1}

    accounts = HandledTable(
        failing,
        f"sqlite:////{tmp_path}/table.db",
        table="accounts",
        pipeline="p",
        schema="account STRING, amount BIGINT",
        state="account STRING, total BIGINT",
        failures=Failures(on_failure="wait"),
    )
    batch = given(1, 0, body(0), body(1, "b"), body(0, "a", 13), body(0, "b", 0))
    for _ in range(2):
        with pytest.raises(HandlerFailed, match=r"raised for event h/0/2 of 'a', try .: RuntimeError: unlucky"):
            accounts.on_events(*batch)
    assert rows(tmp_path, "SELECT * FROM accounts ORDER BY 1") == [("a", 1), ("b", 1)]
    accounts.on_events(*batch)
    assert rows(tmp_path, "SELECT * FROM accounts") == [("a", 2)]
    assert tries == [(0, 1), (1, 1), (2, 1), (2, 2), (2, 3), (3, 1)]


def test_a_state_gets_a_column_more(tmp_path: Path) -> None:
    seen: list[Any] = []

    def opened(state: str, evolution: str | None = None) -> HandledTable:
        @entity(keys=["account"])
        def counting(state: Any, event: EntityEvent) -> Any:
            seen.append(state)
            return dict.fromkeys(columns, event.row["amount"])

        columns = [part.split()[0] for part in state.split(", ")][1:]
        return HandledTable(
            counting,
            f"sqlite:////{tmp_path}/table.db",
            table="accounts",
            pipeline="p",
            schema="account STRING, amount BIGINT",
            state=Writes(state, schema_evolution=evolution),
        )

    opened("account STRING, total BIGINT").on_events(*given(1, 0, body(0, "a", 3)))
    with pytest.raises(SchemaMismatch, match="last: is not in the table"):
        opened("account STRING, total BIGINT, last BIGINT")
    opened("account STRING, total BIGINT, last BIGINT", "add").on_events(*given(1, 1, body(1, "a", 4)))
    assert seen == [None, {"account": "a", "total": 3, "last": None}]
    assert rows(tmp_path, "SELECT * FROM accounts") == [("a", 4, 4)]


def test_an_entity_in_two_partitions_is_refused(tmp_path: Path) -> None:
    accounts = table(tmp_path)
    accounts.on_events(*given(1, 0, body(0)))
    with pytest.raises(KeyFromTwoPartitions):
        accounts.on_events(*given(1, 0, body(1), partition="1"))
    assert rows(tmp_path) == [("a", 1, 1)]


@pytest.mark.parametrize(
    ("schema", "state", "said"),
    [
        ("amount INT", "account STRING", "the key account is not in it"),
        ("account STRING", "total INT", "the key account is not in it"),
        ("account BIGINT", "account STRING", "a key is"),
        ("account DOUBLE", "account DOUBLE", "a key is"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, schema: str, state: str, said: str) -> None:
    handler = entity(keys=["account"])(lambda state, event: state)
    url = f"sqlite:////{tmp_path}/t.db"
    with pytest.raises(ConfigError, match=said):
        HandledTable(handler, url, table="t", pipeline="p", schema=schema, state=state)
