"""A pipeline file of orders with a handler, in a folder of the test's own; what is sent to it, and what it has kept."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from leasehold import Event
from leasehold.hubs.log import LogHub

FILE = """
name = "orders"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///stores.db"
load_balancing_interval = "300ms"
settle_delay = "100ms"
[transform]
schema = "order_id STRING, amount DECIMAL(12,2)"
[sink]
url = "sqlite:///entities.db"
table = "orders"
keys = ["order_id"]
handler = "some_orders:order"
state = "order_id STRING, total DECIMAL(12,2)"
"""

MODULE = """
from pathlib import Path

from leasehold.handlers.contract import Delete, Reject, entity


@entity(keys=["order_id"])
def order(state, event):
    if event.row["amount"] is None:
        raise Reject("no amount")
    if event.row["amount"] == 0:
        return Delete()
    if event.row["amount"] == 13 and not (Path(__file__).parent / "mended").exists():
        raise ConnectionError("away")
    return {"total": event.row["amount"] + (state["total"] if state else 0)}


def plain(state, event):
    return state
"""


HANGING = """
import time


@entity(keys=["order_id"])
def hanging(state, event):
    while event.key == "b":
        time.sleep(1_000)
    return {"total": event.row["amount"]}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the file, the module of its handler, and a hub."""
    (tmp_path / "orders.toml").write_text(FILE)
    (tmp_path / "some_orders.py").write_text(MODULE)
    (tmp_path / "broken_orders.py").write_text("1 / 0\n")
    LogHub.create(tmp_path / "hub.db", partitions=2).close()
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("some_orders", "broken_orders"):
        sys.modules.pop(name, None)


def send(place: Path, *bodies: tuple[str, int | None]) -> None:
    hub = LogHub(place / "hub.db")
    made = (json.dumps({"order_id": key, "amount": amount}).encode() for key, amount in bodies)
    hub.send(Event(body, partition_key=key) for body, (key, _) in zip(made, bodies, strict=True))
    hub.close()


def rows(place: Path, query: str = "SELECT order_id, total FROM orders ORDER BY 1") -> list[Any]:
    with closing(sqlite3.connect(place / "entities.db")) as connection:
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []  # nothing has been made yet


def totals(place: Path) -> dict[str, Decimal]:
    return {key: Decimal(str(total)) for key, total in rows(place)}
