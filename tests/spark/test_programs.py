"""Programs that use `format("leasehold")` with `foreachBatch`: for whom rows are read, and what a batch is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from leasehold.errors import AlreadyInUse, ConfigError
from leasehold.ownership.starting import check_start
from leasehold.sinks import TableSpec
from leasehold.spark import EntityTable, MicroBatches
from leasehold.spark.plan.origins import Origin, TableAddress, addresses_text, origin_of, read_addresses
from leasehold.spark.stream.stream_tables import check_origin
from leasehold.stores import PipelineBinding
from tests.spark.places import FENCE
from tests.spark.programs import Program


def count(rows: DataFrame, batch: int) -> None:
    """What a program does that writes elsewhere."""
    rows.count()


@pytest.mark.more
def test_two_queries_from_one_stream_for_two_tables_are_refused(program: Program) -> None:
    program.send(20, "0")
    left, right = program.table("left_numbers"), program.table("right_numbers")
    events = program.rows(program.events(left))
    program.start(events, left.apply_query_batch, scratch="left").awaitTermination()
    assert program.numbers("left_numbers") == list(range(20))
    program.send(20, "0")
    with pytest.raises(PySparkException, match="was not told that its rows go to the table right_numbers"):
        program.start(events, right.apply_query_batch, scratch="right").awaitTermination()
    with pytest.raises(PySparkException, match="the table of pipeline 'p' is not the one that consumer group"):
        program.start(program.rows(program.events(right)), right.apply_query_batch, scratch="third").awaitTermination()
    program.start(events, left.apply_query_batch, scratch="left").awaitTermination()
    assert program.numbers("left_numbers") == list(range(40))


@pytest.mark.more
def test_one_query_may_fill_two_tables(program: Program) -> None:
    program.send(20, "0")
    tables = [program.table("all_numbers"), program.table("few_numbers")]

    def both(rows: DataFrame, batch: int) -> None:
        tables[0].apply_query_batch(rows, batch)
        tables[1].apply_query_batch(rows.where("n < 5"), batch)

    program.start(program.rows(program.events(*tables)), both).awaitTermination()
    assert (program.numbers("all_numbers"), program.numbers("few_numbers")) == ([*range(20)], [*range(5)])
    with pytest.raises(ConfigError, match="the tables of one query belong to one pipeline and one consumer group"):
        tables[0].stream_options(program.table("theirs", pipeline="q"))


@pytest.mark.more
def test_a_stream_that_was_told_nothing_fills_no_table(program: Program) -> None:
    program.send(5, "0")
    table = program.table()
    with pytest.raises(PySparkException, match=r"for no pipeline by name.*options\(\*\*table.stream_options\(\)\)"):
        program.start(program.rows(program.events()), table.apply_query_batch).awaitTermination()
    assert table.row_count() == 0


@pytest.mark.more
def test_a_batch_is_applied_to_a_table_once(program: Program) -> None:
    program.send(20, "0")
    table, again = program.table(), program.table()

    def twice(rows: DataFrame, batch: int) -> None:
        table.apply_query_batch(rows.where("n < 10"), batch)
        again.apply_query_batch(rows.where("n >= 10"), batch)

    rows = program.rows(program.events(table))
    with pytest.raises(PySparkException, match=r"has been applied to the table numbers already.*union them"):
        program.start(rows, twice).awaitTermination()

    def fails_after(rows: DataFrame, batch: int) -> None:
        table.apply_query_batch(rows, batch)
        if not failed:
            failed.append(batch)
            raise RuntimeError("after the commit")

    # After a failure it is a replay, and fine: in the run that failed, and in the next one.
    failed: list[int] = []
    program.send(20, "1")
    with pytest.raises(PySparkException, match="after the commit"):
        program.start(rows, fails_after).awaitTermination()
    program.start(rows, fails_after).awaitTermination()
    assert set(program.numbers()) >= {*range(10), *range(20, 40)}


@pytest.mark.more
def test_another_pipeline_is_refused_by_name_on_a_group_that_a_program_has_read(program: Program) -> None:
    program.send(10, "0")

    program.start(program.events(), count).awaitTermination()
    assert program.checkpoints()["0"] == 10
    with pytest.raises(AlreadyInUse, match="belongs to a program that names no pipeline, and this is 'p'"):
        check_start(program.group, program.store, PipelineBinding("p", "sink"), dict, "p.toml")
    table = program.table()
    with pytest.raises(PySparkException, match="belongs to a program that names no pipeline"):
        program.start(program.rows(program.events(table)), table.apply_query_batch, scratch="two").awaitTermination()


@pytest.mark.more
def test_a_program_without_a_table_ties_its_group_to_its_pipeline(program: Program) -> None:
    program.send(10, "0")
    program.start(program.events(pipeline="p"), count).awaitTermination()
    with pytest.raises(PySparkException, match="belongs to pipeline 'p', and this is 'q'"):
        program.start(program.events(pipeline="q"), count, scratch="q").awaitTermination()
    table = program.table()
    with pytest.raises(AlreadyInUse, match="has been read by a program of pipeline 'p' that fills no table"):
        check_start(program.group, program.store, PipelineBinding("p", table.sink_identity()), dict, "p.toml")


def test_a_loop_without_a_table_ties_its_group_before_the_first_checkpoint(program: Program) -> None:
    program.send(10, "0")

    def loop(pipeline: str) -> MicroBatches:
        return MicroBatches(
            program.spark,
            program.hub.url,
            store=f"sqlite:///{program.folder}/stores.db",
            pipeline=pipeline,
            available_now=True,
            settle_delay=0,
        )

    def consume(pipeline: str, table: EntityTable | None = None) -> None:
        with loop(pipeline) as batches:
            for batch in batches:
                if table is not None:
                    table.apply(program.rows(batch.events), batch)

    consume("p")
    assert program.store.bind_pipeline(program.group, PipelineBinding("x", "y")) == PipelineBinding("p", "")
    program.send(10, "0")
    with pytest.raises(AlreadyInUse, match="belongs to pipeline 'p', and this is 'q'"):
        consume("q")
    assert program.checkpoints()["0"] == 10
    with pytest.raises(AlreadyInUse, match="that fills no table"):
        consume("p", program.table())


def test_the_mark_names_no_url_and_what_others_wrote_there_is_passed_over(program: Program) -> None:
    table = program.table()
    mark = program.events(table).schema["hub"].metadata
    assert str(program.folder) not in json.dumps(mark)
    origin = origin_of(mark)
    assert origin is not None
    check_origin(origin, TableSpec(name="numbers", pipeline="p", mode="append"), table.sink_identity)
    with pytest.raises(ConfigError, match="consumerGroup"):
        check_origin(origin, TableSpec(name="numbers", pipeline="p", mode="append", consumer_group="other"), str)
    for strange in ({}, {"leasehold": 1}, {"leasehold": {"consumerGroup": "g", "pipeline": 3, "tables": []}}):
        assert origin_of(strange) is None
    assert Origin("g", "p", ("t",)).metadata()["leasehold"]["tables"] == ["t"]


def test_addresses_are_the_same_in_every_working_directory(tmp_path: Path) -> None:
    spec = TableSpec(name="t", pipeline="p", keys=("a", "b"), keep=("hub",))
    address = TableAddress.of("id", "sqlite:///a%20b.db", spec, tmp_path)
    assert address.url == f"sqlite:////{str(tmp_path)[1:]}/a%20b.db"
    assert read_addresses(addresses_text([address]), "tables") == (address,)
    for wrong in ("", "[1]", '[{"identity": "x"}]', "{"):
        with pytest.raises(ConfigError, match="stream_options"):
            read_addresses(wrong, "tables")


def test_the_mark_reaches_a_table_through_what_programs_do_to_rows(program: Program) -> None:
    events = program.events(program.table())
    wide = events.selectExpr("from_json(string(body), 'n INT') AS e", "*").select("e.*", *FENCE).where("n > 0")
    assert origin_of(wide.schema["hub"].metadata) == origin_of(events.schema["hub"].metadata) is not None


def test_a_table_of_another_source_is_not_asked_for_a_mark(program: Program) -> None:
    rows = program.spark.sql("SELECT 1 AS n, 'h' AS hub, '0' AS partition, 0L AS sequenceNumber, 1L AS ownerLevel")
    table: EntityTable = program.table()
    table.apply_query_batch(rows, 0)
    table.apply_query_batch(rows, 0)
    assert program.numbers() == [1]
