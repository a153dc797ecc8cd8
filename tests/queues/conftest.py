"""Servers and their queues for the tests of this folder."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from leasehold.queues import QueueMessage
from leasehold.queues.service_bus.queue import ServiceBusQueue
from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer, TopicSettings
from tests.azure_clients import close_at_once
from tests.queues.servers import Server
from tests.waiting import NEVER, until

logging.getLogger("azure").setLevel(logging.CRITICAL)


KILLED: dict[str, Any] = {"lock_duration": 2.0, "max_delivery_count": 1_000}
"""Of queues whose receivers are killed: their locks end soon, and no message is given up, however often."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that is named by the environment, as a namespace is. Locks end when it lets `NEVER` pass."""
    close_at_once(monkeypatch, "azure.servicebus")
    queues = {
        "orders": QueueSettings(lock_duration=NEVER),
        "steady": QueueSettings(**KILLED),
        "steady-sessions": QueueSettings(requires_session=True, **KILLED),
        "sessions": QueueSettings(requires_session=True, lock_duration=NEVER),
        "twice": QueueSettings(lock_duration=NEVER, max_delivery_count=2, duplicate_window=NEVER),
        "once": QueueSettings(lock_duration=NEVER, duplicate_window=NEVER),
        "once-sessions": QueueSettings(requires_session=True, lock_duration=NEVER, duplicate_window=NEVER),
    }
    to_all = {"all": QueueSettings(lock_duration=NEVER)}
    topics = {"news": TopicSettings(to_all), "once-news": TopicSettings(to_all, duplicate_window=NEVER)}
    with Server(queues, topics) as server:
        monkeypatch.setenv("LEASEHOLD_SERVICE_BUS_CONNECTION_STRING", server.connection_string())
        yield server
    gc.collect()


@pytest.fixture
def drains(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    """What is free in a queue of these servers comes, however late; and where nothing is free, nobody waits for it."""
    receive, servers = ServiceBusQueue.receive, [server]

    def receives(queue: ServiceBusQueue, most: int, wait: float) -> list[QueueMessage]:
        found: list[QueueMessage] = []
        namespace, _, path = queue.name.partition("/")
        name, dead, _ = path.partition("/$deadletterqueue")

        def came() -> bool:
            found.extend(receive(queue, most, 0.2))
            (there,) = (each for each in servers if each.namespace == namespace)
            return bool(found) or not there.free(name.replace("/subscriptions/", "/"), dead=bool(dead))

        until(came, f"what is free in {queue.name}")
        return found

    monkeypatch.setattr(ServiceBusQueue, "receive", receives)
    return servers


def url(server: ServiceBusServer, path: str = "orders") -> str:
    return f"servicebus://{server.namespace}/{path}"
