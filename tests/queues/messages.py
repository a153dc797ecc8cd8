"""Messages of a queue, received: this many of them, however many come at once."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.queues import Queue, QueueMessage
from tests.waiting import PATIENCE


def received(queue: Queue, count: int) -> list[QueueMessage]:
    """This many messages, though a receive may return before all have come."""
    found: list[QueueMessage] = []
    while len(found) < count:
        more = queue.receive(count - len(found), PATIENCE)
        assert more, f"{len(found)} of {count} messages have come"
        found += more
    return found


def bodies(messages: Iterable[QueueMessage]) -> list[bytes | None]:
    """What is in them."""
    return [message.body for message in messages]
