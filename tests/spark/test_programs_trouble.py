"""What comes to an end, or says so, in programs on `format("leasehold")`: hangs, exits, large events, lost folders."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event, Ownership
from leasehold.printable import span
from leasehold.spark import RowRules, for_each_batch
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.options import parse_options
from leasehold.spark.session.endings import silence
from leasehold.spark.stream import live
from leasehold.spark.stream.scales import Scales
from leasehold.stores.sqlite.store import SqliteStore
from tests.spark.places import FENCE
from tests.spark.programs import FAST, Program
from tests.waiting import NEVER, hang, until


@pytest.mark.more
def test_sys_exit_in_the_function_is_an_error_of_the_query(program: Program) -> None:
    program.send(5, "0")

    def leaves(rows: DataFrame, batch: int) -> None:
        sys.exit(3)

    query = program.start(program.events(), for_each_batch(leaves))
    with pytest.raises(
        PySparkException, match=r"raised SystemExit\(3\) in batch 0.*stop the query from another thread"
    ):
        query.awaitTermination()


@pytest.mark.more
def test_sys_exit_in_a_function_of_the_rows_is_an_error_of_the_query(program: Program) -> None:
    program.send(5, "0")
    table = program.table()
    leaves = F.udf(lambda n: sys.exit(3), "BIGINT")
    rows = program.rows(program.events(table)).select(leaves("n").alias("n"), *FENCE)
    with pytest.raises(PySparkException):
        program.start(rows, table.apply_query_batch).awaitTermination()


def hangs(n):  # type: ignore[no-untyped-def]  # PySpark takes type hints for instructions
    hang()


@pytest.mark.more
def test_a_function_of_the_rows_that_never_returns_is_cancelled(program: Program) -> None:
    """After the stall timeout that is in the mark of the source's rows: here another one than the source's own."""
    program.send(5, "0")
    table = program.table()
    events = program.events(table)
    mark = events.schema["hub"].metadata
    mark["leasehold"]["stallTimeout"] = 0.5
    rows = program.rows(events).withColumn("hub", F.col("hub").alias("hub", metadata=mark))
    with pytest.raises(PySparkException, match=r"cancelled"):
        program.start(rows.withColumn("n", F.udf(hangs, "INT")("n")), table.apply_query_batch).awaitTermination()
    # Another query takes its place, and goes on.
    program.start(program.rows(program.events(table)), table.apply_query_batch, scratch="other").awaitTermination()
    assert program.numbers() == list(range(5))


@pytest.mark.soak
def test_a_function_of_the_rows_that_never_returns_makes_its_partition_a_suspect(program: Program) -> None:
    program.send(5, "0")
    table = program.table()
    events = program.events(table, partitionExpiration="12s", stallTimeout="12s", requestTimeout="5s")
    rows = program.rows(events).withColumn("n", F.udf(hangs, "INT")("n"))
    with pytest.raises(PySparkException, match=r"cancelled"):
        program.start(rows, table.apply_query_batch).awaitTermination()
    records: dict[str, Ownership] = {}

    def has_let_go() -> bool:
        records.update({one.partition: one for one in program.store.list_ownership(program.group).records})
        return not records["0"].owner_id

    until(has_let_go, "the source's reader to give the partition back, which the end of the query does not wait for")
    assert records["1"].last_error == ""
    assert "no progress for the stall timeout (12 s): partition 0 [0, 5)" in records["0"].last_error


@pytest.mark.more
def test_a_cast_that_fails_ends_the_query_with_what_to_do(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    program.send(5, "0")
    program.hub.send([Event(b"oops")], partition="0")
    program.send(5, "1")
    table = program.table()
    silence()  # as a loop that was stopped in this process does: of py4j, not of us
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        program.start(program.rows(program.events(table)), table.apply_query_batch).awaitTermination()
    assert "rows of batch 0 cannot be computed" in caplog.text
    assert "try_cast, leasehold.spark.read_bodies), reject them with reject_by, or let `leasehold run`" in caplog.text
    assert table.row_count() == 0
    # So guarded, the same batch goes through, and the event is told.
    guarded = program.table(rules=RowRules(reject_by="CASE WHEN n IS NULL THEN 'no number' END"))
    rows = program.events(guarded).selectExpr("try_cast(string(body) AS INT) AS n", "body", *FENCE)
    program.start(rows.drop("body"), guarded.apply_query_batch, scratch="mended").awaitTermination()
    assert program.numbers() == list(range(10))


class ByHand(threading.Timer):
    """A timer that goes off when a test says so."""

    made: ClassVar[list[ByHand]] = []

    def start(self) -> None:
        self.made.append(self)


def test_a_batch_that_hangs_is_told_by_the_source_which_then_holds_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    hub.send([Event(b"x")] * 5, partition="0")
    store = {"store": f"sqlite:///{tmp_path}/stores.db"}
    monkeypatch.setattr(live, "threading", SimpleNamespace(Timer=ByHand))
    stream = live.LiveStream(parse_options({"hub": hub.url, **store, **FAST}))
    try:
        stream.begin(())
        until(stream.manager.held, "the partition")
        planned = stream.plan((), None, None)
        assert planned is not None
        [timer] = ByHand.made
        assert timer.interval < NEVER, "a little before the manager drops what it holds"
        timer.function(*timer.args)
        assert f"no progress for the stall timeout ({span(NEVER)}): partition 0 [0, 5)" in caplog.text
        assert not stream.manager.held()
        records = SqliteStore(tmp_path / "stores.db")
        group = hub.consumer_group("$Default")
        until(lambda: "no progress" in records.list_ownership(group).records[0].last_error, "the record of why")
        stream.record_committed(planned.ranges)  # it went on after all: then this one takes its share again
        until(stream.manager.held, "the partition")
    finally:
        stream.close()
        ByHand.made.clear()


def test_a_source_that_cannot_record_its_end_gives_its_partitions_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    store = {"store": f"sqlite:///{tmp_path}/stores.db"}
    stream = live.LiveStream(parse_options({"hub": hub.url, **store, **FAST}))
    stream.begin(())
    until(stream.manager.held, "the partition")

    def refused(*args: object, **options: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(stream.manager, "update_checkpoints", refused)
    with pytest.raises(RuntimeError, match="after interpreter shutdown"):
        stream.close()
    records = SqliteStore(tmp_path / "stores.db").list_ownership(hub.consumer_group("$Default")).records
    assert [one.owner_id for one in records] == [""]


@pytest.mark.more
def test_available_now_with_fewer_partitions_than_there_are_comes_to_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    program = Program(spark, tmp_path, partitions=3)
    for partition in "012":
        program.send(10, partition)
    table = program.table()
    rows = program.rows(program.events(table, maximumPartitions="1"))
    query = program.start(rows, table.apply_query_batch)
    query.awaitTermination()
    assert program.numbers() == list(range(30))
    assert program.checkpoints() == {"0": 10, "1": 10, "2": 10}


@pytest.mark.more
def test_a_checkpoint_folder_that_is_removed_costs_nothing_but_a_new_one(program: Program) -> None:
    program.send(5, "0")
    table = program.table()
    rows = program.rows(program.events(table))
    query = program.start(rows, table.apply_query_batch, interval="100 milliseconds", available_now=False)
    until(lambda: table.row_count() >= 5, "the first batch")
    (program.folder / "scratch").rename(program.folder / "removed")  # at once: the query goes on writing below it
    program.send(5, "1")
    until(lambda: query.exception() or table.row_count() >= 10, "the next batch, or an error of Spark's")
    query.stop()
    shutil.rmtree(program.folder / "scratch", ignore_errors=True)  # what Spark has made anew of it
    program.send(5, "0")
    program.start(rows, table.apply_query_batch).awaitTermination()
    assert program.numbers() == list(range(15))


@pytest.mark.more
def test_batches_of_large_events_are_cut_by_their_weight(program: Program) -> None:
    for partition in "01":
        program.send(30, partition, size=1_000_000)
    table = program.table()
    sizes: list[int] = []

    def note(rows: DataFrame, batch: int) -> None:
        sizes.append(rows.count())
        table.apply_query_batch(rows, batch)

    program.start(program.rows(program.events(table, maxBytesPerTrigger="10000000")), note).awaitTermination()
    assert program.numbers() == list(range(60))
    assert max(sizes) <= 10, "about ten megabytes each"


def test_scales_follow_the_events_at_hand(tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    hub.send([Event(b"x" * 100) for _ in range(20)], partition="0")
    hub.send([Event(b"x" * 10_000) for _ in range(20)], partition="0")
    scales = Scales(hub, ["body", "ownerLevel"], one_reader=False)
    assert scales.weigh([ReadRange("0", 0, 1, 1)]) == {}
    light = scales.weigh([ReadRange("0", 0, 20, 1)])["0"]
    assert 100 <= light < 200
    assert scales.weigh([ReadRange("0", 0, 40, 1)])["0"] > 5_000
    assert scales.weigh([ReadRange("0", 5, 10, 1)])["0"] > 5_000, "a few are not weighed anew"
    assert Scales(hub, ["body"], one_reader=True).weigh([ReadRange("0", 0, 40, 1)]) == {}
