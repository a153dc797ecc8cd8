"""A partition's events, divided among tasks by entity: how many tasks, and that the outcome is the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from leasehold.body_format import BodyFormat
from leasehold.formats.bodies import BodyReader
from leasehold.formats.columns_text import read_columns
from leasehold.handlers.columns import columns_of
from leasehold.handlers.contract import CallRules, Computed, Delete, EntityEvent, Reject, compute, entity, joined
from leasehold.handlers.given import RejectedInput, given_events
from leasehold.spark.handlers import shares
from leasehold.spark.handlers.shares import LEAST, divided, shares_of
from leasehold.spark.handlers.tasks import EventOfPartition, TaskPiece
from tests.formats.debezium_events import envelope
from tests.handlers.orders import totals
from tests.spark.handled_runs import batch, both, folder, opened

__all__ = ["folder"]

SCHEMA = read_columns("id DOUBLE, do STRING", "schema")
COLUMNS = columns_of(pa.schema({"id": pa.float64(), "seen": pa.int64()}))


@pytest.mark.parametrize(
    ("events", "seconds", "cores", "tasks"),
    [
        ([1000, 1000], 0.0, 16, [1, 1]),
        ([1000, 1000], LEAST / 2000, 16, [1, 1]),
        ([1000, 1000], LEAST / 250, 16, [4, 4]),
        ([1000, 1000], 1.0, 16, [8, 8]),
        ([3000, 1000], 1.0, 16, [12, 4]),
        ([1000, 1], 1.0, 16, [15, 1]),
        ([1000] * 20, 1.0, 16, [1] * 20),
        ([1], 3600.0, 16, [1]),
    ],
)
def test_so_many_tasks_as_there_is_work_for(events: list[int], seconds: float, cores: int, tasks: list[int]) -> None:
    assert shares_of(events, seconds, cores) == tasks


@entity(keys=["id"])
def counting(state: Any, event: EntityEvent) -> Any:
    match event.row["do"]:
        case "reject":
            raise Reject("no")
        case "raise":
            raise ConnectionError("away")
        case "delete":
            return Delete()
    return {"seen": (state["seen"] if state else 0) + event.sequence_number}


BODIES = st.one_of(
    st.builds(
        lambda key, do: json.dumps({"id": key, "do": do}).encode(),
        st.sampled_from([0.0, -0.0, 1.5, 2.0, 1e300, None]),
        st.sampled_from(["count", "count", "reject", "raise", "delete"]),
    ),
    st.just(b"no JSON"),
)


def answer(piece: TaskPiece) -> Computed:
    reader = BodyReader(SCHEMA)
    events, _ = given_events(reader, counting, piece, piece.events, [1] * len(piece.events))
    rules = CallRules(goes_on=True, deliveries=3, by_steps=True)
    return compute(counting, {}, events, COLUMNS, rules=rules, waiting=piece.waiting)


def shown(done: Computed) -> list[Any]:
    return [
        done.changes,
        done.calls,
        done.rejected,
        [(one.key, one.event, str(one.error)) for one in done.held],
        [(event, str(error)) for event, error in done.dead],
        done.steps,
    ]


@given(bodies=st.lists(BODIES, min_size=1, max_size=40), shares=st.integers(1, 8), aside=st.sets(st.integers(0, 39)))
def test_what_parts_come_to_is_what_the_whole_comes_to(bodies: list[bytes], shares: int, aside: set[int]) -> None:
    events = tuple(
        RejectedInput(body, number, 0.0, "before") if number in aside else EventOfPartition(body, number, 0.0)
        for number, body in enumerate(bodies)
    )
    piece = TaskPiece("h", "0", 1, events, frozenset({(2.0,)}))
    parts = divided(piece, BodyReader(SCHEMA).only(["id"]), shares)
    assert len(parts) <= shares
    assert sorted(one.sequence_number for part in parts for one in part.events) == [*range(len(bodies))]
    assert shown(joined([answer(part) for part in parts])) == shown(answer(piece))


def test_a_delete_and_its_tombstone_make_no_entity_of_their_own() -> None:
    there = [json.dumps(envelope("c", after={"id": number})).encode() for number in range(64)]
    gone = [json.dumps(envelope("d", before={"id": number})).encode() for number in range(64)]
    events = tuple(EventOfPartition(body, n, 0.0) for n, body in enumerate([*there, *gone, None]))  # type: ignore[arg-type]
    reader = BodyReader(pa.schema([("word", pa.string()), ("id", pa.int64())]), BodyFormat(format="debezium"))
    parts = divided(TaskPiece("h", "0", 1, events, frozenset()), reader.only(["id"]), 4)
    numbers = [{one.sequence_number for one in part.events} for part in parts]
    assert sorted(n for part in numbers for n in part) == [*range(129)]
    assert all((n in part) == (n + 64 in part) for part in numbers for n in range(64))


@pytest.mark.more
def test_a_handler_with_work_for_them_has_all_cores_for_one_partition(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch shows what an event takes. In the second, no task ends before two are at work.

    64 entities, because a process gives each to a task by a hash of its own: with eight, all went to one task in one
    process of 128, and that task waited for a second one that never came.
    """
    monkeypatch.setattr(shares, "LEAST", 1e-9)
    [module] = folder.glob("orders_of_*.py")
    module.write_text(
        f"""
import os
from pathlib import Path
from leasehold.handlers import entity
from tests.waiting import until

FOLDER = Path({str(folder)!r})

@entity(keys=["order_id"])
def order(state, event):
    (FOLDER / f"by-{{os.getpid()}}").touch()
    if (FOLDER / "both").exists():
        until(lambda: len([*FOLDER.glob("by-*")]) >= 2, "a second task")
    return {{"total": event.row["amount"] + (state["total"] if state else 0)}}
"""
    )

    def workers() -> int:
        found = [*folder.glob("by-*")]
        for one in found:
            one.unlink()
        return len(found)

    table = opened(folder / "orders.toml", spark)
    keys = [f"k{number}" for number in range(64)]
    table.write(batch("0", 0, *((key, 1) for key in keys)))
    assert workers() == 1
    (folder / "both").touch()
    table.write(batch("0", 64, *((key, 1) for key in keys)))
    assert workers() == spark.sparkContext.defaultParallelism == 2
    (folder / "both").unlink()
    table.write(both(batch("0", 128, ("k0", 1), ("k1", 1)), batch("1", 0, ("z", 2))))
    table.close()
    assert totals(folder) == {**dict.fromkeys(keys, 2), "k0": 3, "k1": 3, "z": 2}
