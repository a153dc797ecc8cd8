"""The rejected rows of an event: once however often it is read, those of its latest reading, with all it was given."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import SchemaMismatch
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult
from tests.sinks.events import E, batch, lacking_chunks, look, sink
from tests.sinks.ranges import of, read
from tests.sinks.streams import Log, campaign, cut, fresh, logs, split

WHICH = "SELECT partition, sequence_number, place, reason, body FROM flights_rejected ORDER BY 1, 2, 3"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


def test_a_place_counts_the_rows_of_the_event(path: Path) -> None:
    rows = [
        E("a", number=1),
        E("b", "bad", number=1),
        E("c", number=1),
        E("d", "bad", number=1),
        E("e", "bad", number=2),
    ]
    unparsed = [E("?", number=1), E("?", number=0, partition="1"), E("?", number=0, partition="1")]
    sink(path, made=True).apply(batch(rows, rejected=unparsed))
    assert [row[:3] for row in look(path, WHICH)] == [
        ("0", 1, 1),
        ("0", 1, 3),
        ("0", 1, 4),
        ("0", 2, 0),
        ("1", 0, 0),
        ("1", 0, 1),
    ]


@pytest.mark.more
@campaign(20, 1000)
@given(
    log=logs(), first=st.sets(st.integers(0, 8)), second=st.sets(st.integers(0, 8)), back=st.integers(BEFORE_FIRST, 8)
)
def test_what_is_read_again_after_a_reset_is_there_once(log: Log, first: set[int], second: set[int], back: int) -> None:
    """Cut otherwise the second time; rows of a key that is taken may be others, so slots are left out.

    Where the memory of keys stays, a row that broke a constraint may be superseded when it is read again.
    """
    which = WHICH
    if back > BEFORE_FIRST:
        which = WHICH.replace("ORDER", "WHERE reason NOT LIKE '%constraint failed%' ORDER")
    with fresh() as (path, table):

        def fill(cuts: set[int], level: int) -> None:
            for events in log.values():
                for some in cut(events, cuts):
                    rows = [(e._replace(level=level, slot=None), parsed) for e, parsed in some]
                    good, bad = split(rows)
                    table.apply(batch(good, by_version=True, deletes=True, rejected=bad))

        fill(first, 1)
        before = look(path, which)
        table.set_watermarks("h", {partition: Watermark(back, 2) for partition in log}, anew=back == BEFORE_FIRST)
        fill(second, 2)
        assert look(path, which) == before


def test_the_rejected_rows_of_an_event_are_those_of_its_latest_reading(path: Path) -> None:
    """The transform has been mended: event 3 fits now, event 5 is filtered, event 6 is worse."""
    table = sink(path)
    unparsed = [E("?", number=number) for number in (1, 3, 5, 6)]
    table.apply(of([read(0, 10)], [], unparsed))
    table.set_watermarks("h", {"0": Watermark(1, 2, whole=True)})
    again = of([read(2, 8, 2)], [E("c", number=3, level=2)], [E("?", number=6, level=2)] * 2)
    assert table.apply(again) == BatchResult(applied=1, rejected=2, used=2, filtered=4)
    assert [row[1:3] for row in look(path, WHICH)] == [(1, 0), (6, 0), (6, 1)]


def test_a_former_owners_and_a_replayed_batch_change_nothing(path: Path) -> None:
    table = sink(path)
    some = of([read(0, 10, 2)], [], [E("?", number=3, level=2)])
    table.apply(some)
    before = look(path, "SELECT * FROM flights_rejected")
    table.apply(some)
    table.apply(of([read(0, 20, 1)], []))
    assert look(path, "SELECT * FROM flights_rejected") == before


def test_what_an_event_was_given_with_is_kept(path: Path) -> None:
    it = batch([E("a")], rejected=[E("?", number=1), E("?", number=2)])
    assert it.rejected is not None
    enqueued = pa.array([datetime(2026, 1, 31, 8, tzinfo=UTC), None], pa.timestamp("us", "UTC"))
    properties = pa.array([[("kind", "x"), ("n", None)], []], pa.map_(pa.string(), pa.string()))
    wider = it.rejected
    for name, column in (
        ("offset", pa.array(["17", "18"])),
        ("enqueuedTime", enqueued),
        ("partitionKey", pa.array([None, "k"])),
        ("properties", properties),
        ("raw", pa.array([b"\xff", b""])),
    ):
        wider = wider.append_column(name, column)
    sink(path).apply(replace(it, rejected=wider))
    first, second = (json.loads(source) for (source,) in look(path, "SELECT source FROM flights_rejected"))
    assert first == {
        "offset": "17",
        "enqueuedTime": "2026-01-31T08:00:00.000000Z",
        "partitionKey": None,
        "properties": {"kind": "x", "n": None},
        "raw": "/w==",
    }
    assert second["enqueuedTime"] is None
    with pytest.raises(SchemaMismatch, match="rejected events: took is of type duration"):
        sink(path).apply(replace(it, rejected=wider.append_column("took", pa.array([1, 2], pa.duration("us")))))


def test_a_row_that_could_be_read_has_no_source(path: Path) -> None:
    sink(path, made=True).apply(batch([E("a", "bad")], rejected=[E("?", number=1)]))
    assert look(path, "SELECT body, source FROM flights_rejected ORDER BY sequence_number") == [
        ('{"tail":"a","status":"bad","slot":null}', None),
        (b"?", "{}"),
    ]


@pytest.mark.parametrize("by_version", [False, True])
def test_rows_are_rejected_where_columns_have_no_chunks(path: Path, *, by_version: bool) -> None:
    table = sink(path, made=True, sequence_by="version" if by_version else None)
    for each in lacking_chunks(by_version=by_version):
        table.apply(each)
    assert [row[1] for row in look(path, WHICH)] == [0, 1, 2, 3]
    assert look(path, "SELECT tail FROM flights") == [("c",)]
