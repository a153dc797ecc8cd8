"""A process that keeps a table of entities whose events are in several partitions: spread_program FOLDER NAME URL.

Each event says which one it is of its entity in its partition, and takes effect once, after the one before.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from leasehold import DeliverySettings, EventProcessor
from leasehold.handlers import Failures, Spread
from leasehold.handlers.contract import EntityEvent, Reject, entity
from leasehold.handlers.table import HandledTable, Retries
from leasehold.processors.events import Handlers
from tests.handlers.handler_program import OFTEN


@entity(keys=["account"])
def counting(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    """Adds up amounts; one in seven events is tried twice."""
    row, known = event.row, state or {"p0": 0, "p1": 0, "total": 0}
    place = f"p{event.partition}"
    if row["place"] != known[place]:
        raise Reject(f"place {row['place']} after {known[place]} events of partition {event.partition}")
    if row["version"] % 7 == 0 and event.delivery == 1:
        raise RuntimeError("not at once")
    return {**known, place: row["place"] + 1, "total": known["total"] + row["amount"]}


def table(url: str, **more: Any) -> HandledTable:
    return HandledTable(
        counting,
        url,
        table="accounts",
        pipeline="accounts",
        schema="account STRING, amount BIGINT, place BIGINT, version BIGINT",
        state="account STRING, p0 BIGINT, p1 BIGINT, total BIGINT",
        spread=Spread("version"),
        failures=Failures(retries=Retries(first=0.05, longest=0.2)),
        **more,
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    accounts = table(sys.argv[3])
    made = EventProcessor(
        f"log:////{folder}/log.db",
        f"sqlite:////{folder}/store.db",
        Handlers(accounts.on_events, on_partition_start=accounts.on_partition_start),
        table=accounts.sink,
        name=sys.argv[2],
        ownership=OFTEN,
        delivery=DeliverySettings(max_batch=20),
    )
    accounts.level_of = made.recorded_owner_level
    made.run()
