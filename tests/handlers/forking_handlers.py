"""A handler that forks children."""

from __future__ import annotations

from typing import Any

from leasehold.handlers.contract import EntityEvent, entity
from tests.children import told_of_children


@entity(keys=["order_id"])
def forking(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    """What it is told of them is its state."""
    return {"told": told_of_children()}
