"""A process that keeps a table whose handler fails for some entities: parking_program FOLDER NAME [die].

It raises for the account `poison` until there is a file `mended` in the folder. With `die` the process is killed in the
transaction in which that account's events are tried again with success.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

from leasehold import DeliverySettings, EventProcessor
from leasehold.handlers import Failures
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.table import HandledTable, Retries
from leasehold.processors.events import Handlers
from leasehold.runtime import Runtime
from leasehold.sinks.beside import watermarks
from tests.handlers.handler_program import OFTEN, balance

FOLDER = Path(sys.argv[1])


@entity(keys=["account"])
def failing(state: dict[str, Any] | None, event: EntityEvent) -> Any:
    if event.key == "poison" and not (FOLDER / "mended").exists():
        raise RuntimeError("what it calls is away")
    return balance(state, event)


def die(*arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    accounts = HandledTable(
        failing,
        f"sqlite:////{FOLDER}/table.db",
        table="accounts",
        pipeline="accounts",
        schema="account STRING, amount BIGINT, place BIGINT",
        state="account STRING, events BIGINT, total BIGINT",
        failures=Failures(retries=Retries(deliveries=1_000, first=0.1, longest=0.1)),
        runtime=Runtime(rng=Random(1)),
    )
    if sys.argv[3:] == ["die"] and (FOLDER / "mended").exists():
        watermarks.count_change = die  # type: ignore[assignment]
    made = EventProcessor(
        f"log:////{FOLDER}/log.db",
        f"sqlite:////{FOLDER}/store.db",
        Handlers(accounts.on_events, on_partition_start=accounts.on_partition_start),
        table=accounts.sink,
        name=sys.argv[2],
        ownership=OFTEN,
        delivery=DeliverySettings(max_batch=20),
    )
    accounts.level_of = made.recorded_owner_level
    made.run()
