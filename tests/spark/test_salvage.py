"""Events that cannot be computed, in programs of `MicroBatches` that ask for the policy of `leasehold run`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.errors import ConfigError
from leasehold.notices import BatchDone
from leasehold.spark import MicroBatch
from leasehold.spark.loop import engine
from leasehold.spark.loop.engine import BatchFailed
from tests.spark.places import Place, each, plain
from tests.waiting import hang, until

REJECTED = "SELECT partition, sequence_number, CAST(body AS TEXT), reason FROM events_rejected ORDER BY partition"


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def checked(events: DataFrame, refused: str) -> DataFrame:
    """The rows of `Place.table`, of which Spark cannot compute those for which `refused` is true.

    The error speaks of a worker that is lost, as an event may: no worker is.
    """
    error = "CAST(raise_error('never that\njava.lang.OutOfMemoryError: ExecutorLostFailure') AS BIGINT)"
    return plain(events).withColumn("n", F.expr(f"IF({refused}, {error}, n)"))


@pytest.mark.more
@pytest.mark.parametrize("shuffled", [False, True])
def test_an_event_that_cannot_be_computed_is_set_aside(
    place: Place, caplog: pytest.LogCaptureFixture, *, shuffled: bool
) -> None:
    place.send(10)
    table, done, results = place.table(), list[BatchDone](), []
    batches = place.batches(on_error="reject", max_events_per_trigger=20)
    batches.notices.subscribe(done.append, BatchDone)

    def body(batch: MicroBatch) -> None:
        rows = checked(batch.events, "n IN (3, 17)")
        results.append(table.apply(rows.repartition(3) if shuffled else rows, batch))

    each(batches, body)
    assert [(one.applied, one.rejected) for one in results] == [(18, 2)]
    assert place.rows() == [(n,) for n in range(20) if n not in (3, 17)]
    found = place.rows(REJECTED)
    assert [row[:2] for row in found] == [("0", 3), ("1", 7)]
    assert all('"n": 3,' in body or '"n": 17,' in body for _, _, body, _ in found)
    assert all(reason.startswith("cannot be computed: ") and "never that" in reason for *_, reason in found)
    assert place.checkpoints() == {"0": 10, "1": 10}
    assert [one.events for one in done] == [20]
    said = [record.getMessage() for record in caplog.records if "is rejected: it cannot be" in record.getMessage()]
    assert len(said) == 2


@pytest.mark.more
def test_batches_after_it_are_as_ever_and_may_be_read_again(place: Place) -> None:
    place.send(6)
    table = place.table()
    counted = []

    def body(batch: MicroBatch) -> None:
        table.apply(checked(batch.events, "n = 1"), batch)
        counted.append(batch.events.count())

    each(place.batches(on_error="reject", max_events_per_trigger=4), body)
    assert counted == [4, 4, 4]
    assert place.rows() == [(n,) for n in range(12) if n != 1]


def test_without_being_asked_for_the_error_is_the_bodys(place: Place) -> None:
    place.send(2)
    table = place.table()
    with pytest.raises(Exception, match="never that"):
        each(place.batches(), lambda batch: table.apply(checked(batch.events, "n = 1"), batch))
    assert table.row_count() == 0
    assert place.checkpoints() == {"0": 0, "1": 0}


@pytest.mark.more
def test_more_than_a_few_are_an_outage_of_which_nothing_is_rejected(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "pause_before_retry", lambda in_a_row, chance: 0.01 * in_a_row)
    monkeypatch.setattr(engine, "ATTEMPTS", 2)  # each looks at a dozen halves of the batch, a job of Spark each
    place.send(5)
    table = place.table()
    with pytest.raises(BatchFailed, match=r"never that.*\(batch: partition 0 \[0, 5\), partition 1 \[0, 5\)\)"):
        each(place.batches(on_error="reject"), lambda batch: table.apply(checked(batch.events, "n > 3"), batch))
    assert table.row_count() == 0
    assert place.checkpoints() == {"0": 0, "1": 0}
    assert "That is an outage, so nothing is rejected" in caplog.text


def test_a_job_that_is_cancelled_says_nothing_of_its_events(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """As by the stall timeout, or by a person who looks at Spark's pages."""
    caplog.set_level("INFO")
    place.send(4)
    table, asked = place.table(), place.folder / "asked"
    path = str(asked)

    def marks_and_hangs(n):  # type: ignore[no-untyped-def]  # PySpark takes type hints for instructions
        Path(path).touch()
        hang()

    def body(batch: MicroBatch) -> None:
        def cancel() -> None:
            until(asked.exists, "a task to begin")
            place.spark.sparkContext.cancelJobGroup(batch.id)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(cancel)
            table.apply(plain(batch.events).withColumn("n", F.udf(marks_and_hangs, "BIGINT")("n")), batch)

    with pytest.raises(Exception, match="cancelled"):
        each(place.batches(on_error="reject"), body)
    assert "cannot be computed" not in caplog.text
    assert table.row_count() == 0
    assert place.checkpoints() == {"0": 0, "1": 0}


@pytest.mark.more
def test_what_another_sink_is_given_has_none_of_them(place: Place) -> None:
    place.send(4)
    table = place.table()
    written: list[int] = []

    def body(batch: MicroBatch) -> None:
        unseen = table.unseen(checked(batch.events, "n = 2"), batch)
        for piece in unseen:
            written.extend(piece.rows.column("n").to_pylist())
        unseen.apply()

    each(place.batches(on_error="reject"), body)
    assert sorted(written) == [0, 1, 3, 4, 5, 6, 7]
    assert place.rows() == [(n,) for n in (0, 1, 3, 4, 5, 6, 7)]
    assert [row[:2] for row in place.rows(REJECTED)] == [("0", 2)]


@pytest.mark.parametrize(("name", "value"), [("on_error", "reject it"), ("max_poison", 0), ("max_poison", True)])
def test_what_is_no_policy_is_refused(place: Place, name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        place.batches(**{name: value})
