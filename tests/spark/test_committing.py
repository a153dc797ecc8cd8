"""What the driver's side of a handled table counts of what it commits; without a session of Spark."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from leasehold.handlers.contract import EntityEvent, Retry, entity
from leasehold.handlers.settings import Failures
from leasehold.handlers.table import Retries
from leasehold.runtime import Runtime
from leasehold.spark.handlers.committing import CommittingTable
from leasehold.spark.handlers.lanes import Lane
from leasehold.spark.handlers.tasks import EventOfPartition
from leasehold.testing.clock import ManualClock


@entity(keys=["account"])
def second_time(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    if event.row["late"] and event.delivery == 1:
        raise Retry("not yet")
    return {"events": 1 + (state["events"] if state else 0)}


def lane(first: int, *events: tuple[str, bool]) -> Lane:
    given = tuple(
        EventOfPartition(json.dumps({"account": account, "late": late}).encode(), number, 9.5)
        for number, (account, late) in enumerate(events, first)
    )
    return Lane("h", "0", 1, given, first, first + len(events), first)


def test_a_parked_event_that_is_tried_with_a_batch_makes_none_of_it_a_replay(tmp_path: Path) -> None:
    clock = ManualClock()
    table = CommittingTable(
        second_time,
        f"sqlite:////{tmp_path}/table.db",
        None,
        table="accounts",
        pipeline="p",
        schema="account STRING, late BOOLEAN",
        state="account STRING, events BIGINT",
        failures=Failures(retries=Retries(first=1.0, longest=1.0)),
        runtime=Runtime(clock=clock),
    )
    with closing(table):
        table.take(lane(0, ("a", True), ("b", False)))
        assert (table.result.applied, table.result.replayed) == (1, 0)
        clock.advance(60)
        table.take(lane(2, ("c", False), ("d", False)))
        assert (table.result.applied, table.result.replayed) == (4, 0)
        table.take(lane(2, ("c", False), ("d", False)))
        assert (table.result.applied, table.result.replayed) == (4, 2)
