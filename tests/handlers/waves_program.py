"""A process that keeps orders, each with a journal of its events: waves_program FOLDER NAME URL [LEASES SECONDS].

Where the environment has WAVES_CALLS, each call is noted in that file: the order, when it began and when it ended.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from leasehold import DeliverySettings, EventProcessor
from leasehold.handlers import Spread, Writes
from leasehold.handlers.answers import Effects, Row
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.exclusive import ExclusiveEntities
from leasehold.handlers.table import HandledTable
from leasehold.leases import EntityLeases
from leasehold.processors.events import Handlers
from tests.handlers.handler_program import OFTEN
from tests.waiting import take


@entity(keys=["order_id"])
def journaling(state: dict[str, Any] | None, event: EntityEvent) -> Effects:
    """Which event of its order each is, in a journal that has each place of an order, and each event, once."""
    began = time.monotonic()
    known = state or {"events": 0, "total": 0}
    its = {"part": event.partition, "number": event.sequence_number, "order_id": event.key, "place": known["events"]}
    after = {"events": known["events"] + 1, "total": known["total"] + event.row["amount"]}
    if (calls := os.environ.get("WAVES_CALLS")) is not None:
        take(0.0005)
        with Path(calls).open("a") as file:
            file.write(f"{event.key} {began} {time.monotonic()}\n")
    return Effects(after, [Row("journal", its, keys=["part", "number"])])


def leases(holder: str, store: str, seconds: str) -> ExclusiveEntities:
    """Leases that whoever is killed holds for so long."""
    scope = "orders/orders"
    return ExclusiveEntities(EntityLeases(store, scope=scope, holder=holder, duration=float(seconds)), scope)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    orders = HandledTable(
        journaling,
        sys.argv[3],
        table="orders",
        pipeline="orders",
        schema="order_id STRING, amount BIGINT, version BIGINT",
        state=Writes("order_id STRING, events BIGINT, total BIGINT", related=["journal"]),
        spread=Spread("version", exclusive=leases(sys.argv[2], *sys.argv[4:]) if sys.argv[4:] else None),
    )
    made = EventProcessor(
        f"log:////{folder}/log.db",
        f"sqlite:////{folder}/store.db",
        Handlers(orders.on_events, on_partition_start=orders.on_partition_start),
        table=orders.sink,
        name=sys.argv[2],
        ownership=OFTEN,
        delivery=DeliverySettings(max_batch=50),
    )
    orders.level_of = made.recorded_owner_level
    made.run()
