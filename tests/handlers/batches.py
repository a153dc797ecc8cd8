"""Batches by hand: what a processor would give a handled table, and what SQLite has in the table then."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold import Event
from leasehold.handlers.table import HandledTable
from tests.sinks.postgres import Place


def rows(folder: Path, query: str = "SELECT account, events, total FROM accounts ORDER BY 1") -> list[Any]:
    with closing(sqlite3.connect(folder / "table.db", isolation_level=None)) as connection:
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []  # nothing has been made yet


def given(level: int, first: int, *bodies: object, partition: str = "0", start: int = 0) -> tuple[Any, Any]:
    """A batch and its context as a processor would give them."""
    events = [
        Event(json.dumps(body).encode(), partition=partition, sequence_number=number)
        for number, body in enumerate(bodies, first)
    ]

    class Batch(list[Event]):
        hub, owner_level, last_enqueued = "h", level, 9.5

    batch = Batch(events)
    batch.partition, batch.first, batch.last = partition, first, first + len(events) - 1  # type: ignore[attr-defined]
    return batch, SimpleNamespace(start=start, call_again=lambda seconds: None)


def body(place: int, account: str = "a", amount: int = 1) -> dict[str, object]:
    return {"account": account, "amount": amount, "place": place}


def overtaken_once(accounts: HandledTable, beside: Callable[[], object]) -> None:
    """Let something happen between the first computation from now on and its commit."""
    computed, calls = accounts._compute, [beside]

    def compute(batch: Any, mark: Any, again: int) -> Any:
        done = computed(batch, mark, again)
        if calls:
            calls.pop()()
        return done

    accounts._compute = compute  # type: ignore[method-assign]


def database(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Callable[[str], list[Any]]]:
    """The database that a parameter of the fixture names, `sqlite` or `postgres`: its URL, and how to look into it."""
    if request.param == "sqlite":
        return f"sqlite:////{folder}/table.db", lambda query: rows(folder, query)
    there: Place = request.getfixturevalue("place")
    return there.url, there.look
