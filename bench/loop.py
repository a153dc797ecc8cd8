"""A micro-batch from the log to a SQLite table: the loop of `leasehold run`, and a streaming query with `foreachBatch`.

Both read the same log in the same session, upsert the same flights into a table each, and get batches of the same
size. The loop reads bodies in its tasks and writes one batch while it reads the next; the query parses with
`from_json`, as a program would, which checks less. The first batches of each are not counted. The sides take turns,
each time into a new table, and figures are medians.

The flights come in the order of time, two or three events of each close together. Once more the loop gets the same
bodies with other keys: each key comes once in a batch, and keys in random order, half of the events into a table that
grows and half over all that it has. CPU seconds are those of Python, Java and the workers.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cpu_times import CpuTimes
from leasehold.cli.demo.command import PARTITIONS, PIPELINE
from leasehold.cli.demo.data import FlightEvents
from leasehold.hubs.log.hub import Keyless, LogHub
from leasehold.pipeline_file import PipelineFile
from leasehold.spark import EntityTable, open_session, read_pipeline_file
from leasehold.spark.pipeline import PipelineRun

Row = tuple[str, float, str, float | None, str]
GOALS = {2_000: "", 25_000: "75,000", 100_000: "100,000"}
"""Of each size of batches: what is to be reached with three events a key, and with distinct keys."""
WARM = 3
TURNS = 3


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        spark = open_session("bench loop", {"spark.driver.memory": "2g"}, "local[2]")
        for size, goal in GOALS.items():
            logs = filled(path, size, quick)
            sides = {side: partial(speed_of_loop, spark, log, size) for side, log in logs.items()}
            speeds = in_turns({"query": partial(speed_of_query, spark, logs["repeated"], size), **sides}, quick)
            query, loop, distinct = speeds["query"], speeds["repeated"], speeds["distinct"]
            rows += rows_of(f"query and foreachBatch, {size:,} a batch", query)
            rows += rows_of(f"loop, {size:,} a batch", loop, loop.events / query.events, goal)
            rows += rows_of(f"loop, {size:,} a batch, distinct keys", distinct, distinct.events / loop.events, goal)
        rows += _latency(spark, path)
        spark.stop()
    return rows


def filled(path: Path, size: int, quick: bool) -> dict[str, Path]:
    """Folders with a log each for batches of this size: with three events a key, and with distinct keys."""
    events = size * (WARM + (2 if quick else 5 if size == 100_000 else 12))
    logs = {"repeated": path / f"{size}", "distinct": path / f"{size}-distinct"}
    for side, fill_log in (("repeated", fill), ("distinct", fill_distinct)):
        logs[side].mkdir()
        fill_log(logs[side], events)
    return logs


def fill(place: Path, events: int) -> None:
    """A log of flights that `PIPELINE` reads."""
    hub = LogHub.create(place / "flights-hub.db", partitions=PARTITIONS)
    sent = FlightEvents(events)
    for table in sent.tables():
        hub.send_table(table, keyless=Keyless.ONE_PARTITION)
    hub.close()


def fill_distinct(place: Path, events: int) -> None:
    """A log of `events` bodies of flights with other keys: each in the first half and in the second, in random order.

    Only a batch from the middle may have a key twice.
    """
    hub = LogHub.create(place / "flights-hub.db", partitions=PARTITIONS)
    random, every = Random(1), range(events // 2)
    numbers = pa.array([*random.sample(every, len(every)), *random.sample(every, len(every))], pa.int64())
    sent = 0
    for table in FlightEvents(events // 2).tables():  # a flight has two events at least
        keys = pc.utf8_lpad(numbers.slice(sent, table.num_rows).cast(pa.string()), 22, "0")  # as long as a flight
        sent += len(keys)
        rest = pc.replace_substring_regex(table["body"].slice(0, len(keys)).cast(pa.string()), '^{"flight":"[^"]*', "")
        bodies = pc.binary_join_element_wise('{"flight":"', keys, rest, "").cast(pa.binary())
        hub.send_table(pa.table({"body": bodies, "partitionKey": keys}), keyless=Keyless.ONE_PARTITION)
    hub.close()


@contextlib.contextmanager
def _turn(place: Path, size: int, text: str = PIPELINE) -> Iterator[PipelineFile]:
    """The pipeline on the log in this folder, with a table and stores of its own."""
    text = text.replace("max_events_per_trigger = 25000", f"max_events_per_trigger = {size}")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        file = Path(folder, "flights.toml")
        file.write_text(text.replace("log:///", "log:///../"))
        yield read_pipeline_file(file)


class Speed(NamedTuple):
    """Events a second, and CPU seconds that 100,000 events take."""

    events: float
    cpu: float


def rows_of(what: str, speed: Speed, ratio: float | None = None, goal: str = "") -> list[Row]:
    """The two rows of one loop."""
    return [(what, speed.events, "events/s", ratio, goal), (f"{what}: CPU a 100,000 events", speed.cpu, "s", None, "")]


def in_turns(sides: Mapping[str, Callable[[], Speed]], quick: bool) -> dict[str, Speed]:
    """The medians of each side, one side after the other in each turn."""
    turns = [{side: measure() for side, measure in sides.items()} for _ in range(1 if quick else TURNS)]
    return {side: Speed(*map(median, zip(*(turn[side] for turn in turns), strict=True))) for side in sides}


class Marks:
    """When how many events had been applied, and the CPU seconds since the first batches."""

    def __init__(self, cpu: CpuTimes) -> None:
        self.seen: list[tuple[float, int]] = []
        self._cpu, self._before = cpu, 0.0

    def note(self, applied: int) -> None:
        if applied and (not self.seen or applied > self.seen[-1][1]):
            self.seen.append((time.perf_counter(), applied))
            self._cpu.look()
            if len(self.seen) == WARM:
                self._before = self._cpu.total()

    def speed(self) -> Speed:
        """Called at the end, and not before."""
        spent = self._cpu.total() - self._before
        (begun, before), (ended, after) = self.seen[WARM - 1], self.seen[-1]
        return Speed((after - before) / (ended - begun), 100_000 * spent / (after - before))


def speed_of_loop(spark: SparkSession, place: Path, size: int, text: str = PIPELINE, *servers: int) -> Speed:
    """The speed of `leasehold run` in batches of `size`, without the first of them.

    `servers` are processes that work for it, by their ids: their CPU seconds count as well.
    """
    marks = Marks(CpuTimes(os.getpid(), *servers))
    run_loop(spark, place, size, text, marks.note)
    return marks.speed()


def run_loop(spark: SparkSession, place: Path, size: int, text: str, note: Callable[[int], None]) -> None:
    """`leasehold run` until all there is is consumed. `note` is told how many events have been applied."""
    kept: Any = _Kept(spark)
    with _turn(place, size, text) as file:
        made = PipelineRun(
            file, java=kept, available_now=True, report=lambda told: note(told.totals.applied), rng=Random(1)
        )
        made.run(threading.Event())


class _Kept:
    """A session that is not stopped at the end of a run."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def wait(self) -> None:
        """Nothing: it is there."""

    def open(self) -> _Kept:
        """As `JavaStart` does."""
        return self

    def stop(self) -> None:
        """Nothing: the next one needs it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)


def speed_of_query(spark: SparkSession, place: Path, size: int) -> Speed:
    """The speed of a streaming query that parses with `from_json`, in batches of `size`."""
    marks = Marks(CpuTimes(os.getpid()))
    with _turn(place, size) as file:
        url, keys = f"sqlite:///{file.folder}/entities.db", file.sink.keys
        table = EntityTable(url, file.sink.table, keys=keys, pipeline="query")

        def apply(batch: DataFrame, number: int) -> None:
            parsed = batch.selectExpr(f"from_json(cast(body AS STRING), '{file.transform.schema}') AS e", "*")
            source = parsed.select("e.*", "hub", "partition", "sequenceNumber", "ownerLevel")
            source.createOrReplaceTempView("events")
            table.apply_batch(source.sparkSession.sql(file.transform.sql) if file.transform.sql else source)
            marks.note(table.totals.applied)

        reader = spark.readStream.format("leasehold").option("hub", file.hub_url)
        reader = reader.option("store", f"sqlite:///{file.folder}/leasehold.db").option(
            "maxEventsPerTrigger", str(size)
        )
        reader = reader.options(**table.stream_options())
        query = reader.load().writeStream.foreachBatch(apply).option("checkpointLocation", f"{file.folder}/scratch")
        query.trigger(availableNow=True).start().awaitTermination()
    return marks.speed()


def _latency(spark: SparkSession, path: Path) -> list[Row]:
    """Seconds from an append of 2,000 events to their commit in the table, and what an idle instance costs."""
    place = path / "latency"
    place.mkdir()
    fill(place, 2_000)
    (place / "flights.toml").write_text(PIPELINE)
    process = subprocess.Popen(
        [sys.executable, "-m", "leasehold.cli.app", "run", "flights.toml"],
        cwd=place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    hub = LogHub(place / "flights-hub.db")
    events = next(iter(FlightEvents(2_000).tables())).slice(0, 2_000)
    try:
        times = []
        for turn in range(40):
            if turn:
                begun = time.perf_counter()
                hub.send_table(events, keyless=Keyless.ONE_PARTITION)
            ends = {p: known.end for p, known in hub.partition_properties().items() if known.end}
            while not _reached(place, ends):
                time.sleep(0.002)
            if turn > 20:  # Java has compiled what it runs by then
                times.append(time.perf_counter() - begun)
        every = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        before = sum(sum(one.cpu_times()[:2]) for one in every)
        time.sleep(40)  # long enough for Java to give back what it does not need
        idle = (sum(sum(one.cpu_times()[:2]) for one in every) - before) * 60 / 40
        memory = sum(one.memory_full_info().pss for one in every) / 2**20
    finally:
        process.terminate()
        process.wait()
    times.sort()
    return [
        ("leasehold run: from append to table, 2,000 events, median", 1000 * times[len(times) // 2], "ms", None, "100"),
        ("leasehold run: an idle instance", idle, "CPU s/min", None, ""),
        ("leasehold run: memory of all its processes", memory, "MiB", None, ""),
    ]


def _reached(place: Path, ends: dict[str, int]) -> bool:
    """Whether the table has everything; asked without a lock that would hold up its writer."""
    if not (place / "entities.db").exists():
        return False
    with contextlib.closing(sqlite3.connect(f"file:{place}/entities.db?mode=ro", uri=True)) as connection:
        try:
            marks = dict(connection.execute("SELECT partition, sequence_number FROM leasehold_watermark").fetchall())
        except sqlite3.OperationalError:
            return False
    return all(marks.get(partition, -1) >= end - 1 for partition, end in ends.items())


if __name__ == "__main__":
    for line in run("--quick" in sys.argv):
        print(line)
