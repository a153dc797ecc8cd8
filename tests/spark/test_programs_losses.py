"""What programs on `format("leasehold")` must not lose: events read twice, or in a log that was made anew meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.spark import EntityTable, Writing
from tests.spark.places import FENCE
from tests.spark.programs import FAST, Program
from tests.waiting import until


def lose_blocks(spark: SparkSession) -> None:
    """Take all that is persisted from Spark's memory, as the loss of an executor does."""
    context: Any = spark.sparkContext
    for persisted in context._jsc.getPersistentRDDs().values():
        persisted.unpersist(True)


@pytest.mark.more
def test_a_partition_stolen_between_two_tables_that_lost_persisted_rows(spark: SparkSession, tmp_path: Path) -> None:
    """The second table gets what a second reader of the partition is given, and the rest at its next owner's."""
    pytest.importorskip("azure.eventhub")
    from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
    from tests.spark.thieves import Thief

    with EventHubsServer({"eh": MemoryHub(1)}) as server:
        url = f"eventhubs://127.0.0.1:{server.port}/eh?connection_string={quote(server.connection_string(), safe='')}"
        thief = Thief(url, tmp_path / "stores.db")
        thief.hub.send([Event(b"%d" % n) for n in range(600)], partition="0")
        writing = Writing(keep=("sequenceNumber",))
        even, odd = (
            EntityTable(f"sqlite:///{tmp_path}/t.db", name, mode="append", pipeline="p", writing=writing)
            for name in ("even", "odd")
        )
        stolen: list[int] = []

        def apply(rows: DataFrame, batch: int) -> None:
            rows = rows.persist()
            even.apply_query_batch(rows.where("sequenceNumber % 2 = 0"), batch)
            if not stolen:
                lose_blocks(spark)
                thief.steal()
                stolen.append(thief.steals)
            odd.apply_query_batch(rows.where("sequenceNumber % 2 = 1"), batch)
            rows.unpersist()

        options = {"hub": url, "store": f"sqlite:///{tmp_path}/stores.db", **FAST, **even.stream_options(odd)}
        events = spark.readStream.format("leasehold").options(**options).load()
        writer = events.select(*FENCE).writeStream.foreachBatch(apply)
        query = writer.option("checkpointLocation", str(tmp_path / "scratch")).start()
        try:
            until(lambda: query.exception() or even.row_count() + odd.row_count() >= 600, "all events")
            assert query.exception() is None
        finally:
            query.stop()
        thief.hub.close()
        assert stolen == [1]
        assert (even.row_count(), odd.row_count()) == (300, 300)
        even.close()
        odd.close()


@pytest.mark.more
def test_rejected_events_that_would_be_read_by_themselves_are_refused(program: Program) -> None:
    program.send(10, "0")
    table = program.table()
    events = program.events(table)

    def apply(rows: DataFrame, batch: int) -> None:
        rows = rows.persist()
        bad = rows.where("n > 5").select(*FENCE, F.lit(b"").alias("body"), F.lit("above").alias("reason"))
        table.apply_batch(rows.where("n <= 5"), bad)

    with pytest.raises(PySparkException, match=r"rejected events for the table numbers would be read by themselves"):
        program.start(program.rows(events), apply).awaitTermination()
    assert table.row_count() == 0


@pytest.mark.more
def test_a_log_made_anew_under_a_query_is_another_log_and_read_whole(program: Program) -> None:
    program.send(10, "0")
    table = program.table(writing=Writing(keep=("sequenceNumber", "hub")))
    rows = program.rows(program.events(table))
    query = program.start(rows, table.apply_query_batch, available_now=False)
    until(lambda: query.exception() or table.row_count() >= 10, "the events of the first log")
    program.hub.close()
    for file in program.folder.glob("hub.db*"):
        file.unlink()
    program.hub = LogHub.create(program.folder / "hub.db", partitions=2)
    program.send(20, "0")
    until(query.exception, "the end of the query")
    assert "was replaced by another log" in str(query.exception())
    with pytest.raises(PySparkException, match="the Spark checkpoint folder belongs to hub"):
        program.start(rows, table.apply_query_batch).awaitTermination()
    program.start(rows, table.apply_query_batch, scratch="new").awaitTermination()
    assert program.numbers() == list(range(30))
