"""What a handler makes of a stored state and an event, in the words that can go elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leasehold.handlers.answers import Effects, parts
from leasehold.handlers.calling.raised import RaisedElsewhere, described, traced
from leasehold.handlers.contract import Delete, EntityEvent, EntityHandler, Retry, Skip


def answered(handler: EntityHandler, state: Mapping[str, Any] | None, event: EntityEvent) -> Effects:
    """Call the handler. What it answers, a state as a dict. Raises what it raises, and `UsageError` for no answer."""
    answer, emitted, rows = parts(handler(handler.loaded(state), event))
    if not isinstance(answer, Delete | Skip):
        answer = handler.dumped(answer)
    return Effects(answer, [*emitted, *rows])


def elsewhere(error: Exception) -> RaisedElsewhere:
    """An exception as another process is told of it, which may not know its class."""
    if isinstance(error, RaisedElsewhere):
        return error
    after = error.after if isinstance(error, Retry) else None
    return RaisedElsewhere(type(error).__name__, described(error), traced(error), after)
