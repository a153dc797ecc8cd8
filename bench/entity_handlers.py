"""The handlers of `entities.py`, in a module that other processes import."""

from __future__ import annotations

import time
from typing import Any

from leasehold.handlers.contract import EntityEvent, entity

SLEEPER, SLEEPS = "order-sleeper", 0.5


@entity(keys=["order_id"])
def order(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    """Adds up, and counts."""
    return _added(state, event)


@entity(keys=["order_id"])
def sleeping(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    """As `order`, but slowly for one entity."""
    if event.key == SLEEPER:
        time.sleep(SLEEPS)
    return _added(state, event)


def _added(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    known = state or {"total": 0, "events": 0}
    return {"total": known["total"] + event.row["amount"], "events": known["events"] + 1}
