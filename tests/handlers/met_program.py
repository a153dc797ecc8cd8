"""A process whose every batch has the same entity as those of the others, under leases: met_program FOLDER NAME."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from leasehold import EventProcessor, OwnershipSettings
from leasehold.handlers import Spread
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.table import HandledTable
from leasehold.processors.events import Handlers
from tests.waiting import NEVER


@entity(keys=["account"])
def listing(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    """All that has taken effect, in order."""
    place = f"{event.partition}:{event.sequence_number}"
    return {"seen": f"{state['seen']} {place}" if state else place}


def table(folder: Path) -> HandledTable:
    return HandledTable(
        listing,
        f"sqlite:////{folder}/table.db",
        table="accounts",
        pipeline="accounts",
        schema="account STRING, version BIGINT",
        state="account STRING, seen STRING",
        spread=Spread("version", exclusive=f"sqlite:////{folder}/leases.db"),
    )


if __name__ == "__main__":
    place = Path(sys.argv[1])
    accounts = table(place)
    made = EventProcessor(
        f"log:////{place}/log.db",
        f"sqlite:////{place}/store.db",
        Handlers(accounts.on_events, on_partition_start=accounts.on_partition_start),
        table=accounts.sink,
        name=sys.argv[2],
        ownership=OwnershipSettings(load_balancing_interval=0.3, partition_expiration=NEVER, settle_delay=0.1),
    )
    accounts.level_of = made.recorded_owner_level
    made.run()
