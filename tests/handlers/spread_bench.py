"""A table of entities in two partitions, batches by hand; its handler notes what it has seen, and does as told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.table import HandledTable
from leasehold_testkit.clock import ManualClock
from tests.handlers import flat
from tests.handlers.batches import database, given


class Bench:
    """A table of entities in two partitions; its handler notes which events it has seen, and does as told."""

    def __init__(self, url: str, look: Callable[[str], list[Any]]) -> None:
        self.url, self.look = url, look
        self.clock = ManualClock()
        self.does: dict[int, Callable[[], Any]] = {}
        self.calls: list[tuple[str, int, bool]] = []
        self._opened: list[HandledTable] = []
        self._next: dict[str, int] = {"0": 0, "1": 0}

    def table(self, state: str = "account STRING, seen STRING", **more: Any) -> HandledTable:
        @entity(keys=["account"])
        def adding(state: Any, event: EntityEvent) -> Any:
            version = event.row["version"]
            self.calls.append((event.key, version, event.late))
            if (answer := self.does.get(version, lambda: None)()) is not None:
                return answer
            return {"seen": f"{state['seen']},{version}" if state else str(version)}

        settings: dict[str, Any] = {"spread": True, "sequence_by": "version", **more}
        table = flat.table(
            adding,
            self.url,
            table="accounts",
            pipeline="p",
            schema="account STRING, version BIGINT, at TIMESTAMP, of DECIMAL(9,2)",
            state=state,
            clock=self.clock,
            rng=SimpleNamespace(random=lambda: 0.0),
            **settings,
        )
        table.level_of = lambda hub, partition: 99
        self._opened.append(table)
        return table

    def give(self, table: HandledTable, partition: str, *events: tuple[str, int | None]) -> None:
        """Give it events of a partition, none as an idle processor does; they come again until all are taken."""
        first = self._next[partition]
        bodies = [{"account": account, "version": version} for account, version in events]
        batch, _ = given(1, first, *bodies, partition=partition)
        context = SimpleNamespace(start=0, call_again=lambda seconds: None)
        table.on_events(batch, context)
        self._next[partition] = first + len(events)

    def seen(self) -> dict[str, str]:
        return dict(self.look("SELECT account, seen FROM accounts"))

    def parked(self) -> list[tuple[str, int]]:
        return self.look("SELECT partition, deliveries FROM leasehold_parked ORDER BY parked_at, sequence_number")

    def close(self) -> None:
        for table in self._opened:
            table.sink.close()


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(*database(request, tmp_path))
    yield made
    made.close()
