"""A loop on a cluster with speculation: Spark starts a second attempt of each slow task, which stages its rows as well.

`python -m tests.faults.speculated_program MASTER URL HUB FOLDER EVENTS KIND …` applies all events of the hub, at most
EVENTS in a batch, one task of which is slow as `stagers.Slow` says.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from leasehold.sinks.base import Stager
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.table import BatchResult
from leasehold.sinks.staged import StagedBatch
from leasehold.spark import EntityTable, MicroBatches, Writing, open_session
from tests.spark.places import FENCE, QUICK
from tests.spark.stagers import Slow
from tests.waiting import until

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


def main(master: str, url: str, hub: str, folder: str, events: str, *kinds: str) -> None:
    stager_of, apply_staged, place = PostgresSink.stager, PostgresSink.apply_staged, Path(folder)

    def slow(self: PostgresSink) -> Stager | None:
        stager = stager_of(self)
        return None if stager is None else Slow(stager, place, kinds)

    def marked(self: PostgresSink, batch: StagedBatch, *others: Any) -> BatchResult:
        result = apply_staged(self, batch, *others)
        (place / f"merged-{batch.batch}").touch()
        return result

    PostgresSink.stager, PostgresSink.apply_staged = slow, marked  # type: ignore[method-assign, assignment]
    spark = open_session("speculation", {**CLUSTER, **SPECULATION}, master)
    writing = Writing(keep=FENCE[1:3], stage_from=1)
    table = EntityTable(url, "flights", mode="append", pipeline="flights", writing=writing)
    options = {**QUICK, "available_now": True, "pipeline": "flights", "schema": "id STRING, n BIGINT"}
    options |= {"min_partitions": 4, "max_events_per_trigger": int(events)}
    with MicroBatches(spark, hub, store=f"sqlite:///{folder}/stores.db", **options) as batches:
        for batch in batches:
            table.apply(batch.events.select("id", "n", *FENCE), batch)
            print("failure:", batch.failure, flush=True)
    late = [mark.name.removeprefix("slow-") for mark in place.glob("slow-*") if mark.read_text() == "late"]
    for token in late:
        until((place / f"zombie-{token}").exists, "the slow attempt to have staged its rows")
    table.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
