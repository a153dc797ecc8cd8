"""What a handler emits is sent into a queue of Service Bus: with an id, in its session, a repeat once."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import ConfigError, QueueError, SchemaMismatch
from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.publishing import ID, QueuePublisher, publisher_at
from leasehold.queues import NewMessage, Queue, QueueMessage, open_queue
from leasehold.queues.service_bus.queue import ServiceBusQueue
from leasehold.queues.service_bus.url import read_url
from leasehold.sinks.beside.outbox.contract import WaitingEvent
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer
from tests.handlers.batches import rows
from tests.handlers.outbox_bench import Bench, outbox_of
from tests.queues.conftest import server, url
from tests.waiting import until

__all__ = ["server"]


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path, f"sqlite:////{tmp_path}/table.db", lambda query: rows(tmp_path, query))
    yield made
    made.close()


def received(queue_url: str, count: int) -> list[QueueMessage]:
    """This many messages, once they are there, and whatever came with them."""
    with closing(open_queue(queue_url)) as queue:
        found: list[QueueMessage] = []
        while len(found) < count:
            some = queue.receive(50, 1.0)
            assert queue.complete(some) == []
            found += some
    return found


def test_messages_have_key_and_id_and_come_in_order(bench: Bench, server: ServiceBusServer) -> None:
    table = bench.table(url(server))
    bench.give(table, 0, "a", "b", "a")
    until(lambda: outbox_of(table).counts().waiting == 0, "an outbox that is sent")
    found = received(url(server), 6)
    assert [one.body for one in found if one.partition_key == "a"] == [b"a1x", b"a1y", b"a2x", b"a2y"]
    assert len(found) == 6
    assert {one.message_id for one in found} == {f"h/0/{number}/{place}" for number in range(3) for place in range(2)}
    assert all(one.properties[ID] == one.message_id for one in found)


def test_sessions_are_by_key(bench: Bench, server: ServiceBusServer) -> None:
    queue_url = f"{url(server, 'sessions')}?sessions=true"
    table = bench.table(queue_url)
    bench.answers = {1: Effects({"events": 1}, [Emit("without a key")])}
    bench.give(table, 0, "a", "b", "a")
    until(lambda: outbox_of(table).counts().waiting == 0, "an outbox that is sent")
    assert outbox_of(table).counts().refused == 1
    found = received(queue_url, 4)
    assert [(one.session_id, one.body) for one in found] == [("a", b"a1x"), ("a", b"a1y"), ("a", b"a2x"), ("a", b"a2y")]


def test_a_repeat_is_dropped_by_a_queue_that_detects_duplicates(server: ServiceBusServer) -> None:
    queue_url = url(server, "twice")
    sender = publisher_at(queue_url, None, lambda: "unused")()
    long = "x" * 200
    events = [WaitingEvent(1, "h/0/1/0", b"one", "a"), WaitingEvent(2, long, b"two")]
    sender.publish(events)
    sender.publish(events)
    sender.publish([WaitingEvent(3, "h/0/2/0", b"last")])
    sender.close()
    found = received(queue_url, 3)
    assert sorted(one.body or b"" for one in found) == [b"last", b"one", b"two"]
    found = [one for one in found if one.body == b"two"]
    assert found[0].properties[ID] == long
    assert len(found[0].message_id or "") == 64


@pytest.mark.more(but=8)
@pytest.mark.parametrize(
    "message",
    [
        NewMessage(b"", key="k" * 129),
        NewMessage(b"", key="a\ud800"),
        NewMessage(b"", message_id="a\ud800"),
        NewMessage(b"", message_id="a\ud800" * 100),
        NewMessage(b"", properties={"a\ud800": "b"}),
        NewMessage(b"", properties={"a": "b\ud800"}),
    ],
)
@pytest.mark.parametrize("entity", ["orders", "sessions?sessions=true"])
def test_a_message_that_a_queue_never_takes_is_refused_as_its_own_fault(
    server: ServiceBusServer, entity: str, message: NewMessage
) -> None:
    with closing(open_queue(url(server, entity))) as queue:
        with pytest.raises(SchemaMismatch):
            queue.send([NewMessage(b"before", key="a"), replace(message, key=message.key or "k")])
        queue.send([NewMessage(b"after", key="a")])
    assert server.count(entity.partition("?")[0]) == 1


@pytest.mark.more
def test_a_message_that_is_larger_than_a_batch_is_sent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a queue of the tier Premium takes it: up to 100 MB, and batches up to 1 MB."""
    large = b"z" * 3_000_000
    with ServiceBusServer({"orders": QueueSettings()}, limits=Limits(message_size=4 << 20)) as server:
        monkeypatch.setenv("LEASEHOLD_SERVICE_BUS_CONNECTION_STRING", server.connection_string())
        with closing(open_queue(url(server))) as queue:
            queue.send([NewMessage(body, key="a") for body in (b"a", large, b"b")])
            for size, properties in ((4 << 20, {}), ((4 << 20) - 200, {"about": "z" * 200})):
                with pytest.raises(SchemaMismatch, match="larger than the 4,194,304 bytes"):
                    queue.send([NewMessage(b"z" * size, properties=properties)])
        assert [one.body for one in received(url(server), 3)] == [b"a", large, b"b"]


class ReadOnlyQueue(ServiceBusQueue):
    """A queue that leaves what a queue may do beside at the defaults of `Queue`."""

    takes_messages, send, shortest_lock = Queue.takes_messages, Queue.send, Queue.shortest_lock


def test_a_queue_that_takes_no_messages_is_refused_as_a_receiver(server: ServiceBusServer) -> None:
    with closing(ReadOnlyQueue(read_url(url(server)))) as queue:
        assert (queue.takes_messages, queue.shortest_lock) == (False, 0.0)
        with pytest.raises(ConfigError, match="a queue that takes messages"):
            QueuePublisher(queue)
        with pytest.raises(QueueError, match="2 messages were to be sent, and this queue takes none"):
            queue.send([NewMessage(b"a"), NewMessage(b"b")])
    assert server.count("orders") == 0


def test_a_message_that_is_too_large(server: ServiceBusServer) -> None:
    with closing(open_queue(url(server))) as queue:
        with pytest.raises(SchemaMismatch, match="larger than"):
            queue.send([NewMessage(b"x"), NewMessage(b"z" * 5_000_000)])
        queue.send([NewMessage(b"y" * 100_000, key="a") for _ in range(5)])
    assert sorted(len(one.body or b"") for one in received(url(server), 6)) == [1, *[100_000] * 5]
