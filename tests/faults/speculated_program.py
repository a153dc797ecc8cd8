"""A loop on a cluster with speculation: Spark starts a second attempt of each slow task, which gives rows as well.

`python -m tests.faults.speculated_program MASTER URL HUB FOLDER EVENTS KIND …` applies all events of the hub, at most
EVENTS in a batch, one task of which is slow as `Slow` says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from leasehold.spark import EntityTable, MicroBatches, Writing, open_session
from tests.spark.places import FENCE, QUICK
from tests.waiting import take, until

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.python.task.killTimeout": "120s",  # the attempt that is not needed goes on for so long
}
CLUSTER = {
    "spark.pyspark.python": sys.executable,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA,
}


@dataclass(frozen=True)
class Slow:
    """A transform by which the first attempt of a task hangs, and the rows that it gives are wrong.

    It hangs until the batch is applied: `before` it reads its events or `behind` its rows, and dies then, or between
    the two, and gives its rows `late`. Files in `folder` are about the batch, by its name: `slow` has which of the
    three, `second` is there when another attempt of the task begins, `applied` when the batch is in the table, `zombie`
    when rows come late.
    """

    folder: Path
    batch: str
    kind: str

    def __call__(self, events: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() or context.attemptNumber():
            if not context.partitionId():
                self.mark("second")
            yield from events
            return
        self.mark("slow", self.kind)
        rows = [] if self.kind == "before" else list(map(wrong, events))
        if self.kind == "behind":
            yield from rows
        self._hang()
        if self.kind != "late":
            os._exit(1)  # so that Spark gives its core to others
        self.mark("zombie")
        yield from rows

    def mark(self, what: str, text: str = "") -> None:
        """Leave a file that says so."""
        (self.folder / f"{what}-{self.batch}").write_text(text)

    def _hang(self) -> None:
        parent = os.getppid()
        while not (self.folder / f"applied-{self.batch}").exists():
            take(0.01)
            if os.getppid() != parent:  # the executor has ended
                os._exit(1)


def wrong(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same events with other values: if one of them gets into the table, it shows."""
    return rows.set_column(rows.schema.names.index("n"), "n", pa.array([-1] * rows.num_rows, pa.int64()))


def main(master: str, url: str, hub: str, folder: str, events: str, *kinds: str) -> None:
    place = Path(folder)
    spark = open_session("speculation", {**CLUSTER, **SPECULATION}, master)
    table = EntityTable(url, "flights", mode="append", pipeline="flights", writing=Writing(keep=FENCE[1:3]))
    options = {**QUICK, "available_now": True, "pipeline": "flights", "schema": "id STRING, n BIGINT"}
    options |= {"min_partitions": 4, "max_events_per_trigger": int(events)}
    with MicroBatches(spark, hub, store=f"sqlite:///{folder}/stores.db", **options) as batches:
        for turn, batch in enumerate(batches):
            slow, rows = Slow(place, batch.id, kinds[turn % len(kinds)]), batch.events.select("id", "n", *FENCE)
            result = table.apply(rows.mapInArrow(slow, rows.schema), batch)
            slow.mark("applied")
            print("failure:", batch.failure, "applied:", result.applied == len(batch), flush=True)
    late = [mark.name.removeprefix("slow-") for mark in place.glob("slow-*") if mark.read_text() == "late"]
    for name in late:
        until((place / f"zombie-{name}").exists, "the slow attempt to give its rows")
    table.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
