"""What `kafka_table.py` and `kafka_avro.py` run on another PySpark: all sides, in turns. Prints their medians as JSON.

`python kafka_table_sides.py GIVEN`, with a `Given` as JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pyarrow as pa
import pyarrow.csv
from pyspark.sql import DataFrame, SparkSession

from cpu_times import CpuTimes
from leasehold.cli.demo.command import PIPELINE
from leasehold.cli.demo.data import FIELDS
from leasehold.spark import open_session
from loop import run_loop

BY_HAND = (
    "Spark's source, JDBC and a merge",
    "Spark's source, COPY row by row and a merge",
    "Spark's source, COPY of Arrow's CSV and a merge",
)
OURS = "leasehold"
SIDES = (*BY_HAND, OURS)
TABLE, STAGING = "flights", "staging"
STAGED = (*FIELDS, "offset")
_PATIENCE = 1_200.0
_MEMORY = "64MB"
"""`work_mem` of the merges by hand: they sort as the loop's own does, which asks for as much."""
_NUMBERS = count(1)


@dataclass(frozen=True)
class Size:
    """How many events a batch has, how many batches are in a topic, and how many of them are there to warm up."""

    batch: int
    warm: int
    batches: int
    topic: str

    @property
    def events(self) -> int:
        return self.batch * self.batches


@dataclass(frozen=True)
class Given:
    """What the sides get: `parsed` is what the queries by hand make of a `value`, `stated` lines of `[transform]`."""

    servers: str
    url: str
    jars: list[str]
    folder: str
    turns: int
    sizes: list[Size]
    parsed: str
    stated: str


@dataclass
class Span:
    """When and at which CPU time the batches that count began, and ended. `note` is told of each batch."""

    size: Size
    cpu: CpuTimes
    marks: list[tuple[float, float, int]] = field(default_factory=list)
    most: int = 0

    def note(self, events: int) -> None:
        """All up to this many events are in the table."""
        self.most = max(events, self.most)
        self.cpu.look()
        until = self.size.batch * (self.size.batches - 1 if self.marks else self.size.warm)
        if events >= until and len(self.marks) < 2:
            self.marks.append((time.perf_counter(), self.cpu.total(), events))

    def figures(self, events: int | None = None) -> tuple[float, float]:
        """Events a second, and CPU seconds for 100,000 events. `events` is how many there were, if `note` guessed."""
        (begun, cpu_before, before), (ended, cpu_after, after) = self.marks
        between = after - before if events is None else events
        return between / (ended - begun), (cpu_after - cpu_before) / between * 100_000


# by hand


def create(connection: psycopg.Connection[Any]) -> None:
    """The table, as users make it, and one on the way to it: unlogged, and without an index."""
    types = {name: "integer" if name.endswith("delay") or name == "air_time" else "text" for name in FIELDS}
    columns = ", ".join(f"{name} {type_}" for name, type_ in types.items())
    connection.execute(f"CREATE TABLE {TABLE} ({columns}, PRIMARY KEY (flight))")
    connection.execute(f'CREATE UNLOGGED TABLE {STAGING} ({columns}, "offset" bigint)')


def merge() -> str:
    """The statement that brings the last row of each flight into the table: a flight has one partition."""
    names = ", ".join(FIELDS)
    updates = ", ".join(f"{name} = excluded.{name}" for name in FIELDS[1:])
    return (
        f"INSERT INTO {TABLE} ({names}) SELECT DISTINCT ON (flight) {names} FROM {STAGING} "
        f'ORDER BY flight, "offset" DESC ON CONFLICT (flight) DO UPDATE SET {updates}'
    )


def by_jdbc(rows: DataFrame, url: str) -> None:
    """Stage by Spark's JDBC writer."""
    server = url.replace("postgresql://postgres@", "jdbc:postgresql://")
    given = {"user": "postgres", "driver": "org.postgresql.Driver", "batchsize": "10000"}
    rows.write.jdbc(f"{server}?reWriteBatchedInserts=true", STAGING, mode="append", properties=given)


def by_rows(rows: DataFrame, url: str) -> None:
    """Stage row by row."""
    into = f"COPY {STAGING} FROM STDIN"

    def stage(partition: Iterable[Any]) -> None:
        with psycopg.connect(url) as connection, connection.cursor().copy(into) as copy:
            for row in partition:
                copy.write_row(row)

    rows.foreachPartition(stage)


def by_csv(rows: DataFrame, url: str) -> None:
    """Stage as Arrow writes CSV."""
    into = f"COPY {STAGING} FROM STDIN (FORMAT csv)"

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged, bare = 0, pyarrow.csv.WriteOptions(include_header=False)
        with psycopg.connect(url) as connection, connection.cursor().copy(into) as copy:
            for batch in batches:
                text = pa.BufferOutputStream()
                pyarrow.csv.write_csv(batch, text, bare)
                copy.write(memoryview(text.getvalue()))
                staged += batch.num_rows
        yield pa.RecordBatch.from_pydict({"staged": pa.array([staged], pa.int64())})

    rows.mapInArrow(stage, "staged bigint").collect()


@dataclass
class Turn:
    """One turn of a side: a batch size, and a database of its own."""

    spark: SparkSession
    given: Given
    size: Size
    url: str
    place: Path
    span: Span

    def by_hand(self, stage: Callable[[DataFrame, str], None]) -> tuple[float, float]:
        """A streaming query and a function of `foreachBatch`."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"SET work_mem = '{_MEMORY}'")

            def apply(batch: DataFrame, number: int) -> None:
                parsed = batch.selectExpr(f"{self.given.parsed} AS e", "offset")
                connection.execute(f"TRUNCATE {STAGING}")
                stage(parsed.selectExpr("e.*", "offset"), self.url)
                connection.execute(merge())
                self.span.note(self.size.batch * (number + 1))

            query = self._reader().load().writeStream.foreachBatch(apply)
            query = query.option("checkpointLocation", str(self.place / "scratch"))
            running = query.trigger(availableNow=True).start()
            assert running.awaitTermination(_PATIENCE)
        came = {progress["batchId"]: int(progress["numInputRows"]) for progress in running.recentProgress}
        assert sum(came.values()) == self.size.events, came
        return self.span.figures(sum(came[number] for number in range(self.size.warm, self.size.batches - 1)))

    def _reader(self) -> Any:
        options = {
            "kafka.bootstrap.servers": self.given.servers,
            "subscribe": self.size.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self.size.batch),
        }
        return self.spark.readStream.format("kafka").options(**options)

    def ours(self) -> tuple[float, float]:
        """The loop of `leasehold run`."""
        text = PIPELINE.replace("log:///flights-hub.db", f"kafka://{self.given.servers}/{self.size.topic}")
        text = text.replace("sqlite:///entities.db", self.url).replace("[sink]", f"{self.given.stated}[sink]")
        run_loop(self.spark, self.place, self.size.batch, text, self.span.note)
        assert self.span.most == self.size.events, f"{self.span.most:,} of {self.size.events:,} events"
        return self.span.figures()

    def play(self, side: str) -> tuple[float, float]:
        """The figures of a side."""
        if side == OURS:
            return self.ours()
        return self.by_hand((by_jdbc, by_rows, by_csv)[BY_HAND.index(side)])


# turns


class Turns:
    """Sides that take turns on one server."""

    def __init__(self, spark: SparkSession, given: Given) -> None:
        self._spark, self._given = spark, given
        self._looking = psycopg.connect(given.url, autocommit=True)
        server = psutil.Process(self._looking.info.backend_pid).parent()
        assert server is not None
        self._cpu = CpuTimes(os.getpid(), server.pid)

    def play(self, side: str, size: Size) -> tuple[tuple[float, float], tuple[Any, ...]]:
        """The figures of a side, and what its table holds."""
        name = f"turn_{next(_NUMBERS)}"
        place = Path(self._given.folder) / name
        place.mkdir()
        url = f"{self._given.url.rpartition('/')[0]}/{name}"
        self._looking.execute(f"CREATE DATABASE {name}")
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                create(connection)
            self._looking.execute("CHECKPOINT")
            span = Span(size, self._cpu)
            figures = Turn(self._spark, self._given, size, url, place, span).play(side)
            with psycopg.connect(url) as connection:
                held = contents(connection)
        finally:
            self._looking.execute(f"DROP DATABASE {name} WITH (FORCE)")
        print(
            f"{side}: {figures[0]:,.0f} events/s, {figures[1]:.2f} s for 100,000, {held}", file=sys.stderr, flush=True
        )
        return figures, held

    def round(self, size: Size, first: int) -> dict[str, tuple[float, float]]:
        """A turn of each side, beginning with another one each time. Raises where tables differ."""
        order = [*SIDES[first % len(SIDES) :], *SIDES[: first % len(SIDES)]]
        print(f"batches of {size.batch:,}", file=sys.stderr, flush=True)
        played = {side: self.play(side, size) for side in order}
        if len({held for _, held in played.values()}) != 1:
            raise AssertionError(f"tables differ: { {side: held for side, (_, held) in played.items()} }")
        return {side: figures for side, (figures, _) in played.items()}


def contents(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
    """What tells tables of different rows apart: how many there are, and a sum of the hashes of their columns."""
    found = connection.execute(
        f"SELECT count(*), sum(hashtextextended(ROW({', '.join(FIELDS)})::text, 0)::numeric) FROM {TABLE}"
    ).fetchone()
    assert found is not None
    assert found[0] > 0, "the table is empty"
    return tuple(found)


def main(text: str) -> None:
    told = json.loads(text)
    given = Given(**{**told, "sizes": [Size(**size) for size in told["sizes"]]})
    conf = {"spark.driver.memory": "2g", "spark.jars": ",".join(given.jars)}
    spark = open_session("bench kafka table", conf, "local[2]")
    turns = Turns(spark, given)
    print("not counted:", file=sys.stderr)
    turns.round(given.sizes[0], 0)  # Java has compiled what it runs by then
    found = {}
    for size in given.sizes:
        rounds = [turns.round(size, turn) for turn in range(given.turns)]
        found[str(size.batch)] = {
            side: [statistics.median(each[side][part] for each in rounds) for part in (0, 1)] for side in SIDES
        }
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
