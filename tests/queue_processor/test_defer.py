"""Messages that lie deferred in the queue, and are noted in the sink, while their entity is busy or they fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.emulators.service_bus import ServiceBusServer
from leasehold.handlers.contract import EntityEvent, Reject, Retry
from leasehold.leases import EntityLeases
from leasehold.processors.queues import QueueDelivery, QueueProcessor
from leasehold.queues import open_queue
from tests.azure_clients import LEAVES_SOCKETS
from tests.queue_processor.accounts import logs, processor
from tests.queue_processor.conftest import Accounts
from tests.queue_processor.runs import QUICK, bodies, running
from tests.queues.conftest import url
from tests.service_bus.servers import Server, connected, receive
from tests.waiting import until

pytestmark = LEAVES_SOCKETS


def defers(
    server: ServiceBusServer,
    folder: Path,
    before: Callable[[EntityEvent], object] = lambda event: None,
    *,
    sink: str | None = None,
    **settings: Any,
) -> QueueProcessor:
    delivery = QueueDelivery(**QUICK | {"busy": "defer"} | settings)
    return processor(url(server), folder, "one", before, sink=sink, delivery=delivery)


@pytest.mark.parametrize("table", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True)
def test_messages_of_a_busy_entity_lie_in_the_queue_and_are_asked_for_in_order_once_it_is_free(
    server: ServiceBusServer, tmp_path: Path, table: Accounts
) -> None:
    made = defers(server, tmp_path, sink=table.sink)
    with closing(EntityLeases(f"sqlite:////{tmp_path}/leases.db", scope="accounts/accounts")) as other, running(made):
        with other.hold("a"):
            server.send("orders", *bodies(1, 2, 3), *bodies(9, account="b"))
            until(
                lambda: server.count("orders") == 3 and made.counts["deferred"] == 3, "messages that count as deferred"
            )
            assert table.logs() == {"b": [9]}
        until(
            lambda: table.logs() == {"a": [1, 2, 3], "b": [9]} and server.count("orders") == 0,
            "all effects, and an empty queue",
        )
    assert (made.counts["applied"], made.counts["lost"], made.counts["given_back"]) == (4, 0, 0)
    assert server.count("orders", dead=True) == 0


@pytest.mark.soak
@pytest.mark.parametrize("table", ["sqlite", "postgres"], indirect=True)
def test_what_fails_lies_deferred_and_is_dead_lettered_at_last_with_the_later_ones_behind_it(
    server: ServiceBusServer, tmp_path: Path, table: Accounts
) -> None:
    tries: list[tuple[int, int]] = []

    def before(event: EntityEvent) -> None:
        tries.append((event.row["n"], event.delivery))
        if event.row["n"] == 1 and event.delivery < 3:
            until(lambda: table.logs().get("b") == [9], "effects in the table")
            raise Retry("later", after=0.01)
        if event.row["n"] == 2:
            raise ValueError("out of stock")
        if event.row["n"] == 3:
            raise Reject("no such article")

    server.send("orders", *bodies(0, 1, 2, 3, 4), *bodies(9, account="b"))
    with running(defers(server, tmp_path, before, sink=table.sink, max_deliveries=4)):
        until(
            lambda: table.logs() == {"a": [0, 1, 4], "b": [9]} and server.count("orders") == 0,
            "all effects, and an empty queue",
        )
    assert [each for each in tries if each[0] != 9] == [
        *[(0, 1), (1, 1), (1, 2), (1, 3)],
        *[(2, 1), (2, 2), (2, 3), (2, 4)],
        *[(3, 1), (4, 1)],
    ]
    with closing(open_queue(url(server))) as queue, closing(queue.dead_letters()) as dead:
        found = {each.body: (each.dead_letter_reason, each.dead_letter_description) for each in dead.peek(1, 10)}
    assert found == {
        bodies(2)[0].encode(): ("HandlerFailed", "ValueError: out of stock"),
        bodies(3)[0].encode(): ("Rejected", "no such article"),
    }


@pytest.mark.soak
def test_messages_that_somebody_else_has_deferred_are_found_and_processed(
    server: ServiceBusServer, tmp_path: Path
) -> None:
    server.send("orders", *bodies(1, 2), "no JSON")
    with connected(server) as client, client.get_queue_receiver("orders") as receiver:
        for message in receive(receiver, 3):
            receiver.defer_message(message)
    server.send("orders", *bodies(9, account="b"))
    with running(defers(server, tmp_path)):
        until(
            lambda: logs(tmp_path) == {"a": [1, 2], "b": [9]} and server.count("orders") == 1,
            "all effects, and an empty queue",
        )
    assert server.count("orders", dead=True) == 0, "what cannot be read stays as somebody has left it"


@pytest.mark.soak
def test_a_deferred_message_that_is_in_the_queue_no_more_holds_nobody_up(
    server: ServiceBusServer, tmp_path: Path
) -> None:
    made = defers(server, tmp_path)
    with closing(EntityLeases(f"sqlite:////{tmp_path}/leases.db", scope="accounts/accounts")) as other, running(made):
        with other.hold("a"):
            server.send("orders", *bodies(1, 2))
            until(lambda: made.counts["deferred"] == 2, "messages that count as deferred")
            with connected(server) as client, client.get_queue_receiver("orders") as receiver:
                (message,) = receiver.receive_deferred_messages([1])
                receiver.complete_message(message)
        until(lambda: logs(tmp_path) == {"a": [2]} and server.count("orders") == 0, "all effects, and an empty queue")


@pytest.mark.soak
def test_a_message_that_was_done_and_lies_deferred_is_completed(server: Server, tmp_path: Path) -> None:
    def before(event: EntityEvent) -> None:
        if event.row["n"] == 1:
            server.faults.lose_locks()  # it is done, and not completed

    server.send("orders", *bodies(1))
    first = defers(server, tmp_path, before)
    with running(first):
        until(lambda: first.counts["applied"] == 1, "messages that count as applied")
        first.stop()
    if server.free("orders"):
        with connected(server) as client, client.get_queue_receiver("orders") as receiver:
            for message in receive(receiver, 1):
                receiver.defer_message(message)
    with running(defers(server, tmp_path)):
        until(lambda: server.count("orders") == 0, "an empty queue")
    assert logs(tmp_path) == {"a": [1]}
