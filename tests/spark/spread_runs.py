"""A pipeline file whose handler keeps the trail of each entity's events, which are in several partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leasehold.sinks.rules.batch import Batch
from tests.handlers.orders import rows
from tests.spark import handled_runs

TRAIL = """

from leasehold.handlers.answers import Effects, Row


@entity(keys=["order_id"])
def trail(state, event):
    n = event.row["n"]
    if n == 13 and not (Path(__file__).parent / "mended").exists():
        raise ConnectionError("away")
    said = f"{event.partition}.{event.sequence_number}{'!' if event.late else ''}"
    new = {"seen": f"{state['seen']} {said}" if state else said}
    return Effects(new, [Row("slots", {"slot": n}, keys=["slot"])]) if n == 99 else new
"""


@pytest.fixture
def file(folder: Path) -> Path:
    """The file, with a spread table that keeps the trail of each entity's events."""
    module = folder / f"orders_of_{folder.name}.py"
    module.write_text(module.read_text() + TRAIL.replace("Path(__file__).parent", f"Path({str(folder)!r})"))
    made = folder / "orders.toml"
    text = made.read_text().replace(':order"', ':trail"').replace("amount DECIMAL(12,2)", "n BIGINT")
    text = text.replace("total DECIMAL(12,2)", "seen STRING")
    made.write_text(f'{text}spread = true\nsequence_by = "n"\n')
    return made


def batch(partition: str, first: int, *values: tuple[str, Any]) -> Batch:
    """A batch of one partition, as the loop has read it: entities, and the numbers that order their events."""
    return handled_runs.batch(partition, first, *values, of="n")


def seen(folder: Path) -> dict[str, str]:
    return dict(rows(folder, "SELECT order_id, seen FROM orders"))
