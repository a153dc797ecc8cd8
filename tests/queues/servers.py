"""Local Service Bus servers and official clients for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold.clock import SystemClock
from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer, TopicSettings
from leasehold_testkit.emulators.service_bus.content import content_of
from leasehold_testkit.emulators.service_bus.stored import QueuedMessage
from tests.waiting import NEVER, PATIENCE

servicebus: Any = pytest.importorskip("azure.servicebus")

Message = servicebus.ServiceBusMessage
FAST: dict[str, Any] = {"socket_timeout": 0.02, "retry_total": 1, "retry_backoff_factor": 0.05}
"""The client looks at its socket that often, in seconds: its own choice of 0.2 makes tests slow."""
LOCK = NEVER
"""Seconds that a lock lasts, of a message or of a session. One ends when the server lets so much time pass."""

QUEUES = {
    "orders": QueueSettings(lock_duration=LOCK),
    "twice": QueueSettings(lock_duration=LOCK, max_delivery_count=2),
    "once": QueueSettings(duplicate_window=NEVER),
    "fleeting": QueueSettings(time_to_live=NEVER, dead_letter_expired=True),
    "sessions": QueueSettings(requires_session=True, lock_duration=LOCK),
}
TOPICS = {
    "news": TopicSettings(
        {"all": QueueSettings(), "some": QueueSettings(), "by-session": QueueSettings(requires_session=True)}
    )
}


class Ahead(SystemClock):
    """The clock of the system, `seconds` fast."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wall(self) -> float:
        return super().wall() + self.seconds

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


class Server(ServiceBusServer):
    """A server for which time passes when a test says so: what has to end ends at once, and nothing else does."""

    def __init__(self, queues: Any = None, topics: Any = None, clock: Ahead | None = None, **options: Any) -> None:
        self.clock = clock or Ahead()
        super().__init__(queues, topics, clock=self.clock, **options)

    def let_pass(self, seconds: float) -> None:
        """Let this many seconds pass, and have all queues do what is due by then."""
        self.clock.seconds += seconds
        for name in self.names:
            self.send(name)

    def free(self, entity: str, *, dead: bool = False) -> int:
        """How many messages of a queue, or of its dead letters, nobody has locked."""
        return sum(message.lock is None for message in self._listed(entity, dead=dead))

    def failed_deliveries(self, entity: str) -> dict[int, int]:
        """Those of each message of a queue, by its number."""
        return {message.sequence_number: message.delivery_count for message in self._listed(entity, dead=False)}

    def _listed(self, entity: str, *, dead: bool) -> list[QueuedMessage]:
        named, shared = self._named(entity), self._shared
        assert shared is not None
        found: list[QueuedMessage] = self._ask(
            shared.namespace.do(named, lambda now: named.queue(dead).peek(1, 10_000, now))
        )
        return found


def serve(path: Path | None = None) -> Server:
    """A server of every kind of queue that the tests need."""
    return Server(QUEUES, TOPICS, path=path)


@contextlib.contextmanager
def connected(server: ServiceBusServer, **options: Any) -> Iterator[Any]:
    """An official client."""
    with servicebus.ServiceBusClient.from_connection_string(
        server.connection_string(), **{**FAST, **options}
    ) as client:
        yield client


def send(client: Any, queue: str, *messages: Any) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([Message(message) if isinstance(message, str) else message for message in messages])


def texts(messages: list[Any]) -> list[str]:
    return [str(message) for message in messages]


def receive(receiver: Any, count: int) -> list[Any]:
    """This many messages; fewer only after a long wait. The official client may return before all have come."""
    found: list[Any] = []
    while len(found) < count:
        more = receiver.receive_messages(count - len(found), max_wait_time=PATIENCE)
        if not more:
            break
        found += more
    return found


def put(server: ServiceBusServer, queue: str, payload: bytes) -> None:
    """Send a message as these bytes."""
    entity, shared, content = server._named(queue), server._shared, content_of(payload)
    assert shared is not None
    server._ask(shared.namespace.do(entity, lambda now: entity.alive.send([content], now)))
