"""`MicroBatches` on real Spark: what a batch is, what is recorded, what is refused, transforms of every kind."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.backoff import Backoff
from leasehold.errors import ConfigError, DataLoss, EventsMissing, StaleBatch, StoreError, StoreUnavailable, UsageError
from leasehold.model import Event
from leasehold.notices import BatchDone, TableApplied
from leasehold.ownership import PartitionManager
from leasehold.spark import EntityTable, MicroBatch, MicroBatches, RowRules, Writing, read_bodies
from leasehold.spark.loop import feed
from leasehold.stores.sqlite.store import SqliteStore
from tests.spark.places import FENCE, Place, each, plain
from tests.waiting import NEVER, PATIENCE, until


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def test_batches_hold_what_they_say_and_are_recorded(place: Place) -> None:
    place.send(25)
    table, seen = place.table(), []
    told: list[BatchDone] = []
    counted_batches = place.batches(max_events_per_trigger=20)
    counted_batches.notices.subscribe(told.append, BatchDone)
    applied: list[TableApplied] = []
    counted_batches.notices.subscribe(applied.append, TableApplied)
    table.notices.subscribe(lambda notice: pytest.fail("a loop tells its own subscribers"), TableApplied)
    with counted_batches as batches:
        for batch in batches:
            seen.append((batch.id, sum(len(one) for one in batch.ranges), batch.events.count()))
            assert {one.hub for one in batch.ranges} == {place.hub.identity}
            assert table.apply(plain(batch.events), batch).applied == len(batch)
            assert place.checkpoints() != {one.partition: one.end for one in batch.ranges}
    assert [(planned, counted) for _, planned, counted in seen] == [(20, 20), (20, 20), (10, 10)]
    assert [(done.events, set(done.seconds)) for done in told] == [(n, {"plan", "body"}) for n in (20, 20, 10)]
    assert all(seconds > 0 for done in told for seconds in done.seconds.values())
    assert all(0 < done.parts["read"] < done.seconds["body"] for done in told)
    assert all(0 < done.parts["read"] + done.parts["transform"] < done.seconds["body"] for done in told)
    assert [(one.table, one.counts.applied) for one in applied] == [("events", n) for n in (20, 20, 10)]
    assert all(sum(one.parts.values()) < one.seconds and set(one.parts) == {"stage", "merge"} for one in applied)
    assert len({name for name, _, _ in seen}) == 3
    assert place.rows() == [(n,) for n in range(50)]
    assert place.checkpoints() == {"0": 25, "1": 25}
    marks = table.watermarks(place.hub.identity)
    for one in SqliteStore(place.folder / "stores.db").list_checkpoints(place.hub.consumer_group("$Default")):
        [read] = place.hub.read(one.partition, 24, 25, columns=["enqueuedTime"])
        assert one.enqueued_time == pytest.approx(read.column("enqueuedTime")[0].as_py().timestamp(), abs=1e-6)
        assert marks[one.partition].enqueued_time == one.enqueued_time


def test_the_span_of_a_batch_links_to_its_producers(place: Place) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from leasehold.tracing import Tracing

    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(place.hub, tracer_provider=provider)
    for partition in ("0", "1"):
        tracing.send([Event(b'{"id":"a","n":1}')] * 3, partition=partition)
        place.hub.send(
            [Event(b'{"id":"b","n":2}'), Event(b"", properties={"traceparent": "none"})], partition=partition
        )
    producers = {span.context.trace_id for span in exporter.get_finished_spans() if span.context}
    table = place.table()
    told: list[BatchDone] = []
    traced = place.batches(trace_links=True, columns=["hub", "partition", "sequenceNumber", "ownerLevel"])
    traced.notices.subscribe(told.append, BatchDone)
    with traced as batches:
        for batch in batches:
            with tracing.batch(batch):
                table.apply(plain(batch.events), batch)
    [span] = [span for span in exporter.get_finished_spans() if span.name.startswith("process")]
    assert {link.context.trace_id for link in span.links} == producers
    assert len(producers) == 2
    assert (span.attributes or {})["leasehold.batch.id"] == told[0].batch_id
    assert (len(told[0].producers), told[0].elapsed > 0) == (3, True), "malformed contexts are passed on"
    provider.shutdown()


@pytest.mark.more
def test_a_body_that_raises_leaves_no_checkpoint_and_its_events_come_again(place: Place) -> None:
    place.send(5)
    table = place.table()

    def fail(batch: MicroBatch) -> None:
        table.apply(plain(batch.events), batch)
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        each(place.batches(), fail)
    assert place.checkpoints() == {"0": 0, "1": 0}
    with place.batches() as batches:
        results = [table.apply(plain(batch.events), batch) for batch in batches]
    assert [(result.applied, result.replayed) for result in results] == [(0, 10)]
    with place.batches() as batches:
        for batch in batches:
            pytest.fail(f"nothing was left, and {batch} came")
    # Left by `break`, once the table has it: recorded.
    place.send(5)
    with place.batches() as batches:
        for batch in batches:
            table.apply(plain(batch.events), batch)
            break
    assert place.checkpoints() == {"0": 10, "1": 10}


def test_what_waits_for_the_store_is_recorded_where_a_loop_is_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `break`, between two tries, of which the second never comes."""
    place.send(4)
    table, write, tries = place.table(), PartitionManager.update_checkpoints, []

    def away_once(*args: Any, **options: Any) -> Any:
        tries.append(args)
        if len(tries) == 1:
            raise StoreUnavailable("away")
        return write(*args, **options)

    monkeypatch.setattr(feed, "_STORE_PAUSES", Backoff(NEVER, NEVER))
    monkeypatch.setattr(PartitionManager, "update_checkpoints", away_once)
    with place.batches(max_events_per_trigger=4) as batches:
        for number, batch in enumerate(batches):
            table.apply(plain(batch.events), batch)
            if number == 1:
                break
    assert place.checkpoints() == {"0": 4, "1": 4}


def test_a_loop_whose_last_batch_cannot_be_recorded_gives_its_partitions_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.send(2)
    table, store = place.table(), SqliteStore(place.folder / "stores.db")

    def refused(*args: Any, **options: Any) -> None:
        raise StoreError("not allowed")

    def one_batch(batches: MicroBatches) -> None:
        with batches:
            for batch in batches:
                table.apply(plain(batch.events), batch)
                monkeypatch.setattr(PartitionManager, "update_checkpoints", refused)
                break

    batches = place.batches()
    with pytest.raises(StoreError, match="not allowed"):
        one_batch(batches)
    records = store.list_ownership(place.hub.consumer_group("$Default")).records
    assert {one.owner_id for one in records} == {""}
    monkeypatch.undo()
    with batches:
        results = [table.apply(plain(batch.events), batch) for batch in batches]
    assert [(result.applied, result.replayed) for result in results] == [(0, 4)]


def test_bad_bodies_are_set_aside_by_the_one_reading(place: Place) -> None:
    place.send(3)
    place.hub.send([Event(b"oops"), Event(b'{"n":"x"}')], partition="0")
    table = place.table()
    with place.batches() as batches:
        (result,) = [table.apply(plain(batch.events).where("n <> 1"), batch) for batch in batches]
    assert (result.applied, result.rejected) == (5, 2)
    found = place.rows("SELECT partition, sequence_number, body, reason FROM events_rejected ORDER BY 2")
    assert [row[:3] for row in found] == [("0", 3, b"oops"), ("0", 4, b'{"n":"x"}')]
    assert "the field n" in found[1][3]
    assert place.rows("SELECT partition, sequence_number FROM leasehold_watermark ORDER BY 1") == [("0", 4), ("1", 2)]


def doubled(events: DataFrame) -> DataFrame:
    return events.select("n", F.udf(lambda n: 2 * n, "BIGINT")("n").alias("m"), *FENCE)


TRANSFORMS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "repartition": lambda events: events.repartition(3, "id").select("n", *FENCE),
    "time": lambda events: events.select("n", F.current_timestamp().alias("at"), *FENCE),
    "uuid": lambda events: events.select("n", F.expr("uuid()").alias("name"), *FENCE),
    "rand": lambda events: events.select("n", F.rand().alias("chance"), *FENCE),
    "explode": lambda events: events.select("n", F.explode(F.array(F.lit(1), F.lit(2))).alias("part"), *FENCE),
    "function": doubled,
    "shuffled time": lambda events: events.repartition(2).select("n", F.expr("now()").alias("at"), *FENCE),
}


@pytest.mark.more
@pytest.mark.parametrize("kind", TRANSFORMS)
def test_batches_through_transforms_of_every_kind(place: Place, kind: str) -> None:
    place.send(15)
    table, transform, times = place.table(), TRANSFORMS[kind], 0
    with place.batches(max_events_per_trigger=10) as batches:
        for batch in batches:
            table.apply(transform(batch.events), batch)
            times += 1
    assert times == 3
    rows = place.rows("SELECT * FROM events ORDER BY n")
    of_each = 2 if kind == "explode" else 1
    assert [row[0] for row in rows] == [n for n in range(30) for _ in range(of_each)]
    if "time" in kind:
        assert len({row[1] for row in rows}) == 3, "a time for each batch"
    elif kind in ("uuid", "rand"):
        assert len({row[1] for row in rows}) == 30, "no value twice"
    elif kind == "function":
        assert all(row[1] == 2 * row[0] for row in rows)


def test_rows_of_an_earlier_batch_are_refused(place: Place) -> None:
    place.send(20)
    table = place.table()
    kept: list[DataFrame] = []

    def apply_kept(batch: MicroBatch) -> None:
        # With a shuffle, and executed before: Spark has its files, and gives the first batch's rows again.
        kept.append(plain(batch.events.repartition(2)))
        table.apply(kept[0], batch)

    with pytest.raises(StaleBatch):
        each(place.batches(max_events_per_trigger=10), apply_kept)
    assert len(place.rows()) == 10
    # Spark has what it wants, and runs not all tasks: what has not been read is not done.
    with pytest.raises(StaleBatch, match="have not run"):
        each(place.batches(), lambda batch: table.apply(plain(batch.events).limit(1), batch))
    assert len(place.rows()) == 10

    def a_part(batch: MicroBatch) -> None:
        assert batch.events.count() == len(batch)  # all of its tasks have run, and that says nothing of what is applied
        table.apply(plain(batch.events).limit(1), batch)

    with pytest.raises(StaleBatch, match="have not run"):
        each(place.batches(), a_part)


@pytest.mark.more
def test_a_batch_that_a_loop_was_left_in_comes_again(place: Place) -> None:
    place.send(5)
    table, seen = place.table(), []
    with place.batches(max_events_per_trigger=4) as batches:
        for batch in batches:
            seen.append(batch.id)
            break
        for batch in batches:
            seen.append(batch.id)
            table.apply(plain(batch.events), batch)
    assert seen[0] == seen[1]
    assert place.rows() == [(n,) for n in range(10)]


def test_a_batch_is_applied_once_to_a_table_and_to_its_own_pipeline_only(place: Place) -> None:
    place.send(2)
    table, other = place.table(), place.table(table="others")

    def apply_twice(batch: MicroBatch) -> None:
        table.apply(plain(batch.events.where("n < 2")), batch)
        other.apply(plain(batch.events), batch)
        table.apply(plain(batch.events.where("n >= 2")), batch)

    with pytest.raises(UsageError, match="applied to the table events already"):
        each(place.batches(), apply_twice)
    assert len(place.rows("SELECT n FROM others")) == 4
    stranger = place.table(table="strangers", pipeline="q")
    with pytest.raises(ConfigError, match="belongs to this pipeline"):
        each(place.batches(), lambda batch: stranger.apply(plain(batch.events), batch))


@pytest.mark.more
def test_one_name_in_two_databases_is_two_tables_and_in_another_case_the_same(place: Place) -> None:
    place.send(2)
    table, shouted, other = place.table(), place.table(table="EVENTS"), place.table(file="other.db")

    def apply_to_both(batch: MicroBatch) -> None:
        table.apply(plain(batch.events), batch)
        other.apply(plain(batch.events), batch)

    each(place.batches(), apply_to_both)
    assert other.row_count() == table.row_count() == 4
    place.send(2)

    def apply_twice(batch: MicroBatch) -> None:
        table.apply(plain(batch.events.where("n < 6")), batch)
        shouted.apply(plain(batch.events.where("n >= 6")), batch)

    with pytest.raises(UsageError, match="applied to the table EVENTS already"):
        each(place.batches(), apply_twice)


def test_a_database_that_is_locked_at_the_first_batch_is_waited_for(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.send(2)
    writing = Writing(timeout=0.2)  # impatient: the lock is given up for good after the first of its calls
    table = place.table(writing=writing)
    table.row_count()
    zeros = []
    with sqlite3.connect(place.folder / "table.db", isolation_level=None) as other, place.batches() as batches:
        other.execute("BEGIN IMMEDIATE")
        for batch in batches:
            if not table.apply(plain(batch.events), batch).applied:
                zeros.append(batch.id)
                other.rollback()
    other.close()
    assert len(zeros) == 1
    assert place.rows() == [(n,) for n in range(4)]
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("comes again until it is: " in one and "database is locked" in one for one in said)
    assert said[-1] == "batches are written again"


@pytest.mark.parametrize("condition", ["1 = 2", "n < 0"])
def test_a_filter_that_lets_nothing_pass_moves_on_and_sets_aside_what_cannot_be_read(
    place: Place, condition: str
) -> None:
    place.send(3)
    place.hub.send([Event(b"oops")], partition="1")
    table = place.table()
    with place.batches() as batches:
        for batch in batches:
            result = table.apply(plain(batch.events.where(condition)), batch)
    assert (result.applied, result.rejected) == (0, 1)
    assert place.checkpoints() == {"0": 3, "1": 4}
    assert place.rows("SELECT partition, sequence_number FROM leasehold_watermark") == [("0", 2), ("1", 3)]


def test_events_that_are_gone(place: Place) -> None:
    place.send(10)
    table = place.table()
    with place.batches() as batches:
        for batch in batches:
            table.apply(plain(batch.events), batch)
    place.send(5, "0")
    place.hub.retain(max_age=0)
    place.send(10)
    with pytest.raises(DataLoss, match=r"partition 0: events \[10, 15\)"), place.batches() as batches:
        next(iter(batches))
    with place.batches(fail_on_data_loss=False) as batches:
        (batch,) = list_applied(table, batches)
    assert {one.partition: (one.begin, one.left_out_from) for one in batch.ranges} == {"0": (15, 10), "1": (10, None)}
    assert len(place.rows()) == 40


def test_a_gap_with_nothing_behind_it_moves_checkpoint_and_watermark(place: Place) -> None:
    place.send(10)
    table = place.table()
    with place.batches() as batches:
        list_applied(table, batches)
    place.send(5, "0")
    place.hub.retain(max_age=0)
    with place.batches(fail_on_data_loss=False) as batches:
        (batch,) = list_applied(table, batches)
    assert [(one.partition, one.begin, one.end, one.left_out_from) for one in batch.ranges] == [("0", 15, 15, 10)]
    assert place.checkpoints() == {"0": 15, "1": 10}
    assert {p: mark.sequence_number for p, mark in table.watermarks(place.hub.identity).items()} == {"0": 14, "1": 9}
    place.send(3)
    with place.batches() as batches:
        list_applied(table, batches)
    assert len(place.rows()) == 26


def list_applied(table: EntityTable, batches: MicroBatches) -> list[MicroBatch]:
    seen = []
    for batch in batches:
        table.apply(plain(batch.events), batch)
        seen.append(batch)
    return seen


def test_a_table_restored_from_an_older_copy_is_noticed(place: Place) -> None:
    place.send(10)
    table = place.table()
    with place.batches() as batches:
        list_applied(table, batches)
    table.close()
    copy = (place.folder / "table.db").read_bytes()
    place.send(10)
    with place.batches() as batches:
        list_applied(table, batches)
    table.close()
    for path in place.folder.glob("table.db*"):
        path.unlink()
    (place.folder / "table.db").write_bytes(copy)
    place.send(10)
    with pytest.raises(EventsMissing), place.batches() as batches:
        list_applied(place.table(), batches)


@pytest.mark.more
def test_large_events_are_read_in_batches_that_fit(place: Place) -> None:
    place.send(40, size=100_000)
    place.send(200, "1")
    table, sizes = place.table(), []
    with place.batches(max_bytes_per_trigger=1_000_000) as batches:
        for batch in batches:
            table.apply(plain(batch.events), batch)
            sizes.append(len(batch))
    assert len(place.rows()) == 280
    assert len([size for size in sizes if size]) >= 5


def test_a_maximum_of_partitions_still_comes_to_an_end(place: Place) -> None:
    place.send(10)
    table = place.table()
    with place.batches(maximum_partitions=1) as batches:
        list_applied(table, batches)
    assert place.rows() == [(n,) for n in range(20)]


def test_stop_ends_a_loop_that_waits(place: Place) -> None:
    place.send(1)
    table, applied = place.table(), threading.Event()
    with place.batches(available_now=False) as batches:

        def stop() -> None:
            applied.wait(PATIENCE)
            until(lambda: place.checkpoints() == {"0": 1, "1": 1}, "the loop to look for more")
            batches.stop()

        stopping = threading.Thread(target=stop)
        stopping.start()
        for batch in batches:
            table.apply(plain(batch.events), batch)
            applied.set()
        stopping.join(PATIENCE)
    assert place.checkpoints() == {"0": 1, "1": 1}


def test_fewer_than_the_least_events_come_after_the_delay_and_no_sooner(place: Place) -> None:
    place.send(5)
    begun = time.monotonic()
    with place.batches(available_now=False, min_events_per_trigger=1000, max_trigger_delay=1.0) as batches:
        assert len(next(iter(batches))) == 10
    assert time.monotonic() - begun >= 1.0


def test_an_interval_lies_between_the_beginnings_of_batches(place: Place) -> None:
    place.send(3)
    begun = time.monotonic()
    with place.batches(available_now=False, trigger_interval=0.7, max_events_per_trigger=2) as batches:
        for number, _batch in enumerate(batches):
            if number == 2:
                break
    assert time.monotonic() - begun >= 1.4


def test_bodies_read_by_the_program_itself_and_rejected_by_their_reason(place: Place) -> None:
    place.send(3)
    place.hub.send([Event(b"oops")], partition="1")
    table = place.table(rules=RowRules(reject_by="reason"))
    with place.batches(schema=None) as batches:
        for batch in batches:
            read = read_bodies(batch.events, "id STRING, n BIGINT").select("id", "n", "body", "reason", *FENCE)
            result = table.apply(read, batch)
    assert (result.applied, result.rejected) == (6, 1)
    assert place.rows("SELECT partition, sequence_number, body FROM events_rejected") == [("1", 3, b"oops")]
    columns = [name for (name,) in place.rows("SELECT name FROM pragma_table_info('events')")]
    assert columns == ["id", "n", "body", "partition", "sequenceNumber"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"max_event_per_trigger": 1},
            r"max_event_per_trigger = 1: not an argument.*Did you mean max_events_per_trigger",
        ),
        ({"starting_position": 1.5}, "starting_position = 1.5: earliest, latest"),
        ({"stop_timeout": -1.0}, "stop_timeout = -1.0: a duration of zero or more"),
        ({"trigger_interval": "5"}, "trigger_interval = '5': a duration is a number and a unit"),
        ({"min_events_per_trigger": 5, "max_events_per_trigger": 2}, "min_events_per_trigger = 5: no more than"),
        ({"max_bytes_per_trigger": "64m"}, "max_bytes_per_trigger = '64m': a whole number of bytes"),
        ({"schema": "id STRINGY"}, "schema = 'id STRINGY': not a schema"),
    ],
)
def test_arguments_that_cannot_be_are_refused_by_name(place: Place, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        place.batches(**options)
