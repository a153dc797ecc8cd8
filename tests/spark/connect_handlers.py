"""What `connect_program` calls for events: a module of its own, which workers import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark import TaskContext

from leasehold.handlers.contract import EntityEvent, Reject, entity
from tests.handlers.slow_handlers import hang


def adding(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    """Adds up, and keeps the trail; 13 is rejected, and 14 raises."""
    n = event.row["n"]
    if n == 13:
        raise Reject("unlucky")
    if n == 14:
        raise ValueError("cannot be")
    before = state or {"total": 0, "trail": ""}
    trail = f"{before['trail']} {n}".strip()
    return {"total": before["total"] + n, "trail": trail}


def hanging_at_15(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    """The same; 15 hangs, and ignores what interrupts it."""
    if event.row["n"] == 15:
        hang()
    return adding(state, event)


def placed(number: int) -> tuple[int, int]:
    """A number, and the task that was given it."""
    context = TaskContext.get()
    assert context is not None
    return number, context.partitionId()


def parts(number: int) -> list[tuple[int, int]]:
    """The number for the tasks 0 and 1 of three."""
    return [(0, number), (1, number)]


def together(numbered: Iterable[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """What one task of three is given."""
    given = [*numbered]
    yield given[0][0], sorted(number for _, number in given)


order = entity(keys=["order_id"])(adding)
hanging = entity(keys=["order_id"])(hanging_at_15)
