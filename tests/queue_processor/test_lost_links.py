"""A queue whose server goes away under messages in hand: they are settled once it is back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from leasehold.errors import QueueUnavailable
from leasehold.queues import Queue, QueueMessage, open_queue
from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.queues.conftest import url
from tests.waiting import until

pytestmark = LEAVES_SOCKETS


def test_messages_in_hand_are_settled_when_the_server_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ServiceBusServer({"orders": QueueSettings()}, path=tmp_path / "queues.db") as server:
        monkeypatch.setenv("LEASEHOLD_SERVICE_BUS_CONNECTION_STRING", server.connection_string())
        server.send("orders", "one", "two", "three")
        with closing(open_queue(url(server))) as queue:
            held: list[QueueMessage] = []
            while len(held) < 3:
                held += queue.receive(3, 20.0)
            server.stop()
            for _ in range(2):
                with pytest.raises(QueueUnavailable):
                    queue.complete(held[:1])
                with pytest.raises(QueueUnavailable):
                    queue.renew(held[1:])
            server.start()
            until(lambda: settled(queue, held), "a server that is back")
            assert len(queue.renew(held[2:])) == 1
        assert server.count("orders") == 1


def settled(queue: Queue, held: list[QueueMessage]) -> bool:
    try:
        return queue.complete(held[:2]) == []
    except QueueUnavailable:
        return False
