"""Dead letters are parked again by a person: each takes effect once, or is rejected anew, as any parked event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.handlers import handled_table
from leasehold.handlers.contract import Reject
from leasehold.handlers.table import HandledTable, Retries
from leasehold.processors import handled_processor
from leasehold.sinks.base import Sink
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.parking import ParkedEvent
from leasehold.sinks.set_aside import EventId, ParkedAgain, RejectedRow, Selection
from tests.handlers import spread_bench
from tests.handlers.batches import overtaken_once
from tests.handlers.orders import FILE, MODULE, rows, send, totals
from tests.handlers.orders import place as folder
from tests.handlers.parking_bench import Bench, bench
from tests.waiting import until

__all__ = ["bench", "folder"]

spread = spread_bench.bench


def dead(sink: Sink) -> list[RejectedRow]:
    return sink.rejected_rows.rows(Selection(), 9)


def again(sink: Sink, found: list[RejectedRow]) -> ParkedAgain:
    """Park all of these again."""
    events = []
    for row in found:
        assert isinstance(row.body, bytes)
        key = (json.loads(row.body)["account"],)
        events.append((row, ParkedEvent(key, row.body, row.event.sequence_number, 5.0)))
    return sink.rejected_rows.park(events)


def failed(bench: Bench, **more: Any) -> HandledTable:
    """A table of which event 0 of `a` is a dead letter, and later ones of `a` and `b` have taken effect."""
    table = bench.table(retries=Retries(deliveries=1), **more)
    bench.fails["a@0"] = RuntimeError("broken")
    bench.give(table, 0, "a", "b", "a")
    assert bench.seen() == {"a": "2", "b": "1"}
    bench.fails.clear()
    return table


def test_a_dead_letter_takes_effect_once_and_is_no_dead_letter_any_more(bench: Bench) -> None:
    table = failed(bench)
    found = dead(table.sink)
    assert json.loads(found[0].source or "")["enqueuedTime"] is not None
    assert again(table.sink, found) == ParkedAgain(parked=1)
    assert dead(table.sink) == []
    assert again(table.sink, found) == ParkedAgain(gone=1)
    bench.give(table, 3)
    assert bench.seen() == {"a": "2,0", "b": "1"}
    assert bench.tries[-1] == ("a", 0, 1)
    assert bench.waiting() == []
    bench.give(table, 0, "a", "b", "a")
    assert bench.seen() == {"a": "2,0", "b": "1"}, "events that come again are passed by"


def test_what_fails_again_is_a_dead_letter_again(bench: Bench) -> None:
    table = failed(bench)
    bench.fails["a@0"] = Reject("no")
    assert again(table.sink, dead(table.sink)) == ParkedAgain(parked=1)
    bench.give(table, 3)
    assert [(row.event, row.reason) for row in dead(table.sink)] == [(EventId("h", "0", 0), "no")]
    assert bench.seen() == {"a": "2", "b": "1"}


def test_an_event_that_will_be_read_again_is_left_alone(bench: Bench) -> None:
    table = failed(bench)
    found = dead(table.sink)
    table.sink.set_watermarks("h", {"0": Watermark(-1, 1)})
    assert again(table.sink, found) == ParkedAgain(unread=1)
    assert bench.waiting() == []


def test_a_batch_at_hand_is_computed_again_and_its_entity_waits_behind(bench: Bench) -> None:
    table = failed(bench)
    overtaken_once(table, lambda: again(table.sink, dead(table.sink)))
    bench.give(table, 3, "a", "b")
    assert bench.seen() == {"a": "2,0,3", "b": "1,4"}
    assert bench.waiting() == []


@pytest.mark.more
def test_so_is_one_of_another_partition_of_a_spread_table(spread: Any) -> None:
    table = spread.table(retries=Retries(deliveries=1))
    spread.does[1] = lambda: 1 / 0
    spread.give(table, "0", ("a", 1))
    (found,) = dead(table.sink)
    spread.does.clear()
    overtaken_once(table, lambda: again(table.sink, [found]))
    spread.give(table, "1", ("a", 2))
    assert spread.look("SELECT count(*) FROM leasehold_parked") == [(2,)], "it waits behind the other partition's"
    spread.clock.advance(5.0)
    spread.give(table, "0")
    spread.clock.advance(5.0)
    spread.give(table, "1")
    assert spread.look("SELECT seen FROM accounts") == [("1,2",)]


@pytest.mark.parametrize("transformed", [False, True])
def test_the_command_parks_what_the_handler_can_be_given(
    folder: Path, transformed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "orders.toml"
    file.write_text(FILE + 'on_failure = "discard"\n')
    send(folder, ("a", 1), ("b", 13), ("c", None), ("a", 2))
    (folder / "some_orders.py").write_text(MODULE)
    table = handled_table(file)
    with handled_processor(file, table=table):
        until(
            lambda: totals(folder) == {"a": 3} and len(rows(folder, "SELECT 1 FROM orders_rejected")) == 2,
            "rejected rows",
        )
    table.close()
    if transformed:
        file.write_text(file.read_text().replace("[sink]", 'sql = "SELECT * FROM events"\n[sink]', 1))
    said = CliRunner().invoke(app, ["rejected", "retry", str(file), "--all", "--json"])
    assert said.exit_code == 0, said.output
    told = json.loads(said.stdout)
    if transformed:  # of what the handler has rejected nobody knows whether it was called
        assert (told["parked"], len(told["left"])) == (1, 1)
        return
    assert (told["parked"], told["left"]) == (2, [])
    (folder / "mended").touch()
    table = handled_table(file)
    with handled_processor(file, table=table):
        until(lambda: totals(folder) == {"a": 3, "b": 13}, "totals in the table")
        until(lambda: rows(folder, "SELECT reason FROM orders_rejected") == [("no amount",)], "rejected rows")
    table.close()
    assert rows(folder, "SELECT 1 FROM leasehold_parked") == []
