"""The Postgres sink beside what a program would write by hand: batches into a table with two unique indexes.

The table has 1,000,000 rows, a batch 100,000, each with another key; all of it by one thread, with the server on the
same machine. In one process: ADBC's copy of Arrow into an unlogged table and one INSERT … ON CONFLICT, which is the
limit; the same with a comparison of times, as `sequence_by` has one; psycopg's `executemany`; `Sink.apply`, without and
with `sequence_by`; and each batch applied once more. From Spark: its JDBC writer (with `reWriteBatchedInserts`) into an
unlogged table and the same merge; `toArrow` and ADBC; `EntityTable.apply`.

The sides write the same batches to tables of their own, in turns, each round beginning with another side; the figure
is the median of the rounds. Between the rounds there is a vacuum. In the end all tables hold the same. A plain merge
has no watermark, no memory of keys, nothing set aside, and would apply a batch again.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, TypeVar

sys.path.append(str(Path(__file__).parents[1]))

import _pytest.outcomes
import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame
from tests.peers.maven import jars

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.sinks import Batch, Sink, TableSpec, open_sink
from leasehold.spark import EntityTable, MicroBatches, open_session
from postgres_sink_sides import (
    COLUMNS,
    PARTITIONS,
    VALUES,
    adbc,
    contents,
    create,
    create_staging,
    events,
    in_spark,
    merge,
    served,
    staged,
)

Row = tuple[str, float, str, float | None, str]
JDBC = "org.postgresql:postgresql:42.7.7"
_FENCE = ("hub", "partition", "sequenceNumber", "ownerLevel")
_PIPELINE = "bench"
_WARM = 1

T = TypeVar("T")
Side = Callable[[T], object]


class Sizes:
    """How many rows the table and a batch have, and how many rounds are counted."""

    def __init__(self, quick: bool) -> None:
        self.table, self.batch, self.rounds = (100_000, 10_000, 3) if quick else (1_000_000, 100_000, 7)

    def beginning(self) -> list[pa.Table]:
        """What the tables hold at first."""
        return [events(first, self.batch, self.table) for first in range(0, self.table, self.batch)]

    def next(self) -> list[pa.Table]:
        """The batches of the rounds."""
        return [
            events(self.table + number * self.batch, self.batch, self.table) for number in range(self.rounds + _WARM)
        ]


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    sizes = Sizes(quick)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # Postgres' own user must get in, where this one is root
        url = stack.enter_context(served(folder))
        driver = adbc()
        looking = stack.enter_context(psycopg.connect(url, autocommit=True))
        return _rows(
            _in_one_process(stack, url, looking, driver, sizes), _from_spark(stack, url, folder, driver, sizes)
        )


def _rows(process: Mapping[str, float], spark: Mapping[str, float]) -> list[Row]:
    rows: list[Row] = []

    def add(name: str, speeds: Mapping[str, float], key: str, beside: str | None, goal: str = "") -> None:
        if key in speeds:
            ratio = speeds[key] / speeds[beside] if beside in speeds else None  # type: ignore[index]
            rows.append((name, speeds[key], "rows/s", ratio, goal))

    add("ADBC's copy and a merge: the limit", process, "bare", None)
    add("ADBC's copy and a merge that compares times", process, "bare by time", "bare")
    add("Sink.apply, keys stay in their partitions", process, "sink", "bare", "ratio >= 0.75")
    add("Sink.apply with sequence_by", process, "sink by time", "bare", "ratio >= 0.6")
    add("the same, to the merge that compares times", process, "sink by time", "bare by time")
    add("psycopg's executemany", process, "executemany", "bare")
    add("Sink.apply, to executemany", process, "sink", "executemany", "ratio >= 4")
    add("Sink.apply of a batch that was applied", process, "again", None, ">= 500,000")
    add("from Spark: JDBC and a merge", spark, "jdbc", None)
    add("from Spark: toArrow, ADBC and a merge", spark, "adbc", "jdbc")
    add("from Spark: EntityTable", spark, "table", "jdbc")
    return rows


class Rounds:
    """Sides that take turns, and the seconds that each has taken."""

    def __init__(self, looking: psycopg.Connection[Any], tables: Sequence[str]) -> None:
        self._looking, self._tables = looking, tables
        self.taken: dict[str, list[float]] = {}
        self._turn = 0

    def play(self, sides: Mapping[str, Side[T]], batch: T) -> None:
        """Each side, after a vacuum of all tables."""
        self._looking.execute(f"VACUUM ANALYZE {', '.join(self._tables)}")
        self._looking.execute("CHECKPOINT")
        self._turn += 1
        names = list(sides)
        first = self._turn % len(names)
        for name in names[first:] + names[:first]:
            began = time.perf_counter()
            sides[name](batch)
            self.note(name, time.perf_counter() - began)

    def note(self, name: str, seconds: float) -> None:
        self.taken.setdefault(name, []).append(seconds)

    def speeds(self, rows: int) -> dict[str, float]:
        """Rows a second in the median of the rounds that count."""
        return {name: rows / statistics.median(taken[_WARM:]) for name, taken in self.taken.items()}


def _check(looking: psycopg.Connection[Any], tables: Sequence[str]) -> None:
    """All tables hold the same."""
    found = {table: contents(looking, table) for table in tables}
    assert len(set(found.values())) == 1, found


# in one process


def _in_one_process(
    stack: ExitStack, url: str, looking: psycopg.Connection[Any], driver: ModuleType | None, sizes: Sizes
) -> dict[str, float]:
    for table in ("sunk", "sunk_by_time"):
        create(looking, table)
    sink = _opened(stack, url, "sunk", None)
    by_time = _opened(stack, url, "sunk_by_time", "at")
    for rows in sizes.beginning():
        sink.apply(Batch(rows))
        by_time.apply(Batch(rows, sequence_by=rows["at"]))
    plain = ["executed", *(["copied", "copied_by_time"] if driver else [])]
    for table in plain:
        _begin(looking, table, "sunk")
    tables = ["sunk", "sunk_by_time", *plain]
    beside = ["leasehold_key_sunk", "leasehold_key_sunk_by_time", "leasehold_watermark"]
    rounds = Rounds(looking, [*tables, *beside])

    def apply(rows: pa.Table) -> None:
        assert sink.apply(Batch(rows)).applied == rows.num_rows

    def apply_by_time(rows: pa.Table) -> None:
        assert by_time.apply(Batch(rows, sequence_by=rows["at"])).applied == rows.num_rows

    writing = stack.enter_context(psycopg.connect(url, autocommit=True))

    def execute(rows: list[tuple[Any, ...]]) -> None:
        with writing.transaction(), writing.cursor() as cursor:
            cursor.executemany(merge("executed", VALUES), rows)

    sides: dict[str, Side[pa.Table]] = {"sink": apply, "sink by time": apply_by_time}
    if driver:
        create_staging(looking, "staging")
        copied = stack.enter_context(driver.connect(url))
        sides["bare"] = lambda rows: _copy(copied, rows, "copied")
        sides["bare by time"] = lambda rows: _copy(copied, rows, "copied_by_time", by_value=True)
    for rows in sizes.next():
        rounds.play(sides, rows)
        tuples = list(zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True))
        began = time.perf_counter()
        execute(tuples)
        rounds.note("executemany", time.perf_counter() - began)
        began = time.perf_counter()
        assert sink.apply(Batch(rows)).replayed == rows.num_rows
        rounds.note("again", time.perf_counter() - began)
    _check(looking, tables)
    return rounds.speeds(sizes.batch)


def _opened(stack: ExitStack, url: str, table: str, sequence_by: str | None) -> Sink:
    spec = TableSpec(name=table, pipeline=_PIPELINE, keys=("id",), sequence_by=sequence_by)
    sink = open_sink(url, spec)
    stack.callback(sink.close)
    return sink


def _begin(looking: psycopg.Connection[Any], table: str, other: str) -> None:
    """A table with the rows that the other one has."""
    create(looking, table)
    looking.execute(f"INSERT INTO {table} SELECT * FROM {other} ORDER BY id")


def _copy(connection: Any, rows: pa.Table, table: str, *, by_value: bool = False) -> None:
    """ADBC's copy and the merge, in one transaction."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE staging")
        cursor.adbc_ingest("staging", rows.select(list(COLUMNS)), mode="append")
        cursor.execute(merge(table, staged("staging"), by_value=by_value))
    connection.commit()


# from Spark


def _from_spark(stack: ExitStack, url: str, folder: Path, driver: ModuleType | None, sizes: Sizes) -> dict[str, float]:
    libraries = _jdbc()
    settings = {"spark.driver.memory": "2g", "spark.sql.session.timeZone": "UTC"}
    if libraries is not None:
        settings["spark.jars"] = ",".join(map(str, libraries.glob("*.jar")))
    hub = _log(folder, sizes)
    stack.callback(hub.close)
    spark = open_session("bench postgres sink", settings, "local[2]")
    stack.callback(spark.stop)
    looking = stack.enter_context(psycopg.connect(url, autocommit=True))
    tables = {"table": "by_table"}
    create(looking, "by_table")
    _fill(stack, url, "by_table", hub.identity, sizes)
    ours = EntityTable(url, "by_table", keys=["id"], pipeline=_PIPELINE)
    stack.callback(ours.close)
    plain: dict[str, Side[DataFrame]] = {}
    if libraries is not None:
        tables["jdbc"] = "by_jdbc"
        create_staging(looking, "staging_jdbc")
        plain["jdbc"] = lambda rows: _jdbc_and_merge(url, looking, rows)
    if driver is not None:
        tables["adbc"] = "by_adbc"
        connection = stack.enter_context(driver.connect(url))
        plain["adbc"] = lambda rows: _copy(connection, rows.toArrow(), "by_adbc")
    for way in plain:
        _begin(looking, tables[way], "by_table")
    rounds = Rounds(looking, [*tables.values(), "leasehold_key_by_table"])
    stores = f"sqlite:///{folder}/stores.db"
    with MicroBatches(
        spark,
        hub.url,
        store=stores,
        pipeline=_PIPELINE,
        available_now=True,
        starting_position=sizes.table // PARTITIONS,
        max_events_per_trigger=sizes.batch,
        settle_delay=0,
        rng=Random(1),
    ) as batches:
        for batch in batches:
            assert len(batch) == sizes.batch
            rows = batch.events.selectExpr(*in_spark(sizes.table), *_FENCE)
            rounds.play({"table": _applying(ours, batch), **plain}, rows)
    _check(looking, [*tables.values(), "sunk"])
    return rounds.speeds(sizes.batch)


def _applying(table: EntityTable, batch: Any) -> Side[DataFrame]:
    def apply(rows: DataFrame) -> None:
        assert table.apply(rows, batch).applied == len(batch)

    return apply


def _jdbc() -> Path | None:
    """The folder of JDBC's driver; None, and a line that says so, where it cannot be had."""
    if shutil.which("mvn") is None:
        print("postgres_sink: the side of JDBC is left out: there is no mvn here", file=sys.stderr)
        return None
    try:
        return jars("postgres-jdbc", [JDBC])
    except (_pytest.outcomes.Skipped, _pytest.outcomes.Failed) as reason:
        print(f"postgres_sink: the side of JDBC is left out: {reason.msg}", file=sys.stderr)
        return None


def _jdbc_and_merge(url: str, looking: psycopg.Connection[Any], rows: DataFrame) -> None:
    server = url.replace("postgresql://postgres@", "jdbc:postgresql://")
    given = {"user": "postgres", "driver": "org.postgresql.Driver", "truncate": "true", "batchsize": "10000"}
    rows.select(*COLUMNS).write.jdbc(
        f"{server}?reWriteBatchedInserts=true", "staging_jdbc", mode="overwrite", properties=given
    )
    looking.execute(merge("by_jdbc", staged("staging_jdbc")))


def _log(folder: Path, sizes: Sizes) -> LogHub:
    """A log with an event for each row of the table and of the batches; what rows hold follows from its number."""
    hub = LogHub.create(folder / "hub.db", partitions=PARTITIONS)
    each = (sizes.table + (sizes.rounds + _WARM) * sizes.batch) // PARTITIONS
    for partition in map(str, range(PARTITIONS)):
        for first in range(0, each, 5_000):
            hub.send([Event(b"-")] * min(5_000, each - first), partition=partition)
    return hub


def _fill(stack: ExitStack, url: str, table: str, identity: str, sizes: Sizes) -> None:
    """Bring the table to where the loop begins."""
    sink = _opened(stack, url, table, None)
    for rows in sizes.beginning():
        place = rows.schema.get_field_index("hub")
        level = rows.schema.get_field_index("ownerLevel")
        its = rows.set_column(place, "hub", pa.array([identity] * rows.num_rows))
        sink.apply(Batch(its.set_column(level, "ownerLevel", pa.array([0] * rows.num_rows, pa.int64()))))


if __name__ == "__main__":
    for name, figure, unit, ratio, goal in run("--quick" in sys.argv):
        against = "" if ratio is None else f"{ratio:.2f}"
        print(f"{name:50} {figure:>10,.0f} {unit:7} {against:>6} {goal}")
