"""What is told of handlers that raise: the errors, and the line of the log. Owns their words."""

from __future__ import annotations

import logging

from leasehold.errors import HandlerUnavailable
from leasehold.handlers.calling.raised import described, name_of
from leasehold.handlers.contract import Computed, EntityHandler, HandlerFailed

logger = logging.getLogger(__name__)


def failed(handler: EntityHandler, done: Computed) -> HandlerFailed:
    """The error for an event that its partition waits for."""
    event = done.failed
    assert event is not None
    error = HandlerFailed(
        f"the handler {handler.function.__name__} raised for event {event.id} of {event.key!r}, try {event.delivery}: "
        f"{name_of(done.error)}: {done.error}"
    )
    error.__cause__ = done.error
    return error


def unavailable(handler: EntityHandler, partition: str, failure: str, done: Computed) -> HandlerUnavailable:
    """The error for a batch of which most entities fail alike, with an exception of the name `failure`."""
    errors = [*(one.error for one in done.held), *(error for _, error in done.dead)]
    last = next(each for each in errors if each is not None and name_of(each) == failure)
    error = HandlerUnavailable(
        f"most calls of the handler {handler.function.__name__} for partition {partition} fail alike, the last with "
        f"{described(last)}. Nothing of the batch was applied; it is tried again. Mend what the handler calls, or the "
        "handler"
    )
    error.__cause__ = last
    return error


def say_parked(partition: str, done: Computed) -> None:
    """Log which events of a batch wait, if a handler raised."""
    tried = [one for one in done.held if one.error is not None]
    if not tried:
        return
    error = tried[0].error
    assert error is not None
    logger.warning(
        "partition %s: %d events wait, the first is event %d after try %d: %s",
        *(partition, len(done.held), tried[0].event.sequence_number, tried[0].event.delivery),
        described(error),
    )
