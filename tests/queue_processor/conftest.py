"""A server of queues, and what the handlers of these tests keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasehold.queues.service_bus.prompt import PromptQueueTransport
from leasehold.queues.service_bus.url import QueueAddress
from tests.queue_processor.accounts import LOGS, logs, read_logs, sqlite_in
from tests.queues.conftest import server
from tests.queues.servers import FAST, servicebus
from tests.sinks.postgres import Place

__all__ = ["server"]


@dataclass(frozen=True)
class Accounts:
    """A table of accounts: the sink's URL, and what was applied to each account, in order."""

    sink: str
    logs: Callable[[], dict[str, list[int]]]


@pytest.fixture(params=["sqlite", "postgres"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Accounts:
    """A table in each of the databases."""
    if request.param == "sqlite":
        return Accounts(sqlite_in(tmp_path), lambda: logs(tmp_path))
    schema: Place = request.getfixturevalue("place")

    def look() -> dict[str, list[int]]:
        try:
            return read_logs(schema.look(LOGS))
        except psycopg.errors.UndefinedTable:
            return {}  # not made yet

    return Accounts(schema.url, look)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The official client looks at its socket more often than by its own choice."""

    def client(address: QueueAddress, retries: int) -> Any:
        made: Any = servicebus.ServiceBusClient.from_connection_string(address._connection_string, **FAST)
        made._amqp_transport = PromptQueueTransport  # as the product's own
        return made

    monkeypatch.setattr(QueueAddress, "client", client)
