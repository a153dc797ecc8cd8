"""A pipeline that fills three tables from one stream, in a folder of the test's own; what is sent, what is left."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from leasehold import Event
from leasehold.hubs.log import LogHub

FILE = """
name = "shop"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///stores.db"
load_balancing_interval = "300ms"
settle_delay = "100ms"
[transform]
schema = "kind STRING, id BIGINT, total DOUBLE, name STRING, gone BOOLEAN, at BIGINT"

[[sink]]
url = "sqlite:///entities.db"
table = "orders"
keys = ["id"]
when = "kind = 'order'"
only_columns = ["id", "total"]
delete_when = "gone"

[[sink]]
table = "customers"
keys = ["id"]
when = "kind = 'customer'"
only_columns = ["id", "name"]
sequence_by = "at"

[[sink]]
table = "log"
mode = "append"
keep = ["sequenceNumber", "partition"]
only_columns = ["kind", "id"]
"""


def write(folder: Path, text: str = FILE) -> Path:
    """The file, or another one."""
    (folder / "shop.toml").write_text(text)
    return folder / "shop.toml"


def bodies(rng: Random, count: int) -> list[bytes]:
    """Events of some ten entities of each kind; some delete, and some do not fit."""
    made = []
    for number in range(count):
        body: dict[str, Any] = {
            "kind": rng.choice(["order", "order", "customer", "customer", "other", None]),
            "id": rng.randrange(10),
            "total": rng.choice([number / 4, None]),
            "name": rng.choice([f"n{number}", None]),
            "gone": rng.choice([True, False, False, None]),
            "at": rng.randrange(count) if rng.random() < 0.9 else None,
        }
        made.append(json.dumps(body).encode())
        if rng.random() < 0.05:
            made[-1] = rng.choice([b"", b"[1]", b'{"kind":"order","id":"one"}', b'{"kind":"order","id":null}'])
    return made


def send(hub: LogHub, sent: Sequence[bytes]) -> None:
    """Each entity's events go to one partition."""
    count = len(hub.partition_ids())
    for body in sent:
        fit = body.startswith(b"{") and b'"gone"' in body
        hub.send([Event(body)], partition=str(json.loads(body)["id"] % count if fit else 0))


def contents(folder: Path) -> dict[str, list[Any]]:
    """All rows of the three tables, and the place and reason of each of their rejected rows; empty if not yet made."""
    asked = {
        "orders": "SELECT * FROM orders ORDER BY id",
        "customers": "SELECT * FROM customers ORDER BY id",
        "log": 'SELECT * FROM log ORDER BY "partition", "sequenceNumber"',
        **{
            f"{name}_rejected": f'SELECT "partition", sequence_number, reason FROM {name}_rejected ORDER BY 1, 2'
            for name in ("orders", "customers", "log")
        },
    }
    if not (folder / "entities.db").exists():
        return {}
    with closing(sqlite3.connect(folder / "entities.db")) as connection:
        connection.execute("BEGIN")  # all as of one moment
        try:
            return {name: connection.execute(query).fetchall() for name, query in asked.items()}
        except sqlite3.OperationalError:
            return {}


def answer(sent: Sequence[bytes]) -> dict[str, dict[int, Any]]:
    """What the upserted tables hold after these events."""
    orders: dict[int, Any] = {}
    customers: dict[int, Any] = {}
    latest: dict[int, int] = {}
    for body in sent:
        try:
            it = json.loads(body)
            key = it["id"]
        except (ValueError, TypeError):
            continue
        if not isinstance(key, int):
            continue
        if it["kind"] == "order":
            orders.pop(key, None)
            if not it.get("gone"):
                orders[key] = it.get("total")
        elif it["kind"] == "customer" and it["at"] is not None and it["at"] >= latest.get(key, -1):
            latest[key], customers[key] = it["at"], it["name"]
    return {"orders": orders, "customers": customers}
