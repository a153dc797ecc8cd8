"""Servers and their queues for the tests of this folder."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest

from leasehold.emulators.service_bus import QueueSettings, ServiceBusServer, TopicSettings

logging.getLogger("azure").setLevel(logging.CRITICAL)
LOCK = 3.0
"""Seconds that locks of the `brief` queues last: short to wait for, and long enough for a busy machine to renew."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceBusServer]:
    """A server that is named by the environment, as a namespace is."""
    queues = {
        "orders": QueueSettings(),
        "steady": QueueSettings(lock_duration=2.0),
        "steady-sessions": QueueSettings(requires_session=True, lock_duration=2.0),
        "short": QueueSettings(lock_duration=1.0),
        "sessions": QueueSettings(requires_session=True),
        "brief": QueueSettings(lock_duration=LOCK),
        "brief-sessions": QueueSettings(requires_session=True, lock_duration=LOCK),
        "twice": QueueSettings(max_delivery_count=2, duplicate_window=60.0),
    }
    with ServiceBusServer(queues, {"news": TopicSettings({"all": QueueSettings()})}) as server:
        monkeypatch.setenv("LEASEHOLD_SERVICE_BUS_CONNECTION_STRING", server.connection_string())
        yield server
    gc.collect()


def url(server: ServiceBusServer, path: str = "orders") -> str:
    return f"servicebus://{server.namespace}/{path}"
