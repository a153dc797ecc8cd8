"""A table whose handler fails as told, batches by hand, and a time that stands still."""

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
from tests.handlers.batches import body, database, given


class Bench:
    """A table whose handler fails as told, at a time that stands still."""

    def __init__(self, url: str, look: Callable[[str], list[Any]]) -> None:
        self._url, self.look = url, look
        self.clock = ManualClock()
        self.fails: dict[str, Exception] = {}
        self.tries: list[tuple[str, int, int]] = []
        self.asked: list[float] = []
        self._opened: list[HandledTable] = []
        self.context = SimpleNamespace(start=0, call_again=self.asked.append)

    def table(self, **more: Any) -> HandledTable:
        settings: dict[str, Any] = {"clock": self.clock, "rng": SimpleNamespace(random=lambda: 0.0), **more}

        @entity(keys=["account"])
        def adding(state: Any, event: EntityEvent) -> Any:
            self.tries.append((event.key, event.sequence_number, event.delivery))
            for failing in (event.key, f"{event.key}@{event.sequence_number}"):
                if failing in self.fails:
                    raise self.fails[failing]
            seen = state["seen"] + "," if state else ""
            return {"seen": f"{seen}{event.sequence_number}"}

        table = flat.table(
            adding,
            self._url,
            table="accounts",
            pipeline="p",
            schema="account STRING, amount BIGINT",
            state="account STRING, seen STRING",
            **settings,
        )
        table.level_of = lambda hub, partition: 99
        self._opened.append(table)
        return table

    def give(self, table: HandledTable, first: int, *accounts: str, level: int = 1) -> None:
        """Give it events of these accounts; none is a call of an idle processor."""
        batch, _ = given(level, first, *(body(0, account) for account in accounts))
        table.on_events(batch, self.context)

    def seen(self) -> dict[str, str]:
        return dict(self.look("SELECT account, seen FROM accounts ORDER BY account"))

    def waiting(self) -> list[tuple[int, int]]:
        return self.look("SELECT sequence_number, deliveries FROM leasehold_parked ORDER BY 1")

    def close(self) -> None:
        for table in self._opened:
            table.sink.close()


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(*database(request, tmp_path))
    yield made
    made.close()
