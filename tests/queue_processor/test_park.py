"""Messages that wait in the sink: parked when their entity is busy or they fail, and tried in the queue's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import SinkUnavailable
from leasehold.handlers.contract import EntityEvent, Reject, Retry
from leasehold.leases import EntityLeases
from leasehold.processors.queues import QueueDelivery, QueueProcessor
from leasehold.processors.queues.parked import message_of, parked_of
from leasehold.queues import QueueMessage
from leasehold.sinks.beside.messages.contract import MessageName
from leasehold.sinks.beside.messages.parking import ParkedMessage
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import Selection
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.emulators.service_bus import ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.queue_processor.accounts import logs, processor
from tests.queue_processor.conftest import Accounts
from tests.queue_processor.runs import QUICK, bodies, running
from tests.queues.conftest import url
from tests.queues.servers import Message, connected, send
from tests.waiting import until

pytestmark = LEAVES_SOCKETS
ON_BOTH = pytest.mark.parametrize("table", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True)


def parks(
    server: ServiceBusServer,
    folder: Path,
    before: Callable[[EntityEvent], object] = lambda event: None,
    *,
    sink: str | None = None,
    **settings: Any,
) -> QueueProcessor:
    delivery = QueueDelivery(**QUICK | {"busy": "park"} | settings)
    return processor(url(server), folder, "one", before, sink=sink, delivery=delivery)


@ON_BOTH
def test_messages_of_a_busy_entity_leave_the_queue_and_are_processed_in_order_once_it_is_free(
    server: ServiceBusServer, tmp_path: Path, table: Accounts
) -> None:
    made = parks(server, tmp_path, sink=table.sink)
    with closing(EntityLeases(f"sqlite:////{tmp_path}/leases.db", scope="accounts/accounts")) as other, running(made):
        with other.hold("a"):
            server.send("orders", *bodies(1, 2, 3), *bodies(9, account="b"))
            until(lambda: server.count("orders") == 0, "an empty queue")
            assert table.logs() == {"b": [9]}
            assert made.counts["parked"] == 3
        until(lambda: table.logs() == {"a": [1, 2, 3], "b": [9]}, "effects in the table")
    assert (made.counts["applied"], made.counts["retried"], made.counts["lost"]) == (1, 3, 0)
    assert server.count("orders", dead=True) == 0


def test_what_fails_is_tried_again_at_its_time_with_the_later_ones_of_its_entity_behind_it(
    server: ServiceBusServer, tmp_path: Path
) -> None:
    tries: list[tuple[int, int]] = []

    def before(event: EntityEvent) -> None:
        tries.append((event.row["n"], event.delivery))
        if event.row["n"] == 1 and event.delivery < 3:
            until(lambda: logs(tmp_path).get("b") == [9], "effects in the table")
            raise Retry("later", after=0.01)

    server.send("orders", *bodies(0, 1, 2, 3), *bodies(9, account="b"))
    made = parks(server, tmp_path, before)
    with running(made):
        until(lambda: logs(tmp_path) == {"a": [0, 1, 2, 3], "b": [9]}, "effects in the table")
    assert [number for number in tries if number[0] != 9] == [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1), (3, 1)]
    assert server.count("orders") == 0
    assert made.counts["failed"] == 2


def test_what_fails_for_good_is_a_rejected_row_and_its_entity_goes_on(server: ServiceBusServer, tmp_path: Path) -> None:
    def before(event: EntityEvent) -> None:
        if event.row["n"] == 1:
            raise ValueError("out of stock")
        if event.row["n"] == 2:
            raise Reject("no such article")

    server.send("orders", *bodies(0, 1, 2, 3))
    made = parks(server, tmp_path, before, max_deliveries=3)
    with running(made):
        until(lambda: logs(tmp_path) == {"a": [0, 3]}, "effects in the table")
    spec = TableSpec(name="accounts", pipeline="accounts", keys=("account",))
    with closing(SqliteSink(tmp_path / "table.db", spec)) as sink:
        rows = sink.rejected_rows.rows(Selection(), 9)
    assert [(row.body, row.reason) for row in rows] == [
        (bodies(1)[0].encode(), "HandlerFailed: ValueError: out of stock"),
        (bodies(2)[0].encode(), "Rejected: no such article"),
    ]
    assert made.counts["retried_rejected"] == 2
    assert (server.count("orders"), server.count("orders", dead=True)) == (0, 0)


@pytest.mark.soak
def test_what_was_parked_and_not_completed_comes_again_and_has_one_effect_also_of_a_processor_that_waits(
    server: ServiceBusServer, tmp_path: Path
) -> None:
    at = f"sqlite:////{tmp_path}/leases.db"

    def keeps(messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        return [*messages]

    with connected(server) as client:
        send(client, "orders", *(Message(f'{{"n": {n}}}', application_properties={"shop": "a"}) for n in (1, 2)))
    with closing(EntityLeases(at, scope="accounts/accounts")) as other, other.hold("a"):
        made = parks(server, tmp_path, key="shop")
        made._queue.complete = keeps  # type: ignore[method-assign]
        with running(made):
            until(lambda: made.counts["parked"] == 2, "messages that count as parked")
    assert (made.counts["lost"], server.count("orders")) == (2, 2)
    server.faults.lose_locks()
    again = parks(server, tmp_path, key="shop", busy="wait")
    with running(again):
        until(
            lambda: server.count("orders") == 0 and logs(tmp_path) == {"a": [1, 2]}, "all effects, and an empty queue"
        )
    assert again.counts["applied"] + again.counts["retried"] == 2
    assert again.counts["duplicates"] + again.counts["received"] >= 2


def test_a_sink_that_is_away_when_a_message_is_given_up_is_waited_for(
    server: ServiceBusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = parks(server, tmp_path), list[ParkedMessage]()

    def away(message: ParkedMessage) -> None:
        asked.append(message)
        if len(asked) == 1:
            raise SinkUnavailable("locked")

    monkeypatch.setattr(made._turns._parking, "remove", away)
    server.send("orders", '{"account": "a"}')
    with running(made):
        until(lambda: server.count("orders", dead=True) == 1, "dead letters")
    assert (len(asked), made.counts["away"]) == (2, 1)


def test_what_was_parked_is_read_back_also_where_it_says_something_else() -> None:
    message = QueueMessage(b"x", 7, 5.0, "id", "session", "key", {"shop": "\0"}, 3)
    name = MessageName("shop/orders", message.identity, 7, 5.0)
    parked = parked_of(message, name, ("a",))
    assert message_of(parked) == QueueMessage(b"x", 7, 5.0, "id", "session", "key", {"shop": "\0"})
    for about in ("", "[]", "{", '{"message_id": 5, "properties": [1]}', '{"properties": {"a": 1}}', "[" * 100_000):
        read = message_of(ParkedMessage(name, ("a",), b"x", about, 2))
        assert read == QueueMessage(b"x", 7, 5.0, delivery_count=2)
