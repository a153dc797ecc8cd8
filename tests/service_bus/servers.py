"""Local Service Bus servers and official clients for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold.emulators.service_bus import QueueSettings, ServiceBusServer, TopicSettings
from leasehold.emulators.service_bus.content import content_of

servicebus: Any = pytest.importorskip("azure.servicebus")

LEAVES_SOCKETS = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)
"""The official client leaves its socket to the garbage collector when it reconnects; `collected` is when that is."""

Message = servicebus.ServiceBusMessage
FAST: dict[str, Any] = {"socket_timeout": 0.02, "retry_total": 1, "retry_backoff_factor": 0.05}
"""The client looks at its socket that often, in seconds: its own choice of 0.2 makes tests slow."""
SOON = 20.0

QUEUES = {
    "orders": QueueSettings(),
    "short": QueueSettings(lock_duration=1.0),
    "twice": QueueSettings(max_delivery_count=2),
    "once": QueueSettings(duplicate_window=60.0),
    "fleeting": QueueSettings(time_to_live=0.2, dead_letter_expired=True),
    "sessions": QueueSettings(requires_session=True),
    "short-sessions": QueueSettings(requires_session=True, lock_duration=1.0),
}
TOPICS = {
    "news": TopicSettings(
        {"all": QueueSettings(), "some": QueueSettings(), "by-session": QueueSettings(requires_session=True)}
    )
}


def serve(path: Path | None = None, **options: Any) -> ServiceBusServer:
    """A server of every kind of queue that the tests need."""
    return ServiceBusServer(QUEUES, TOPICS, path=path, **options)


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


def receive(receiver: Any, count: int, wait: float = SOON) -> list[Any]:
    """So many messages; fewer only after a long wait. The official client may return before all have come."""
    found: list[Any] = []
    while len(found) < count:
        more = receiver.receive_messages(count - len(found), max_wait_time=wait)
        if not more:
            break
        found += more
    return found


def put(server: ServiceBusServer, queue: str, payload: bytes) -> None:
    """Send a message as these bytes."""
    entity, shared, content = server._named(queue), server._shared, content_of(payload)
    assert shared is not None
    server._ask(shared.namespace.do(entity, lambda now: entity.alive.send([content], now)))
