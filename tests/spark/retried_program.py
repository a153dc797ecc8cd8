"""A loop on a session whose tasks are tried again, in which a worker is killed in each batch, at the points given.

`python -m tests.spark.retried_program URL HUB FOLDER EVENTS POINT …` applies all events of the hub, at most EVENTS in a
batch and in pieces of a few rows, and says of each batch whether it failed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from leasehold.sinks.base import Stager
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.spark import EntityTable, MicroBatches, Writing, open_session
from tests.spark.places import FENCE, QUICK
from tests.spark.stagers import KilledAt


def main(url: str, hub: str, folder: str, events: str, *points: str) -> None:
    given = PostgresSink.stager

    def killed(self: PostgresSink) -> Stager | None:
        stager = given(self)
        return None if stager is None else KilledAt(stager, Path(folder), points)

    PostgresSink.stager = killed  # type: ignore[method-assign]
    spark = open_session("staging tests", {"spark.sql.execution.arrow.maxRecordsPerBatch": "8"}, "local[2,3]")
    writing = Writing(keep=FENCE[1:3], stage_from=1)
    table = EntityTable(url, "flights", mode="append", pipeline="flights", writing=writing)
    options = {**QUICK, "available_now": True, "pipeline": "flights", "schema": "id STRING, n BIGINT"}
    options |= {"min_partitions": 2, "max_events_per_trigger": int(events)}
    with MicroBatches(spark, hub, store=f"sqlite:///{folder}/stores.db", **options) as batches:
        for batch in batches:
            table.apply(batch.events.select("id", "n", *FENCE), batch)
            print("failure:", batch.failure, flush=True)
    table.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
