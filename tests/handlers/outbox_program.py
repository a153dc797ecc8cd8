"""A process whose handler emits two events for each of its own: outbox_program FOLDER HUB_URL [LINE SIGNAL NUMBER].

With LINE it sends itself SIGNAL right before it publishes, or removes what was published, for the NUMBER-th time: again
and again, until there is a file `go-PID`: then it goes on up to the next removal, and ends.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from leasehold import DeliverySettings, EventProcessor
from leasehold.handlers import Writes, outbox
from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.publishing import HubPublisher
from leasehold.handlers.table import HandledTable
from leasehold.model import Ownership
from leasehold.sinks.beside.outbox.sending import KeptOutbox
from leasehold.stores.sqlite.store import SqliteStore
from tests.handlers.handler_program import OFTEN, balance

FOLDER, URL = Path(sys.argv[1]), sys.argv[2]


@entity(keys=["account"])
def emitting(state: dict[str, Any] | None, event: EntityEvent) -> Any:
    place = event.row["place"]
    return Effects(balance(state, event), [Emit(f"{event.key} {place} {letter}", key=event.key) for letter in "xy"])


class Stops:
    """Stops this process right before it calls `line` for the `at`-th time."""

    def __init__(self, line: str, how: str, at: int) -> None:
        self._line, self._signal, self._at = line, getattr(signal, f"SIG{how}"), at
        self._count, self.stopped = 0, False
        self._go = FOLDER / f"go-{os.getpid()}"

    def at(self, line: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """`act`, as `line` is called from now on."""

        def acted(*arguments: Any) -> Any:
            (FOLDER / f"sending-{os.getpid()}").touch()
            self._count += line == self._line
            if line == self._line and self._count == self._at:
                self.stopped = True
                while not self._go.exists():
                    os.kill(os.getpid(), self._signal)
            try:
                result = act(*arguments)
            except Exception:
                self._end()
                raise
            if line == "remove":
                self._end()
            return result

        return acted

    def _end(self) -> None:
        if self.stopped:
            os._exit(0)


if __name__ == "__main__":
    line, how, at = sys.argv[3:] or ("publish", "CONT", "0")
    stops = Stops(line, how, int(at))
    HubPublisher.publish = stops.at("publish", HubPublisher.publish)  # type: ignore[method-assign]
    KeptOutbox.remove = stops.at("remove", KeptOutbox.remove)  # type: ignore[method-assign]
    outbox._AT_ONCE = 7
    claim = SqliteStore.claim_ownership

    def claimed(store: SqliteStore, claims: Sequence[Ownership]) -> list[Ownership]:
        """One that goes on after it was paused is to end, and takes no partition from the next process meanwhile."""
        return [] if stops.stopped else claim(store, claims)

    SqliteStore.claim_ownership = claimed  # type: ignore[method-assign, assignment]
    accounts = HandledTable(
        emitting,
        f"sqlite:////{FOLDER}/table.db",
        table="accounts",
        pipeline="accounts",
        schema="account STRING, amount BIGINT, place BIGINT",
        state=Writes("account STRING, events BIGINT, total BIGINT", outbox=URL),
    )
    made = EventProcessor(
        f"log:////{FOLDER}/log.db",
        f"sqlite:////{FOLDER}/store.db",
        accounts,
        table=accounts.sink,
        name="one",
        ownership=OFTEN,
        delivery=DeliverySettings(max_batch=20),
    )
    accounts.level_of = made.recorded_owner_level
    made.run()
