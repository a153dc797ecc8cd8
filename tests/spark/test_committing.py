"""What the driver's side of a handled table counts of what it commits; without a session of Spark."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from leasehold.handlers.contract import EntityEvent, Retry, entity
from leasehold.handlers.settings import Failures
from leasehold.handlers.table import Retries
from leasehold.runtime import Runtime
from leasehold.sinks.features import BOOKKEEPING, require
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.spark.handlers.committing import CommittingTable
from leasehold.spark.handlers.lanes import RangeEvents
from leasehold.spark.handlers.tasks import EventOfPartition, answers
from leasehold_testkit.clock import ManualClock


@entity(keys=["account"])
def second_time(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    if event.row["late"] and event.delivery == 1:
        raise Retry("not yet")
    return {"events": 1 + (state["events"] if state else 0)}


def lane(first: int, *events: tuple[str, bool]) -> RangeEvents:
    given = tuple(
        EventOfPartition(json.dumps({"account": account, "late": late}).encode(), number, 9.5)
        for number, (account, late) in enumerate(events, first)
    )
    return RangeEvents("h", "0", 1, given, first, first + len(events), first)


def table_in(folder: Path, **more: Any) -> CommittingTable:
    """The table of `second_time`."""
    return CommittingTable(
        second_time,
        f"sqlite:////{folder}/table.db",
        None,
        table="accounts",
        pipeline="p",
        schema="account STRING, late BOOLEAN",
        state="account STRING, events BIGINT",
        **more,
    )


def note(table: CommittingTable, number: int) -> None:
    """As another process does it."""
    skips = require(table.sink, BOOKKEEPING, "a test")
    assert skips.note_skip(SkipNote("h", "0", number, b"{}", "{}", "it breaks", "ada@tower")).passed is None


def test_what_tasks_have_computed_before_an_event_was_noted_to_be_skipped_is_computed_again(tmp_path: Path) -> None:
    """So it is with any other change beside a batch, which moves no watermark: the count of changes tells."""
    with closing(table_in(tmp_path)) as table:
        batch = lane(0, ("a", False), ("a", False), ("a", False))
        first = table.piece(batch)
        assert first is not None
        note(table, 1)
        mark, piece = first
        done = answers(table.call(), piece).done
        assert len(piece.events) == 3
        table.ahead = {"0": (mark, done)}
        table.take(batch)
        assert (table.result.used, table.result.skipped, table.result.read) == (2, 1, 3)
        later = table.piece(lane(0, ("a", False)))
        assert later is None
        with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
            assert connection.execute("SELECT account, events FROM accounts").fetchall() == [("a", 2)]
            assert connection.execute("SELECT sequence_number FROM accounts_rejected").fetchall() == [(1,)]


def test_tasks_are_given_no_event_that_is_noted_to_be_skipped(tmp_path: Path) -> None:
    with closing(table_in(tmp_path)) as table:
        note(table, 1)
        found = table.piece(lane(0, ("a", False), ("a", False), ("a", False)))
        assert found is not None
        assert [event.sequence_number for event in found[1].events] == [0, 2]


def test_a_parked_event_that_is_tried_with_a_batch_makes_none_of_it_a_replay(tmp_path: Path) -> None:
    clock = ManualClock()
    retries = Failures(retries=Retries(first=1.0, longest=1.0))
    with closing(table_in(tmp_path, failures=retries, runtime=Runtime(clock=clock))) as table:
        table.take(lane(0, ("a", True), ("b", False)))
        assert table.result == BatchResult(used=1, applied=1, parked=1)
        clock.advance(60)
        table.take(lane(2, ("c", False), ("d", False)))
        assert table.result == BatchResult(used=3, applied=3, parked=1, retried=1)
        table.take(lane(2, ("c", False), ("d", False)))
        assert table.result == BatchResult(used=3, applied=3, parked=1, retried=1, replayed=2)
