"""A Service Bus queue as Leasehold's, on the local server: what `Queue` promises, and what its URL says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from leasehold.backends import masked
from leasehold.emulators.service_bus import ServiceBusServer
from leasehold.errors import ConfigError, QueueUnavailable, may_pass
from leasehold.queues import Queue, QueueMessage, open_queue
from tests.queues.conftest import LOCK, url
from tests.service_bus.servers import LEAVES_SOCKETS, Message, connected, send

pytestmark = LEAVES_SOCKETS
SOON = 20.0
OTHER = "Endpoint=sb://other/%3BSharedAccessKeyName=k%3BSharedAccessKey=secret"


@pytest.fixture
def orders(server: ServiceBusServer) -> Iterator[Queue]:
    with closing(open_queue(url(server))) as queue:
        yield queue


def bodies(messages: object) -> list[bytes | None]:
    return [message.body for message in messages]  # type: ignore[attr-defined]


def received(queue: Queue, count: int) -> list[QueueMessage]:
    """So many messages, though a receive may return before all have come."""
    found: list[QueueMessage] = []
    while len(found) < count:
        more = queue.receive(count - len(found), SOON)
        assert more, f"{len(found)} of {count} messages have come"
        found += more
    return found


def renewed_past_a_lock(queue: Queue, held: list[QueueMessage]) -> list[QueueMessage]:
    """What is still held after longer than a lock lasts, renewed four times meanwhile."""
    for _ in range(4):
        time.sleep(LOCK * 0.3)
        held = list(queue.renew(held))
    return held


def test_a_message_comes_with_what_its_sender_put_in(server: ServiceBusServer, orders: Queue) -> None:
    with connected(server) as client:
        properties = {"customer": "c-1", "amount": 7}
        send(client, "orders", Message(b"{}", message_id="m", partition_key="p", application_properties=properties))
    before = time.time()
    (message,) = orders.receive(5, SOON)
    assert (message.body, message.message_id, message.partition_key) == (b"{}", "m", "p")
    assert message.properties == {"customer": "c-1", "amount": "7"}
    assert (message.sequence_number, message.delivery_count) == (1, 0)
    assert message.enqueued_time <= before + 1 < message.locked_until
    assert message.identity == f"1@{round(message.enqueued_time * 1_000)}"
    assert orders.complete([message]) == []
    assert server.count("orders") == 0


def test_what_is_abandoned_comes_again_and_what_is_dead_lettered_does_not(
    server: ServiceBusServer, orders: Queue
) -> None:
    server.send("orders", "a", "b")
    first, second = orders.receive(2, SOON)
    orders.abandon([first])
    assert orders.dead_letter(second, "bad", "no amount")
    (again,) = orders.receive(2, SOON)
    assert (again.body, again.delivery_count) == (b"a", 1)
    with closing(orders.dead_letters()) as dead:
        (message,) = dead.peek(0, 5)
        assert (message.dead_letter_reason, message.dead_letter_description) == ("bad", "no amount")
        assert message.locked_until == 0.0


def test_a_lock_that_was_lost_is_a_value(server: ServiceBusServer) -> None:
    server.send("brief", "a", "b")
    with closing(open_queue(url(server, "brief"))) as queue:
        lost, kept = received(queue, 2)
        held = renewed_past_a_lock(queue, [kept])
        assert bodies(held) == [b"b"]
        assert held[0].locked_until > kept.locked_until
        assert queue.complete([lost, *held]) == [lost]
        assert not queue.dead_letter(lost, "r", "d")
        queue.abandon([lost])
        assert queue.renew([lost]) == []


def test_a_session_that_was_lost_takes_the_locks_of_its_messages_with_it(server: ServiceBusServer) -> None:
    server.send("brief-sessions", "a", "b", session_id="s")
    with closing(open_queue(f"{url(server, 'brief-sessions')}?sessions=true")) as queue:
        held = renewed_past_a_lock(queue, received(queue, 2))
        assert bodies(held) == [b"a", b"b"]
        time.sleep(LOCK + 0.3)
        assert queue.complete(held) == held
        assert queue.renew(held) == []
        again = received(queue, 2)
        assert [(each.body, each.delivery_count) for each in again] == [(b"a", 1), (b"b", 1)]
        assert queue.complete(again) == []
    assert server.count("brief-sessions") == 0


def test_nothing_comes_from_an_empty_queue(orders: Queue) -> None:
    assert orders.receive(5, 0.2) == []
    assert orders.peek(0, 5) == []


def test_a_subscription_is_a_queue(server: ServiceBusServer) -> None:
    server.send("news", "a")
    with closing(open_queue(url(server, "news/subscriptions/all"))) as queue:
        (message,) = queue.receive(5, SOON)
        assert queue.complete([message]) == []
        assert queue.name == f"{server.namespace}/news/subscriptions/all"
    assert server.count("news/all") == 0


def test_a_queue_that_is_not_there_and_a_server_that_is_not_are_told_apart(server: ServiceBusServer) -> None:
    with closing(open_queue(url(server, "nowhere"))) as queue, pytest.raises(QueueUnavailable) as raised:
        queue.receive(1, SOON)
    assert not may_pass(raised.value)
    with closing(open_queue(url(server))) as queue:
        server.stop()
        with pytest.raises(QueueUnavailable) as raised:
            queue.receive(1, SOON)
    assert may_pass(raised.value)


@pytest.mark.parametrize(
    ("stated", "match"),
    [
        ("servicebus://ns", "servicebus://NAMESPACE"),
        ("servicebus:///q", "servicebus://NAMESPACE"),
        ("servicebus://ns/q/$deadletterqueue", "servicebus://NAMESPACE"),
        ("servicebus://user:secret@ns/q", "servicebus://NAMESPACE"),
        ("servicebus://ns/q?prefetch=3", "its options are"),
        ("servicebus://ns/q?sessions=yes", "true or false"),
        ("servicebus://ns/q?transport=tcp", "one of amqp, websockets"),
        ("servicebus://ns/q?connection_string=secret", "holds no connection string"),
        ("servicebus://ns/q?connection_string_env=NOT_SET_HERE", "no environment variable"),
        ("servicebus://ns/q?connection_string_env=a=secret", "what is there is not shown"),
        (f"servicebus://ns/q?connection_string={OTHER}", "is for the namespace other"),
        ("queue://ns/q", "begins with servicebus://"),
    ],
)
def test_what_makes_no_queue_is_refused_without_its_secrets(stated: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as raised:
        open_queue(stated)
    assert "secret" not in str(raised.value)


def test_a_url_says_what_opens_the_queue_again(server: ServiceBusServer) -> None:
    string = server.connection_string().replace("=", "%3D").replace(";", "%3B").replace("&", "%26")
    stated = f"{url(server, 'news/Subscriptions/all')}?connection_string={string}"
    queue = open_queue(stated)
    assert queue.url == url(server, "news/subscriptions/all")
    assert "bG9jYWw" not in masked(stated)
