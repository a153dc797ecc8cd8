"""Handlers of entities: functions that make of an entity's state and an event the entity's next state.

The names below are imported when they are first used: a task of Spark that calls a handler needs few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.handlers.answers import Effects, Emit, Gone, Row
    from leasehold.handlers.contract import (
        Delete,
        EntityEvent,
        EntityHandler,
        HandlerFailed,
        Reject,
        Retry,
        Skip,
        entity,
    )
    from leasehold.handlers.of_file import handled_table
    from leasehold.handlers.settings import Bodies, Failures, Spread, Writes
    from leasehold.handlers.table import HandledTable, Retries

__all__ = [
    "Bodies",
    "Delete",
    "Effects",
    "Emit",
    "EntityEvent",
    "EntityHandler",
    "Failures",
    "Gone",
    "HandledTable",
    "HandlerFailed",
    "Reject",
    "Retries",
    "Retry",
    "Row",
    "Skip",
    "Spread",
    "Writes",
    "entity",
    "handled_table",
]

_HOMES = {
    "Bodies": "settings",
    "Delete": "contract",
    "Effects": "answers",
    "Emit": "answers",
    "EntityEvent": "contract",
    "EntityHandler": "contract",
    "Failures": "settings",
    "Gone": "answers",
    "HandledTable": "table",
    "HandlerFailed": "contract",
    "Reject": "contract",
    "Retries": "table",
    "Retry": "contract",
    "Row": "answers",
    "Skip": "contract",
    "Spread": "settings",
    "Writes": "settings",
    "entity": "contract",
    "handled_table": "of_file",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
