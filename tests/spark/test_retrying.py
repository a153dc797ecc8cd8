"""Rejected events that go through a mended transform again, on real Spark."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from leasehold.errors import PipelineFailed
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.operations.aside.contract import EntryFilter, Left
from leasehold.operations.aside.exported import line_of, read_lines
from leasehold.operations.aside.rejected import IS_A_ROW, RejectedAside
from leasehold.pipeline_file import PipelineFile, read_pipeline_file
from leasehold.sinks import open_sink
from leasehold.sinks.set_aside import RejectedRow, RetryResult, Selection
from leasehold.spark import EntityTable, MicroBatches
from leasehold.spark.retrying import Retransform
from tests.spark.places import FENCE, QUICK

PIPELINE = """
name = "p"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///stores.db"
[transform]
schema = "{schema}"
sql = "SELECT id, {n} AS n, hub, partition, sequenceNumber, ownerLevel FROM events{where}"
max_poison = 4
[sink]
url = "sqlite:///table.db"
table = "events"
{sink}
"""
UPSERT = 'keys = ["id"]'
APPEND = 'mode = "append"'


class Retried(NamedTuple):
    """What became of events, and which were left as they are."""

    result: RetryResult
    left: tuple[Left, ...]


class Place:
    """A log of one partition that has been read into a table by a schema that some bodies do not fit."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.hub = LogHub.create(folder / "hub.db", partitions=1)

    def file(self, *, schema: str = "id STRING, n STRING", n: str = "CAST(n AS BIGINT)", where: str = "",
             sink: str = UPSERT) -> PipelineFile:  # fmt: skip
        path = self.folder / "p.toml"
        path.write_text(PIPELINE.format(schema=schema, n=n, where=where, sink=sink))
        return read_pipeline_file(path)

    def fill(self, *bodies: str, sink: str = UPSERT, made: str = "") -> None:
        self.hub.send([Event(body.encode(), properties={"p": "x"}) for body in bodies], partition="0")
        if made:
            with self.database() as connection:
                connection.execute(made)
        keys = ("id",) if sink == UPSERT else ()
        mode = "upsert" if keys else "append"
        url = f"sqlite:///{self.folder}/table.db"
        table = EntityTable(url, "events", mode=mode, keys=keys, pipeline="p")
        store = f"sqlite:///{self.folder}/stores.db"
        schema = "id STRING, n BIGINT"
        given = {**QUICK, "available_now": True, "pipeline": "p", "schema": schema}
        with MicroBatches(self.spark, self.hub.url, store=store, **given) as batches:
            for batch in batches:
                table.apply(batch.events.select("id", "n", *FENCE), batch)
        table.close()

    def aside(self, file: PipelineFile) -> RejectedAside:
        sink = open_sink(file.sink_url, file.table_spec())
        return RejectedAside(file, sink, lambda file: Retransform(file, self.spark))

    def retry(
        self, file: PipelineFile, choice: EntryFilter | None = None, mended: Sequence[str] | None = None
    ) -> Retried:
        """Try events again: of a choice, or of the lines of a file."""
        aside = self.aside(file)
        lines = None if mended is None else read_lines(aside.kind, aside.names, mended)
        done = aside.retry(choice or EntryFilter(), lines, lambda seen: None)
        return Retried(RetryResult(**done.counts), tuple(done.left))

    def export(self, file: PipelineFile) -> list[str]:
        return [line_of("rejected", entry.record) for entry in self.aside(file).chosen(EntryFilter())]

    def rejected(self, file: PipelineFile) -> list[RejectedRow]:
        return open_sink(file.sink_url, file.table_spec()).rejected_rows.rows(Selection(), 100)

    def rows(self) -> list[tuple[object, ...]]:
        with self.database() as connection:
            return connection.execute("SELECT id, n FROM events ORDER BY id, n").fetchall()

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.folder / "table.db")
        try:
            with connection:
                yield connection
        finally:
            connection.close()


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def body(key: str, n: object) -> str:
    return f'{{"id": "{key}", "n": {n}}}'


def test_a_mended_schema_brings_bodies_into_the_table_behind_later_events(place: Place) -> None:
    place.fill(body("a", '"x1"'), body("b", '"x2"'), body("a", 7), "not JSON", body("c", '"x3"'))
    assert place.rows() == [("a", 7)]
    done = place.retry(place.file(n="CAST(replace(n, 'x', '') AS BIGINT)"))
    assert done == Retried(RetryResult(applied=2, superseded=1, rejected=1), ())
    assert place.rows() == [("a", 7), ("b", 2), ("c", 3)]
    (left,) = place.rejected(place.file())
    assert left.body == b"not JSON"
    assert left.reason.startswith("the body is not a JSON object")
    assert place.retry(place.file(), EntryFilter(frozenset({("0", 0)}))) == Retried(RetryResult(), ())


def test_what_the_hub_has_removed_is_made_of_what_the_table_keeps(place: Place) -> None:
    """Appended, with what only the event has: its time and its properties."""
    place.fill(body("a", '"x"'), body("b", 1), sink=APPEND)
    (sent,) = list(place.hub.read("0", 0, 1))
    place.hub.retain(max_bytes=0)
    n = "unix_micros(enqueuedTime) + length(properties['p'])"
    done = place.retry(place.file(n=n, sink=APPEND))
    assert done == Retried(RetryResult(applied=1), ())
    micros = sent.column("enqueuedTime").cast("int64")[0].as_py()
    assert place.rows() == [("a", micros + 1), ("b", 1)]


@pytest.mark.parametrize("removed", [True, False])
def test_a_mended_body_goes_through_the_transform_in_place_of_its_own(place: Place, removed: bool) -> None:
    """Of what the table keeps, or of what the hub has; behind later events of its key, and rejected by its own body."""
    place.fill(body("a", '"x1"'), body("b", '"x2"'), body("c", '"x3"'), body("a", 7))
    file = place.file(n="CAST(n AS BIGINT)" if removed else "CAST(n AS BIGINT) + 0 * length(properties['p'])")
    lines = [json.loads(line) for line in place.export(file)]
    for line, number in zip(lines, ("1", "2", '"x9"'), strict=True):
        line["body"] = body(json.loads(line["body"])["id"], number)
    if removed:
        place.hub.retain(max_bytes=0)
    done = place.retry(file, mended=[json.dumps(line) for line in lines])
    assert done == Retried(RetryResult(applied=1, superseded=1, rejected=1), ())
    assert place.rows() == [("a", 7), ("b", 2)]
    (kept,) = place.rejected(file)
    assert kept.body == body("c", '"x3"').encode(), "what is rejected again has the body that it came with"
    again = place.retry(file, mended=[json.dumps(line) for line in lines])
    assert (again.result, len(again.left)) == (RetryResult(), 3), "it was set aside anew"


def test_a_row_that_the_transform_has_made_has_no_body_to_mend(place: Place) -> None:
    place.fill(body("a", -1), body("b", 2), made=MADE)
    file = place.file()
    (line,) = map(json.loads, place.export(file))
    done = place.retry(file, mended=[json.dumps(line | {"body": body("a", 1)})])
    assert (done.result, [one.why for one in done.left]) == (RetryResult(), [IS_A_ROW])
    assert place.rows() == [("b", 2)]


MADE = "CREATE TABLE events (id TEXT NOT NULL PRIMARY KEY, n INTEGER CHECK (n > 0))"


def test_a_row_that_did_not_fit_the_table_is_read_from_the_hub(place: Place) -> None:
    place.fill(body("a", -1), body("b", 2), body("c", -3), made=MADE)
    (first, _) = place.rejected(place.file())
    assert first.source is None
    only_first = EntryFilter(frozenset({("0", 0)}))
    assert place.retry(place.file(n="abs(CAST(n AS BIGINT))"), only_first).result == RetryResult(applied=1)
    place.hub.retain(max_bytes=0)
    done = place.retry(place.file(n="abs(CAST(n AS BIGINT))"))
    assert done.result == RetryResult()
    assert [(one.number, "the hub has removed it" in one.why) for one in done.left] == [(2, True)]
    assert place.rows() == [("a", 1), ("b", 2)]
    assert len(place.rejected(place.file())) == 1


@pytest.mark.more
def test_what_still_cannot_be_computed_stays_with_the_reason(place: Place) -> None:
    place.fill(*(body(f"k{number}", f'"{number}"') for number in range(8)))
    n = "IF(CAST(n AS INT) % {} = 0, raise_error('too round'), CAST(n AS BIGINT))"
    result = place.retry(place.file(n=n.format(3))).result
    assert result == RetryResult(applied=5, rejected=3)
    left = place.rejected(place.file())
    assert [row.event.sequence_number for row in left] == [0, 3, 6]
    assert {"too round" in row.reason and row.reason.startswith("cannot be computed: ") for row in left} == {True}
    assert place.retry(place.file(where=" WHERE n <> '3'")).result == RetryResult(applied=2, filtered=1)
    assert [key for key, _ in place.rows()] == [f"k{number}" for number in range(8) if number != 3]


@pytest.mark.more
def test_too_many_that_cannot_be_computed_stop_it(place: Place) -> None:
    place.fill(*(body(f"k{number}", '"x"') for number in range(9)))
    with pytest.raises(PipelineFailed, match="more than 4 of 9 events cannot be computed"):
        place.retry(place.file(n="CAST(raise_error('down') AS BIGINT)"))
    left = place.rejected(place.file())
    assert len(left) == 9
    assert not any("down" in row.reason for row in left)
