"""A place for a block, with the servers that its page names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer
from tests.doc_blocks.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path, stack)


@pytest.fixture
def servers(request: pytest.FixtureRequest, scene: Scene) -> Scene:
    """The scene, with the servers that are asked for by name with `servers_of`."""
    for name in getattr(request, "param", ()):
        if name == "redis":
            url = request.getfixturevalue("redis_server").url
            scene.instead |= {"redis://leases.example:6379": url, "redis://…": url}
        elif name == "azurite":
            scene.environment["AZURITE"] = request.getfixturevalue("azurite").connection_string
        elif name == "kafka":
            cluster = request.getfixturevalue("cluster")
            scene.instead["kafka://broker-1:9092,broker-2:9092/flights"] = cluster.url(cluster.topic())
        else:
            assert name == "service_bus"
            _add_service_bus(scene)
    return scene


def _add_service_bus(scene: Scene) -> None:
    """A server with the queue `orders`, in which two orders wait."""
    queues = {"orders": QueueSettings(lock_duration=30)}
    server = scene.stack.enter_context(ServiceBusServer(queues))
    scene.environment["LEASEHOLD_SERVICE_BUS_CONNECTION_STRING"] = server.connection_string()
    address = server.connection_string().partition("sb://")[2].partition(";")[0].rstrip("/")
    scene.instead["shop.servicebus.windows.net"] = address
    send_orders(scene)


def send_orders(scene: Scene) -> None:
    """Put two orders into the queue."""
    connection = scene.environment["LEASEHOLD_SERVICE_BUS_CONNECTION_STRING"]
    client = ServiceBusClient.from_connection_string(connection)
    with client, client.get_queue_sender("orders") as sender:
        for n in range(2):
            body = json.dumps({"order_id": f"o{n}", "amount": n + 1})
            sender.send_messages(ServiceBusMessage(body, application_properties={"customer": f"c{n}"}))
