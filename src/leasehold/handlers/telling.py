"""What is told of handlers that raise: the errors, and the line of the log. Owns their words."""

from __future__ import annotations

import logging
from collections.abc import Collection

from leasehold.errors import HandlerUnavailable
from leasehold.handlers.calling.raised import described, is_timeout, name_of
from leasehold.handlers.contract import Computed, EntityHandler, HandlerFailed
from leasehold.printable import counted

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
    event, error = tried[0].event, tried[0].error
    assert error is not None
    logger.warning(
        "partition %s: %s to be tried again (leasehold parked lists them). The handler raised for event %d of %r, try "
        "%d: %s",
        *(partition, counted(len(done.held), "event")),
        *(event.sequence_number, event.key, event.delivery, described(error)),
    )


def say_timed_out(partition: str, done: Computed, numbers: Collection[int]) -> None:
    """Log which calls were ended for their time, but for events of these numbers, of which that was said."""
    for one in done.held:
        if is_timeout(one.error) and one.event.sequence_number not in numbers:
            assert one.error is not None
            logger.warning(
                "partition %s: the call for event %d of %r was ended: %s. It is tried again; leasehold parked lists it",
                *(partition, one.event.sequence_number, one.event.key, described(one.error)),
            )


def say_dead(partition: str, done: Computed) -> None:
    """Log which events are not tried any more; they are in the table of rejected rows by now."""
    if not done.dead:
        return
    event, error = done.dead[0]
    logger.warning(
        "partition %s: set aside after the last try, so that the entities go on without: %s. leasehold rejected lists "
        "them, and retries them. The first is event %d of %r: %s",
        *(partition, counted(len(done.dead), "event"), event.sequence_number, event.key, described(error)),
    )
