"""A loop on a session whose tasks are tried again, in which the first worker that has staged its rows is killed."""

from __future__ import annotations

import sys
from pathlib import Path

from leasehold.sinks.base import Stager
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.spark import EntityTable, MicroBatches, open_session
from tests.spark.stagers import Killed
from tests.spark.test_micro_batches import FENCE, QUICK


def main(url: str, hub: str, folder: str) -> None:
    given = PostgresSink.stager

    def killed(self: PostgresSink) -> Stager | None:
        stager = given(self)
        return None if stager is None else Killed(stager, Path(folder) / "killed")

    PostgresSink.stager = killed  # type: ignore[method-assign]
    spark = open_session("staging tests", {}, "local[2,3]")
    table = EntityTable(url, "flights", keys=["id"], pipeline="flights", stage_from=1)
    options = {**QUICK, "available_now": True, "pipeline": "flights", "schema": "id STRING, n BIGINT"}
    with MicroBatches(spark, hub, store=f"sqlite:///{folder}/stores.db", **options) as batches:
        for batch in batches:
            table.apply(batch.events.select("id", "n", *FENCE), batch)
            print("failure:", batch.failure, flush=True)
    table.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
