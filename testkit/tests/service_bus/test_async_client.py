"""The official client's other face, `azure.servicebus.aio`, against the local server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.azure_clients import LEAVES_SOCKETS
from tests.queues.servers import FAST, Message, serve
from tests.waiting import PATIENCE

from leasehold_testkit.emulators.service_bus import ServiceBusServer

aio: Any = pytest.importorskip("azure.servicebus.aio")
logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = LEAVES_SOCKETS


@pytest.fixture
def server() -> Iterator[ServiceBusServer]:
    with serve() as server:
        yield server


def connected(server: ServiceBusServer) -> Any:
    return aio.ServiceBusClient.from_connection_string(server.connection_string(), **FAST)


async def receive(receiver: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        more = await receiver.receive_messages(count - len(found), max_wait_time=PATIENCE)
        assert more, f"{len(found)} of {count} messages came"
        found += more
    return found


def test_every_way_to_settle_a_message(server: ServiceBusServer) -> None:
    async def main() -> None:
        async with connected(server) as client:
            async with client.get_queue_sender("orders") as sender:
                await sender.send_messages([Message(str(number)) for number in range(6)])
            async with client.get_queue_receiver("orders") as receiver:
                found = await receive(receiver, 6)
                assert [str(message) for message in found] == ["0", "1", "2", "3", "4", "5"]
                await receiver.complete_message(found[0])
                await receiver.abandon_message(found[1])
                await receiver.defer_message(found[2])
                await receiver.dead_letter_message(found[3], reason="r")
                assert await receiver.renew_message_lock(found[4]) > found[5].locked_until_utc
                await receiver.complete_message(found[4])
                await receiver.complete_message(found[5])
                (again,) = await receive(receiver, 1)
                (deferred,) = await receiver.receive_deferred_messages([3])
                assert (str(again), again.delivery_count, str(deferred)) == ("1", 1, "2")
                await asyncio.gather(*map(receiver.complete_message, (again, deferred)))

    asyncio.run(main())
    assert (server.count("orders"), server.count("orders", dead=True)) == (0, 1)


def test_a_session_with_a_state(server: ServiceBusServer) -> None:
    server.send("sessions", "a", "b", session_id="s")

    async def main() -> None:
        async with connected(server) as client, client.get_queue_receiver("sessions", session_id="s") as receiver:
            await receiver.session.set_state(b"x")
            assert await receiver.session.get_state() == b"x"
            await receiver.session.renew_lock()
            for message in await receive(receiver, 2):
                await receiver.complete_message(message)

    asyncio.run(main())
    assert server.count("sessions") == 0
