"""Rows that a program gives a table as a batch of its query, and that are of other events than the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.errors import LeaseholdError, SchemaMismatch, StaleBatch
from leasehold.model import EventRange
from leasehold.sinks.rules.batch import Batch
from leasehold.spark import RowRules
from leasehold.spark.stream.query_batches import ReadByQuery, check_marks
from tests.spark.places import FENCE
from tests.spark.programs import Program

SCHEMA = "n INT, hub STRING, partition STRING, sequenceNumber BIGINT, ownerLevel BIGINT"


def beside(program: Program, *, first: bool) -> Callable[[DataFrame], DataFrame]:
    """The rows with one unioned in, of a partition that the batch has nothing of."""

    def changed(rows: DataFrame) -> DataFrame:
        stranger = rows.sparkSession.createDataFrame([(99, program.hub.identity, "7", 100, 1)], SCHEMA)
        return stranger.unionByName(rows) if first else rows.unionByName(stranger)

    return changed


@pytest.mark.more
def test_rows_of_other_events_than_the_batchs_are_refused_before_anything_is_written(program: Program) -> None:
    program.send(6, "0")
    table = program.table()
    rows = program.rows(program.events(table))
    slips: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
        "a row from elsewhere behind": (beside(program, first=False), "of partition '7'.*has read nothing"),
        "a row from elsewhere before": (beside(program, first=True), "of partition '7'.*has read nothing"),
        "another partition": (
            lambda rows: rows.withColumn("partition", F.lit("1")),
            r"of partition '1'.*events 0 to 5, at owner level 1.*\[0, 0\) at level",
        ),
        "another hub, without a mark": (lambda rows: rows.withColumn("hub", F.lit("mine")), "of hub 'mine'"),
        "other numbers": (
            lambda rows: rows.withColumn("sequenceNumber", F.expr("sequenceNumber + 1")),
            r"events 1 to 6.*\[0, 6\) at level 1",
        ),
        "another level": (lambda rows: rows.withColumn("ownerLevel", F.lit(9)), "at owner level 9"),
        "a rejected row of another partition": (
            lambda rows: rows.withColumn("partition", F.when(F.col("n") < 3, F.lit("0")).otherwise(F.lit("1"))),
            "of partition '1'",
        ),
    }
    rejecting = program.table(rules=RowRules(reject_by="CASE WHEN n >= 3 THEN 'large' END"))
    tried = []

    def apply(rows: DataFrame, batch: int) -> None:
        for name, (slip, words) in slips.items():
            with pytest.raises(LeaseholdError, match=words):
                (rejecting if "rejected" in name else table).apply_query_batch(slip(rows), batch)
            assert (name, table.row_count(), table.watermarks(program.hub.identity)) == (name, 0, {})
            tried.append(name)
        with pytest.raises(StaleBatch, match="of partition '7'"):
            table.unseen(beside(program, first=False)(rows), batch)
        table.apply_query_batch(rows, batch)

    program.start(rows, apply).awaitTermination()
    assert (tried, program.numbers()) == (list(slips), list(range(6)))


@pytest.mark.more
def test_a_function_over_whole_batches_of_arrow_takes_the_marks_off_and_is_checked_all_the_same(
    program: Program,
) -> None:
    program.send(6, "0")
    left, right = program.table("left_numbers"), program.table("right_numbers")
    rows = program.rows(program.events(left))

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    def into_right(rows: DataFrame, batch: int) -> None:
        right.apply_query_batch(rows.mapInArrow(same, SCHEMA), batch)

    def into_left(rows: DataFrame, batch: int) -> None:
        left.apply_query_batch(rows.mapInArrow(same, SCHEMA), batch)

    with pytest.raises(PySparkException, match="was not told that its rows go to the table right_numbers"):
        program.start(rows, into_right).awaitTermination()
    program.start(rows, into_left).awaitTermination()
    assert (program.numbers("left_numbers"), right.row_count()) == (list(range(6)), 0)


def test_what_a_query_has_read_of_other_sources_is_not_known() -> None:
    offset = '{"hub": "h", "ranges": {"0": [5, 9, 2], "1": [0, 0, 1]}}'
    read = ReadByQuery.of([offset, '{"topic": {"0": 3}}', "17", "not JSON"])
    assert read == ReadByQuery((EventRange("h", "0", 2, 5, 9), EventRange("h", "1", 1, 0, 0)), False)
    assert ReadByQuery.of(["17"]) is ReadByQuery.of([]) is None

    def rows(hub: str, partition: str, *numbers: int) -> Batch:
        columns = {"hub": hub, "partition": partition, "ownerLevel": 2}
        return Batch(pa.Table.from_pylist([{**columns, "sequenceNumber": n} for n in numbers]))

    read.check("t", rows("h", "0", 8, 5))
    read.check("t", rows("other", "0", 4))
    for strangers in (rows("h", "0", 4, 5), rows("h", "0", 8, 9), rows("h", "1", 0), rows("h", "2", 6)):
        with pytest.raises(StaleBatch, match="other events than this batch of the query"):
            read.check("t", strangers)
    alone = ReadByQuery.of([offset])
    assert alone is not None
    with pytest.raises(StaleBatch):
        alone.check("t", rows("other", "0", 4))


def test_where_nobody_can_be_asked_the_marks_tell_which_columns_are_the_sources_own(program: Program) -> None:
    events = program.events(program.table()).select(*FENCE)
    check_marks("t", events.schema)
    check_marks("t", program.spark.createDataFrame([], SCHEMA).schema)
    for name in FENCE:
        with pytest.raises(SchemaMismatch, match=f"not those of the source: {name}"):
            check_marks("t", events.withColumn(name, F.lit("1")).schema)
