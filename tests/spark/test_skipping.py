"""Events that a person has noted to be skipped, in programs of `MicroBatches`: who is given them, and who is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.errors import UsageError
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.features import BOOKKEEPING, require
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.spark import MicroBatch
from tests.spark.places import Place, each, plain

REJECTED = "SELECT partition, sequence_number, reason FROM events_rejected ORDER BY 1"
REASON = "skipped by ada@tower: it cannot be computed"


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def note(place: Place, partition: str, number: int, table: str = "events") -> None:
    """As another process does it, of the table that `Place.table` gives."""
    sink = open_sink(f"sqlite:///{place.folder}/table.db", TableSpec(name=table, pipeline="p", mode="append"))
    told = SkipNote(place.hub.identity, partition, number, b"{}", "{}", "it cannot be computed", "ada@tower")
    assert require(sink, BOOKKEEPING, "a test").note_skip(told).passed is None
    sink.close()


def never(events: DataFrame, n: int) -> DataFrame:
    """The rows of `Place.table`, of which Spark cannot compute the one with this `n`."""
    error = "CAST(raise_error('never that') AS BIGINT)"
    return plain(events).withColumn("n", F.expr(f"IF(n = {n}, {error}, n)"))


def test_a_loop_that_knows_its_table_gives_it_to_no_transform(place: Place) -> None:
    place.send(4)
    table = place.table()
    counted: list[int] = []

    def body(batch: MicroBatch) -> None:
        counted.append(batch.events.count())
        table.apply(never(batch.events, 1), batch)

    with pytest.raises(Exception, match="never that"):
        each(place.batches(table=table), body)
    note(place, "0", 1)
    counted.clear()
    each(place.batches(table=table), body)
    assert sum(counted) == 7
    assert place.rows() == [(n,) for n in range(8) if n != 1]
    assert place.rows(REJECTED) == [("0", 1, REASON)]
    assert place.checkpoints() == {"0": 4, "1": 4}


def test_in_any_other_loop_the_table_leaves_it_out(place: Place) -> None:
    place.send(4)
    table = place.table()
    note(place, "1", 2)
    results = []
    each(place.batches(), lambda batch: results.append(table.apply(plain(batch.events), batch)))
    assert sum(result.applied for result in results) == 7
    assert [said for result in results for said in result.skipped_events] == [
        f"event 2 of partition 1 was left out and set aside: {REASON}"
    ]
    assert place.rows() == [(n,) for n in range(8) if n != 6]
    assert place.rows(REJECTED) == [("1", 2, REASON)]


def test_a_second_table_is_not_without_an_event_that_only_the_first_is_to_skip(place: Place) -> None:
    place.send(4, "0")
    tables = [place.table(), place.table(table="others")]
    note(place, "0", 1)

    def body(batch: MicroBatch) -> None:
        for table in reversed(tables):
            table.apply(plain(batch.events), batch)

    with pytest.raises(UsageError, match=r"event 1 of partition 0 was left out .* for the table others"):
        each(place.batches(table=tables[0]), body)
    assert tables[1].watermarks(place.hub.identity) == {}
    note(place, "0", 1, "others")
    each(place.batches(table=tables[0]), body)
    for name in ("events", "others"):
        assert place.rows(f"SELECT n FROM {name} ORDER BY n") == [(0,), (2,), (3,)]
        assert place.rows(REJECTED.replace("events", name)) == [("0", 1, REASON)]
