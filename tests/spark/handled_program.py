"""An instance of a program with a handler, as docs/handlers.md has it.

`python -m tests.spark.handled_program FOLDER URL NAME` works until it is told to stop. It reads `hub.db` of
the folder, leases in `stores.db` and sends to `sent.db`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from leasehold.handlers import Failures, Writes
from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.table import Retries
from leasehold.runtime import Runtime
from leasehold.spark import HandledOnSpark, MicroBatches, open_session
from tests.spark.places import QUICK


def table(folder: Path, url: str) -> HandledOnSpark:
    """Adds up, and says so; 13 has to wait until it is mended."""
    mended = str(folder / "mended")

    @entity(keys=["order_id"])
    def order(state: dict[str, Any] | None, event: EntityEvent) -> Effects:
        if event.row["amount"] == 13 and not Path(mended).exists():
            raise ConnectionError("away")
        after = {"total": event.row["amount"] + (state["total"] if state else 0)}
        return Effects(after, [Emit({"order_id": event.key, **after}, key=event.key)])

    return HandledOnSpark(
        order,
        url,
        runtime=Runtime(base=folder),
        table="orders",
        pipeline="orders",
        schema="order_id STRING, amount BIGINT",
        state=Writes("order_id STRING, total BIGINT", outbox="log:///sent.db"),
        failures=Failures(retries=Retries(deliveries=100_000, first=0.2, longest=0.5)),
    )


def batches(spark: SparkSession, folder: Path, orders: HandledOnSpark, name: str) -> MicroBatches:
    """The loop of the instance of this name."""
    options = {**QUICK, "pipeline": "orders", "owner_id": name, "max_events_per_trigger": 40, "table": orders}
    options["columns"] = ["body", "hub", "partition", "sequenceNumber", "ownerLevel", "enqueuedTime"]
    return MicroBatches(spark, f"log:///{folder}/hub.db", store=f"sqlite:///{folder}/stores.db", **options)


def work(loop: MicroBatches, orders: HandledOnSpark) -> None:
    """Apply all that comes, until the loop is stopped."""
    with loop:
        for batch in loop:
            orders.apply(batch)
    orders.close()


def main(folder: str, url: str, name: str) -> None:
    orders = table(Path(folder), url)
    work(batches(open_session("orders"), Path(folder), orders, name), orders)


if __name__ == "__main__":
    main(*sys.argv[1:])
