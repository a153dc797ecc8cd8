"""Orders with lines in a related table, batches by hand; the handler answers as told."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.handlers.answers import Effects
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.table import HandledTable
from leasehold_testkit.clock import ManualClock
from tests.handlers import flat
from tests.handlers.batches import given, rows
from tests.sinks.postgres import Place

TABLES = (
    "CREATE TABLE orders (order_id VARCHAR(50) PRIMARY KEY, total BIGINT)",
    "CREATE TABLE lines (order_id VARCHAR(50) NOT NULL REFERENCES orders (order_id), line BIGINT NOT NULL, "
    "sku VARCHAR(50) UNIQUE, note VARCHAR(50) DEFAULT 'none', PRIMARY KEY (order_id, line))",
)


class Bench:
    """Orders with lines, which refer to them, and of which no two have one sku. The handler answers as told."""

    def __init__(self, url: str, look: Callable[[str], list[Any]], run: Callable[..., object]) -> None:
        self.url, self.look, self.run = url, look, run
        self.clock = ManualClock()
        self.answers: dict[int, list[Any]] = {}
        self.calls: list[int] = []
        self._opened: list[HandledTable] = []
        self._next = {"0": 0, "1": 0}

    def table(self, **more: Any) -> HandledTable:
        @entity(keys=["order_id"])
        def order(state: Any, event: EntityEvent) -> Any:
            self.calls.append(event.row["what"])
            return Effects({"total": (state["total"] if state else 0) + 1}, self.answers.get(event.row["what"], []))

        settings: dict[str, Any] = {"handler": order, "related": ["lines"], **more}
        table = flat.table(
            settings.pop("handler"),
            self.url,
            table=settings.pop("table", "orders"),
            pipeline="p",
            schema="order_id STRING, what BIGINT",
            state="order_id STRING, total BIGINT",
            clock=self.clock,
            rng=SimpleNamespace(random=lambda: 0.0),
            **settings,
        )
        table.level_of = lambda hub, partition: 99
        self._opened.append(table)
        return table

    def give(self, table: HandledTable, *events: tuple[str, int], partition: str = "0") -> None:
        bodies = [{"order_id": order, "what": what} for order, what in events]
        batch, context = given(1, self._next[partition], *bodies, partition=partition)
        self._next[partition] += len(events)
        table.on_events(batch, context)

    def lines(self) -> list[tuple[str, int, str]]:
        return self.look("SELECT order_id, line, sku FROM lines ORDER BY 1, 2")

    def totals(self) -> dict[str, int]:
        return dict(self.look("SELECT order_id, total FROM orders"))

    def parked(self) -> list[tuple[int, int, str]]:
        return self.look("SELECT sequence_number, deliveries, error FROM leasehold_parked ORDER BY 1")

    def close(self) -> None:
        for table in self._opened:
            table.sink.close()


def sqlite_bench(folder: Path) -> Bench:
    """One in a SQLite file of this folder."""

    def run(*statements: str) -> None:
        with closing(sqlite3.connect(folder / "table.db")) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return Bench(f"sqlite:////{folder}/table.db", lambda query: rows(folder, query), run)


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "sqlite":
        made = sqlite_bench(tmp_path)
    else:
        there: Place = request.getfixturevalue("place")
        made = Bench(there.url, there.look, there.run)
    made.run(*TABLES)
    yield made
    made.close()
