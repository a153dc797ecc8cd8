"""A Service Bus queue as Leasehold's, on the local server: what `Queue` promises, and what its URL says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from azure.servicebus._pyamqp.receiver import ReceiverLink

from leasehold.backends import masked
from leasehold.errors import ConfigError, QueueUnavailable, Verdict
from leasehold.queues import Queue, QueueMessage, open_queue
from leasehold.queues.service_bus import queue as of_service_bus
from leasehold.queues.service_bus import url as addresses
from leasehold.queues.service_bus.queue import ServiceBusQueue
from leasehold_testkit.emulators.service_bus import ServiceBusServer
from leasehold_testkit.emulators.service_bus.serving import QueueClient
from tests.azure_clients import LEAVES_SOCKETS
from tests.queue_processor.counted import count_service
from tests.queues.conftest import url
from tests.queues.messages import bodies, received
from tests.queues.servers import Message, Server, connected, send
from tests.waiting import NEVER, PATIENCE, until

pytestmark = LEAVES_SOCKETS
OTHER = "Endpoint=sb://other/%3BSharedAccessKeyName=k%3BSharedAccessKey=secret"


@pytest.fixture
def orders(server: ServiceBusServer) -> Iterator[Queue]:
    with closing(open_queue(url(server))) as queue:
        yield queue


def renewed_past_a_lock(server: Server, queue: Queue, held: list[QueueMessage]) -> list[QueueMessage]:
    """What is still held after longer than a lock lasts, renewed four times meanwhile."""
    for _ in range(4):
        server.let_pass(NEVER * 0.3)
        held = list(queue.renew(held))
    return held


def test_a_message_comes_with_what_its_sender_put_in(server: ServiceBusServer, orders: Queue) -> None:
    with connected(server) as client:
        properties = {"customer": "c-1", "amount": 7}
        send(client, "orders", Message(b"{}", message_id="m", partition_key="p", application_properties=properties))
    before = time.time()
    (message,) = received(orders, 1)
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
    first, second = received(orders, 2)
    orders.abandon([first])
    assert orders.dead_letter(second, "bad", "no amount")
    (again,) = received(orders, 1)
    assert (again.body, again.delivery_count) == (b"a", 1)
    with closing(orders.dead_letters()) as dead:
        (message,) = dead.peek(0, 5)
        assert (message.dead_letter_reason, message.dead_letter_description) == ("bad", "no amount")
        assert message.locked_until == 0.0


def test_a_lock_that_was_lost_is_a_value(server: Server) -> None:
    server.send("orders", "a", "b")
    with closing(open_queue(url(server))) as queue:
        lost, kept = received(queue, 2)
        held = renewed_past_a_lock(server, queue, [kept])
        assert bodies(held) == [b"b"]
        assert held[0].locked_until > kept.locked_until
        assert queue.complete([lost, *held]) == [lost]
        assert not queue.dead_letter(lost, "r", "d")
        queue.abandon([lost])
        assert queue.renew([lost]) == []


def test_a_session_that_was_lost_takes_the_locks_of_its_messages_with_it(server: Server) -> None:
    server.send("sessions", "a", "b", session_id="s")
    with closing(open_queue(f"{url(server, 'sessions')}?sessions=true")) as queue:
        held = renewed_past_a_lock(server, queue, received(queue, 2))
        assert bodies(held) == [b"a", b"b"]
        server.let_pass(NEVER)
        assert queue.complete(held) == held
        assert queue.renew(held) == []
        again = received(queue, 2)
        assert [(each.body, each.delivery_count) for each in again] == [(b"a", 1), (b"b", 1)]
        assert queue.complete(again) == []
    assert server.count("sessions") == 0


def test_an_answer_that_never_comes_is_not_waited_for(
    server: ServiceBusServer, orders: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.send("orders", "a")
    held = received(orders, 1)

    async def unanswered(*_: object) -> None:
        return None

    monkeypatch.setattr(of_service_bus, "_RETRIES", 0)
    monkeypatch.setattr(addresses, "_TRY_TIMEOUT", 0.5)
    with closing(open_queue(url(server))) as queue:

        def answered() -> bool:
            with suppress(QueueUnavailable):  # what comes later than after half a second counts as not coming
                return bodies(queue.peek(0, 5)) == [b"a"]
            return False

        until(answered, "an answer")
        with monkeypatch.context() as patch:
            patch.setattr(QueueClient, "_take", unanswered)
            with pytest.raises(QueueUnavailable, match=r"timed out|Failed to receive") as raised:
                queue.peek(0, 5)
        assert raised.value.verdict is Verdict.PASSES
        until(answered, "an answer of the server, which answers again")
    assert orders.complete(held) == []


def test_what_comes_between_two_receives_is_given_to_the_second(
    server: ServiceBusServer, orders: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client by itself gives it back, and is handed it again."""
    calls = count_service(monkeypatch)
    assert orders.receive(5, 0.1) == []  # the service may hand out five from now on
    server.send("orders", "a", "b")
    until(lambda: calls["handed out"] >= 2, "the server to hand out both")
    assert len(orders.peek(0, 5)) == 2  # a question of the same connection reads them
    assert bodies(found := received(orders, 2)) == [b"a", b"b"]
    assert orders.complete(found) == []
    assert (calls["handed out"], calls["outcomes"]) == (2, 2)


def test_what_has_come_is_given_back_where_nobody_receives_it(server: ServiceBusServer) -> None:
    with closing(open_queue(url(server))) as queue:
        assert queue.receive(5, 0.1) == []
        server.send("orders", "a")
        assert len(queue.peek(0, 5)) == 1
    with closing(open_queue(url(server))) as other:
        (message,) = received(other, 1)
        assert message.delivery_count == 0


@pytest.mark.parametrize("settle", ["complete", "abandon"])
def test_outcomes_of_several_messages_are_all_sent_before_an_answer_is_waited_for(
    server: ServiceBusServer, orders: ServiceBusQueue, monkeypatch: pytest.MonkeyPatch, settle: str
) -> None:
    calls = count_service(monkeypatch)
    server.send("orders", "a", "b", "c", "d")
    messages = received(orders, 4)
    waited: list[int] = []
    wait = ReceiverLink._wait_for_disposition_outcome

    def waits(link: Any, delivery_ids: list[int], *more: Any) -> None:
        waited.append(len(link._pending_dispositions))
        wait(link, delivery_ids, *more)

    monkeypatch.setattr(ReceiverLink, "_wait_for_disposition_outcome", waits)
    assert not getattr(orders, settle)(messages)
    assert waited == [4, 3, 2, 1]
    assert calls["outcomes"] == 4
    with closing(open_queue(url(server))) as other:
        assert isinstance(other, ServiceBusQueue)
        again = received(other, 4) if settle == "abandon" else other.receive(5, 0.2)
        assert [each.delivery_count for each in again] == ([1] * 4 if settle == "abandon" else [])


def test_outcomes_whose_answers_are_lost_are_sent_again(server: ServiceBusServer, orders: Queue) -> None:
    server.send("orders", "a", "b", "c")
    messages = received(orders, 3)
    server.faults.swallow_outcomes(1)
    orders.complete(messages)  # those that were done are lost to another, for all that is known
    assert server.count("orders") == 0
    server.send("orders", "d")
    assert orders.complete(received(orders, 1)) == []


def test_locks_that_have_ended_without_a_word_are_values_among_others(server: ServiceBusServer, orders: Queue) -> None:
    server.send("orders", "a", "b")
    messages = received(orders, 2)
    server.faults.lose_locks()
    server.send("orders", "c")
    assert bodies(orders.complete([*messages, *received(orders, 1)])) == [b"a", b"b"]


def test_nothing_comes_from_an_empty_queue(orders: Queue) -> None:
    assert orders.receive(5, 0.2) == []
    assert orders.peek(0, 5) == []


def test_a_subscription_is_a_queue(server: ServiceBusServer) -> None:
    server.send("news", "a")
    with closing(open_queue(url(server, "news/subscriptions/all"))) as queue:
        (message,) = received(queue, 1)
        assert queue.complete([message]) == []
        assert queue.name == f"{server.namespace}/news/subscriptions/all"
    assert server.count("news/all") == 0


def test_a_queue_that_is_not_there_and_a_server_that_is_not_are_told_apart(
    server: ServiceBusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_service_bus, "_RETRIES", 0)  # the driver's pauses between them are long
    with closing(open_queue(url(server, "nowhere"))) as queue, pytest.raises(QueueUnavailable) as raised:
        queue.receive(1, PATIENCE)
    assert raised.value.verdict is not Verdict.PASSES
    with closing(open_queue(url(server))) as queue:
        server.stop()
        with pytest.raises(QueueUnavailable) as raised:
            queue.receive(1, PATIENCE)
    assert raised.value.verdict is Verdict.PASSES


@pytest.mark.parametrize(
    ("stated", "match"),
    [
        ("servicebus://ns", "servicebus://NAMESPACE"),
        ("servicebus:///q", "servicebus://NAMESPACE"),
        ("servicebus://ns/q/$deadletterqueue", "servicebus://NAMESPACE"),
        ("servicebus://user:secret@ns/q", "servicebus://NAMESPACE"),
        ("servicebus://user:secret/q", "servicebus://NAMESPACE"),
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
