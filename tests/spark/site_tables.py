"""The table of one log, filled by a loop and by a query, on a session with settings that a site's Spark may bring.

`python -m tests.spark.site_tables FOLDER` fills both on a session that was started with the settings of `STATIC`, of
which none can be changed while a session runs, and a third one in FOLDER/killed, by a query whose tasks Spark has to
try again. The log is at FOLDER/hub.db.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.spark import EntityTable, MicroBatches, RowRules, open_session, read_bodies
from tests.spark.conftest import SETTINGS
from tests.spark.places import FENCE, QUICK
from tests.spark.programs import FAST

STATIC = {
    "spark.driver.maxResultSize": "1m",
    "spark.speculation": "true",
    "spark.python.worker.reuse": "false",
}
SCHEMA = "id STRING, Name STRING, at TIMESTAMP_LTZ, d DATE, amount DOUBLE, n BIGINT, gone BOOLEAN, tags ARRAY<STRING>"
ROWS = ("id", "Name", "at", "d", "amount", "n", "gone", "tags", "enqueuedTime", "try_cast(Name AS INT) AS number")
RULES = RowRules(sequence_by="at", delete_when="gone", deduplicate_by="at", deduplicate_for="1h")
TIMES = (
    # In Berlin the clock goes from 02:00 to 03:00 at 01:00 UTC …
    *("2026-03-29T00:59:59.999999Z", "2026-03-29T01:00:00Z", "2026-03-29T02:30:00+01:00", "2026-03-29T02:30:00+02:00"),
    # … and at 01:00 UTC of that day from 03:00 to 02:00.
    *("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T00:30:00.5Z", "2026-10-25T01:30:00.5Z"),
    *("2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"),  # the first two of that night again
)


def make_log(folder: Path, *, weight: int = 1) -> None:
    """A log of events in both nights, of one that fits no schema, and of `weight` events to a moment before them."""
    hub = LogHub.create(folder / "hub.db", partitions=1)
    old = [
        {"id": f"o{number}", "at": f"2020-01-01T00:00:00.{number:06}Z", "Name": "x" * 500} for number in range(weight)
    ]
    new = [
        {"id": f"k{n % 5}", "at": at, "Name": str(n), "d": "2026-03-29", "amount": n / 4, "n": n, "tags": ["a", str(n)]}
        | {"gone": n == 3}
        for n, at in enumerate(TIMES)
    ]
    hub.send([*(Event(json.dumps(one).encode()) for one in [*old, *new]), Event(b"bad")], partition="0")


def by_loop(spark: SparkSession, folder: Path, to: Path, schema: str = SCHEMA) -> None:
    table = EntityTable(f"sqlite:///{to}/loop.db", "things", keys=["id"], pipeline="p", rules=RULES)
    store = f"sqlite:///{to}/loop-stores.db"
    given = {**QUICK, "available_now": True, "pipeline": "p", "schema": schema}
    with MicroBatches(spark, f"log:///{folder}/hub.db", store=store, **given) as batches:
        for batch in batches:
            table.apply(batch.events.selectExpr(*ROWS, *FENCE), batch)
    table.close()


def by_query(
    spark: SparkSession,
    folder: Path,
    to: Path,
    schema: str = SCHEMA,
    transform: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> None:
    rules = replace(RULES, reject_by="why")
    table = EntityTable(f"sqlite:///{to}/query.db", "things", keys=["id"], pipeline="p", rules=rules)
    options = {"hub": f"log:///{folder}/hub.db", "store": f"sqlite:///{to}/query-stores.db", **FAST}
    options |= {"maxEventsPerTrigger": "700", **table.stream_options()}
    events = spark.readStream.format("leasehold").options(**options).load()
    rows = transform(read_bodies(events, schema, reason="why").selectExpr(*ROWS, *FENCE, "body", "why"))
    writer = rows.writeStream.foreachBatch(table.apply_query_batch).option("checkpointLocation", f"{to}/scratch")
    writer.trigger(availableNow=True).start().awaitTermination()
    table.close()


WAYS: dict[str, Callable[..., None]] = {"loop": by_loop, "query": by_query}


def contents(to: Path, way: str) -> list[object]:
    """What the table is and holds, with what was rejected."""
    connection = sqlite3.connect(to / f"{way}.db")
    made = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'things'").fetchall()
    names = ", ".join(column.rpartition(" ")[2] for column in ROWS)
    rows = connection.execute(f"SELECT {names} FROM things ORDER BY id").fetchall()
    rejected = connection.execute("SELECT sequence_number, body, reason FROM things_rejected ORDER BY 1").fetchall()
    connection.close()
    return [made, rows, rejected]


def killed_once(marks: Path) -> Callable[[DataFrame], DataFrame]:
    """A transform in which the worker of each task is killed when it has given its first rows, the first time."""

    def give(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if context.attemptNumber() == 0:
                (marks / f"killed-{context.stageId()}-{context.partitionId()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return lambda rows: rows.mapInArrow(give, rows.schema)


def main(folder: str) -> None:
    settings = {**STATIC, **SETTINGS, "spark.sql.shuffle.partitions": "4"}
    spark = open_session("a site's", settings, "local[2,3]")
    for fill in WAYS.values():
        fill(spark, Path(folder), Path(folder))
    killed = Path(folder) / "killed"
    killed.mkdir()
    by_query(spark, Path(folder), killed, transform=killed_once(killed))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
