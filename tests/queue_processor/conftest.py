"""A server of queues, and what the handlers of these tests keep."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.queues.service_bus.url import Address
from tests.queues.conftest import server
from tests.service_bus.servers import FAST, servicebus

__all__ = ["server"]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The official client looks at its socket more often than by its own choice."""

    def client(address: Address, retries: int) -> Any:
        return servicebus.ServiceBusClient.from_connection_string(address._connection_string, **FAST)

    monkeypatch.setattr(Address, "client", client)
