"""How a program on `format("leasehold")` ends and starts again: what is recorded, and what is not lost."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from leasehold.spark import MicroBatches
from tests.spark.places import let_expire
from tests.spark.programs import Program
from tests.waiting import PATIENCE, until


@pytest.fixture
def program(spark: SparkSession, tmp_path: Path) -> Program:
    return Program(spark, tmp_path, partitions=1)


def kill_sources(program: Program) -> None:
    """SIGKILL for the source's process of every query of this process, and nobody waits for it to expire."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie counts as none
            if any("python_streaming_source_runner" in word for word in child.cmdline()):
                child.kill()
                child.wait(PATIENCE)
    let_expire(program.folder / "stores.db")


def retain_nothing_of_the_first(program: Program) -> None:
    """Let retention remove what was there before, and send more."""
    program.hub.retain(max_bytes=1)
    assert program.hub.partition_properties(["0"])["0"].begin == program.sent
    program.send(5, "0")


@pytest.mark.more
def test_a_clean_stop_records_the_last_batch(program: Program) -> None:
    program.send(10, "0")
    table = program.table()
    rows = program.rows(program.events(table))
    query = program.start(rows, table.apply_query_batch, interval="10 minutes", available_now=False)
    until(lambda: table.row_count() == 10, "the batch to be applied")
    query.stop()
    until(lambda: program.checkpoints() == {"0": 10}, "the record of it")
    until(lambda: program.record().owner_id == "", "the partition to be given up, which follows it")
    assert (program.record().failures, program.record().last_error) == (0, "")
    retain_nothing_of_the_first(program)
    program.start(rows, table.apply_query_batch, scratch="new").awaitTermination()
    assert program.numbers() == list(range(15))


@pytest.mark.more
def test_a_start_asks_the_table_before_it_says_that_events_are_lost(program: Program) -> None:
    program.send(10, "0")
    table = program.table()
    query = program.start(
        program.rows(program.events(table)), table.apply_query_batch, interval="10 minutes", available_now=False
    )
    until(lambda: table.row_count() == 10, "the batch to be applied")
    kill_sources(program)
    query.stop()
    assert program.checkpoints() == {"0": 0}
    retain_nothing_of_the_first(program)
    # Who does not know the table cannot know better, and says what to set, as it is written here and there.
    with pytest.raises(PySparkException, match=r"events \[0, 10\) were to be read and are gone.*failOnDataLoss=false"):
        program.start(program.events(pipeline="p"), count, scratch="x").awaitTermination()
    program.start(program.rows(program.events(table)), table.apply_query_batch, scratch="new").awaitTermination()
    assert program.numbers() == list(range(15))


@pytest.mark.more
@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.soak), True], ids=["stopped", "killed"])
def test_a_gap_that_was_told_is_not_told_again(program: Program, killed: bool) -> None:
    """No event follows it: nothing of it is in the table, and Spark does not say that its batch is committed."""
    program.send(10, "0")
    table = program.table()
    program.start(program.rows(program.events(table)), table.apply_query_batch).awaitTermination()
    program.send(5, "0")
    program.hub.retain(max_bytes=1)
    passed = program.rows(program.events(table, failOnDataLoss="false"))
    query = program.start(passed, table.apply_query_batch, interval="10 minutes", available_now=False)
    until(
        lambda: (progress := query.lastProgress) and '"lostEvents":5' in str(progress.json).replace(" ", ""), "the gap"
    )
    if killed:
        kill_sources(program)
    query.stop()
    program.send(3, "0")
    for scratch in ("scratch", "new"):
        program.start(program.rows(program.events(table)), table.apply_query_batch, scratch=scratch).awaitTermination()
    assert program.numbers() == [*range(10), *range(15, 18)]


def test_a_loop_asks_its_table_before_it_says_that_events_are_lost(program: Program) -> None:
    program.send(10, "0")
    table = program.table()

    def consume(**options: Any) -> None:
        stores = f"sqlite:///{program.folder}/stores.db"
        with MicroBatches(
            program.spark, program.hub.url, store=stores, pipeline="p", available_now=True, settle_delay=0, **options
        ) as batches:
            for batch in batches:
                table.apply(program.rows(batch.events), batch)
                if not options:
                    raise RuntimeError("before the checkpoint")

    with pytest.raises(RuntimeError, match="before the checkpoint"):
        consume()
    retain_nothing_of_the_first(program)
    consume(table=table)
    assert program.numbers() == list(range(15))


@pytest.mark.more
def test_what_spark_has_committed_is_recorded_before_anything_is_claimed(program: Program) -> None:
    program.send(10, "0")
    seen: list[int] = []

    def note(rows: DataFrame, batch: int) -> None:
        seen.extend(row.sequenceNumber for row in rows.select("sequenceNumber").collect())

    query = program.start(program.events(), note, interval="10 minutes", available_now=False)
    until(lambda: query.lastProgress is not None, "the commit of the first batch")
    kill_sources(program)
    query.stop()
    program.send(5, "0")
    program.start(program.events(), note).awaitTermination()
    assert seen == list(range(15)), "each once, also without a table"


def count(rows: DataFrame, batch: int) -> None:
    """What a program does that writes elsewhere."""
    rows.count()
