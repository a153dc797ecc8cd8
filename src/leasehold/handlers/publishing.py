"""Where an outbox is sent to.

Owns the form of what is sent: the body and key of what was emitted, its properties, and beside them `leasehold-id`,
which is the same however often the event is sent. An embedded log appends each id once, as long as it knows it
(`Hub.send_once`); other hubs may have an event twice, and `deduplicate_by` of a pipeline drops the second. To a
queue it is the id of the message too, by which one that detects duplicates knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from leasehold.errors import ConfigError, LeaseholdError, Verdict
from leasehold.hubs import Hub, open_hub
from leasehold.model import Event
from leasehold.queues import BACKENDS as QUEUES
from leasehold.queues import NewMessage, Queue, open_queue
from leasehold.sinks.beside.outbox.contract import WaitingEvent

ID = "leasehold-id"
"""The property that names an emitted event for good."""

REMEMBER = 14 * 86_400.0
"""Seconds for which a hub that can remembers an id."""


class Publisher(Protocol):
    """What sends. Used by one thread."""

    def publish(self, events: Sequence[WaitingEvent]) -> None:
        """Send events in order; returns when all are durable.

        Raises `SchemaMismatch` if the receiver refuses them for what they are, one of them or all together, and what
        may pass if it is away. Then any number of the first of them, of each key, may be there.
        """
        ...

    def close(self) -> None:
        """Give back what this object holds."""
        ...


class HubPublisher:
    """Sends to a hub. `source` names the outbox for good."""

    def __init__(self, hub: Hub, source: str) -> None:
        self._hub, self._source = hub, source

    def publish(self, events: Sequence[WaitingEvent]) -> None:
        """See `Publisher`."""
        named = [(one.id, event_of(one)) for one in events]
        self._hub.send_once(self._source, named, remember=REMEMBER)

    def close(self) -> None:
        """See `Publisher`."""
        self._hub.close()


class QueuePublisher:
    """Sends to a queue. Raises `ConfigError` for one that takes no messages."""

    def __init__(self, queue: Queue) -> None:
        if not queue.takes_messages:
            raise ConfigError("outbox", queue.url, "a hub, or a queue that takes messages", "Name one of these")
        self._queue = queue

    def publish(self, events: Sequence[WaitingEvent]) -> None:
        """See `Publisher`."""
        self._queue.send([NewMessage(one.body, one.key, one.id, {**one.properties, ID: one.id}) for one in events])

    def close(self) -> None:
        """See `Publisher`."""
        self._queue.close()


def event_of(waiting: WaitingEvent) -> Event:
    """The event that is sent. Those without a key all go to one partition, and keep their order."""
    return Event(waiting.body, partition_key=waiting.key or "", properties={**waiting.properties, ID: waiting.id})


def publisher_at(url: str, base: Path | None, identity: Callable[[], str]) -> Callable[[], Publisher]:
    """What opens a publisher for this URL, in the thread that will use it. `identity` is of the sink.

    Raises `ConfigError` for a URL that cannot be read, and `HubUnavailable` where no waiting will bring a hub; one that
    is only away now is opened later.
    """

    def opened() -> Publisher:
        if url.partition("://")[0] in QUEUES:
            return QueuePublisher(open_queue(url, base=base))
        return HubPublisher(open_hub(url, base=base), f"leasehold-outbox/{identity()}")

    try:
        opened().close()
    except LeaseholdError as error:
        if error.verdict is not Verdict.PASSES:
            raise
    return opened
