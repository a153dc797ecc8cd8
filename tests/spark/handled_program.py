"""An instance of a program with a handler, as docs/handlers.md has it: python -m tests.spark.handled_program URL NAME.

It works in the current folder until it is told to stop: reads `hub.db`, leases in `stores.db`, sends to `sent.db`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from leasehold.entities.answers import Effects, Emit
from leasehold.entities.handled_table import Retries
from leasehold.entities.handlers import EntityEvent, entity
from leasehold.spark import HandledOnSpark, MicroBatches, open_session
from tests.spark.test_micro_batches import QUICK


@entity(keys=["order_id"])
def order(state: dict[str, Any] | None, event: EntityEvent) -> Effects:
    """Adds up, and says so; 13 has to wait until it is mended."""
    if event.row["amount"] == 13 and not Path("mended").exists():
        raise ConnectionError("away")
    after = {"total": event.row["amount"] + (state["total"] if state else 0)}
    return Effects(after, [Emit({"order_id": event.key, **after}, key=event.key)])


def main(url: str, name: str) -> None:
    orders = HandledOnSpark(
        order,
        url,
        table="orders",
        pipeline="orders",
        schema="order_id STRING, amount BIGINT",
        state="order_id STRING, total BIGINT",
        outbox="log:///sent.db",
        retries=Retries(deliveries=100, first=0.2, longest=0.5),
    )
    options = {**QUICK, "pipeline": "orders", "owner_id": name, "max_events_per_trigger": 40, "table": orders}
    options["columns"] = ["body", "hub", "partition", "sequenceNumber", "ownerLevel", "enqueuedTime"]
    with MicroBatches(open_session("orders"), "log:///hub.db", store="sqlite:///stores.db", **options) as batches:
        for batch in batches:
            orders.apply(batch)
    orders.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
