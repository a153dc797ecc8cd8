"""What a loop on Spark counts adds up, with everything in it: told by what was sent and what is made of it."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold import Event
from leasehold.counts import NONE
from leasehold.notices import BatchDone, Counts, TableApplied
from leasehold.sinks.features import BOOKKEEPING, require
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.spark import RowRules
from tests.spark.places import FENCE, Place

EACH = 20
RULES = RowRules(
    sequence_by="(n * 13) % 40",
    reject_by="IF(n % 11 = 0, 'eleven', NULL)",
    deduplicate_by="IF(n IN (4, 5), 'twice', NULL)",
    deduplicate_for="10m",
)


def transformed(events: DataFrame) -> DataFrame:
    """No row of an event, or two, or one."""
    kept = events.where("n % 7 <> 0").withColumn("k", F.expr("n % 5"))
    return kept.withColumn("copy", F.expr("explode(sequence(0, IF(n % 3 = 0, 1, 0)))")).select("k", "n", "copy", *FENCE)


def wanted() -> tuple[dict[str, int], int]:
    """What becomes of the events, and the rows of those that are used; `n` is 22 for event 2 of partition 1."""
    found, rows = dict.fromkeys(("filtered", "skipped", "duplicates", "used"), 0), 0
    for n in range(2 * EACH):
        kind = "skipped" if n == 22 else "duplicates" if n == 5 else "used" if n % 7 else "filtered"
        found[kind] += 1
        rows += (2 if n % 3 == 0 else 1) * (kind == "used")
    found["used"] += 1  # no JSON
    return found, rows + 1


def test_the_counts_of_a_loop_add_up(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(spark, tmp_path)
    place.send(EACH)
    place.hub.send([Event(b"{")], partition="0")
    table = place.table(mode="upsert", keys=("k",), rules=RULES)
    columns = "n BIGINT, hub STRING, partition STRING, sequenceNumber BIGINT, ownerLevel BIGINT"
    table.check(transformed(spark.createDataFrame([], columns)))
    note = SkipNote(place.hub.identity, "1", 2, b"{}", "{}", "it is wrong", "ada@tower")
    assert require(table._sink, BOOKKEEPING, "a test").note_skip(note).passed is None

    def run(**options: Any) -> tuple[Counts, int]:
        """What a loop has counted, and how many events its batches had."""
        loop, counts, done = place.batches(table=table, max_events_per_trigger=12, **options), NONE, list[BatchDone]()

        def hear(told: TableApplied) -> None:
            nonlocal counts
            counts = counts.plus(told.counts)

        loop.notices.subscribe(hear, TableApplied)
        loop.notices.subscribe(done.append, BatchDone)
        with loop as batches:
            for batch in batches:
                table.apply(transformed(batch.events), batch)
        assert all(one.counts.read == one.events for one in done)
        return counts, sum(one.events for one in done)

    with caplog.at_level(logging.INFO, "leasehold.spark.loop.micro_batches"):
        first, read = run()
    events, rows = wanted()
    assert (first.read, read) == (2 * EACH + 1, 2 * EACH + 1)
    assert {name: first.named()[name] for name in (*events, "rows")} == {**events, "rows": rows}
    assert first.superseded > 0
    assert first.applied > 0
    assert place.rows("SELECT count(*) FROM events_rejected") == [(first.rejected + first.skipped,)]
    assert f"table events: {first.said()}; {table.totals.batches} batches" in caplog.messages
    with closing(sqlite3.connect(tmp_path / "stores.db")) as connection, connection:
        connection.execute("UPDATE leasehold_checkpoint SET sequence_number = -1")
    again, read = run()
    assert (again.read, again.replayed + again.filtered, again.rows) == (read, read, 0)
    assert again.replayed > 0
    assert table.totals.read == first.read + again.read
