"""A process that keeps a table by a handler: python -m tests.handlers.handler_program FOLDER NAME."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from leasehold import DeliverySettings, EventProcessor, OwnershipSettings
from leasehold.handlers.contract import EntityEvent, Reject, Skip, entity
from leasehold.handlers.table import HandledTable
from tests.waiting import NEVER

EXPIRATION = float(os.environ.get("PARTITION_EXPIRATION", NEVER))
"""Seconds, given where a process is paused past it. One that is killed is followed by one of its name, at once."""
OFTEN = OwnershipSettings(load_balancing_interval=0.3, partition_expiration=EXPIRATION, settle_delay=0.1)


@entity(keys=["account"])
def balance(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any] | Skip:
    """Adds up amounts; the place of an event in its entity must be the next one."""
    if event.row["amount"] is None:
        raise Reject("no amount")
    place = state["events"] if state else 0
    if event.row["place"] != place:
        raise Reject(f"place {event.row['place']} after {place} events")
    return {"events": place + 1, "total": (state["total"] if state else 0) + event.row["amount"]}


def table(folder: Path) -> HandledTable:
    return HandledTable(
        balance,
        f"sqlite:////{folder}/table.db",
        table="accounts",
        pipeline="accounts",
        schema="account STRING, amount BIGINT, place BIGINT",
        state="account STRING, events BIGINT, total BIGINT",
    )


def processor(folder: Path, name: str) -> EventProcessor:
    accounts = table(folder)
    made = EventProcessor(
        f"log:////{folder}/log.db",
        f"sqlite:////{folder}/store.db",
        accounts.on_events,
        table=accounts.sink,
        name=name,
        ownership=OFTEN,
        delivery=DeliverySettings(max_batch=20),
    )
    accounts.level_of = made.recorded_owner_level
    return made


if __name__ == "__main__":
    processor(Path(sys.argv[1]), sys.argv[2]).run()
