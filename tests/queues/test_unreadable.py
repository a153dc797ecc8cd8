"""What senders put into messages: all of it comes, and what cannot be read comes without bytes. No link ends."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus._pyamqp._decode import decode_payload
from hypothesis import given

from leasehold.queues import open_queue
from leasehold.queues.service_bus import prompt
from leasehold.queues.service_bus.decoding import decode
from leasehold.queues.service_bus.queue import ServiceBusQueue, _message
from leasehold_testkit.emulators.amqp.types import Described, ULong, encode
from leasehold_testkit.emulators.service_bus import ServiceBusServer
from leasehold_testkit.emulators.service_bus.content import content_of
from tests.azure_clients import LEAVES_SOCKETS
from tests.hubs.unreadable import (
    BEFORE_A_BODY,
    BODIES,
    BODY,
    BY_NO_CLIENT,
    NO_SECTIONS,
    SERVICE,
    STATED,
    VALUE,
    VALUES,
    broken,
)
from tests.queues.conftest import url
from tests.queues.messages import received

pytestmark = LEAVES_SOCKETS
UNREADABLE = (
    *BY_NO_CLIENT.values(),
    *BODIES.values(),
    *NO_SECTIONS.values(),
    *(each for each in BEFORE_A_BODY if each[2] != 0x70),
)
"""A header that cannot be read is the service's own: it writes one."""


def put(server: ServiceBusServer, entity: str, *bare: bytes, session_id: str | None = None) -> None:
    """Have a queue take messages of these sections, as the service does: it looks at no body."""
    found, shared = server._named(entity), server._shared
    assert shared is not None
    plain = replace(content_of(BODY), session_id=session_id)
    contents = [replace(plain, bare=each) for each in bare]
    server._ask(shared.namespace.do(found, lambda now: found.alive.send(contents, now)))


def test_each_message_comes_once_and_those_behind_it_too(server: ServiceBusServer) -> None:
    for each in UNREADABLE:
        put(server, "orders", each, BODY)
    with closing(open_queue(url(server))) as queue:
        found = received(queue, 2 * len(UNREADABLE))
        assert [message.sequence_number for message in found] == [*range(1, 2 * len(UNREADABLE) + 1)]
        assert [message.body for message in found] == len(UNREADABLE) * [None, b"body"]
        assert {message.delivery_count for message in found} == {0}
        assert queue.complete(found[1:]) == []
        assert queue.dead_letter(found[0], "NoBytes", "…")
        assert server.count("orders") == 0
        with closing(queue.dead_letters()) as dead:
            (message,) = received(dead, 1)
            assert (message.body, message.dead_letter_reason) == (None, "NoBytes")
            assert dead.complete([message]) == []


def test_in_a_session(server: ServiceBusServer) -> None:
    put(server, "sessions", UNREADABLE[0], BODY, session_id="s")
    with closing(open_queue(f"{url(server, 'sessions')}?sessions=true")) as queue:
        found = received(queue, 2)
        assert [message.body for message in found] == [None, b"body"]
        assert queue.complete(found) == []


def test_what_is_asked_for(server: ServiceBusServer) -> None:
    """Over the management link a message is bytes in an answer."""
    put(server, "orders", *UNREADABLE, BODY)
    with closing(open_queue(url(server))) as queue:
        assert isinstance(queue, ServiceBusQueue)
        expected = [None] * len(UNREADABLE) + [b"body"]
        assert [message.body for message in queue.peek(0, 100)] == expected
        assert queue.complete(received(queue, len(expected))) == []
    assert server.count("orders") == 0


def test_a_message_of_many_frames(server: ServiceBusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    large = encode(Described(ULong(0x75), bytes(200_000)))
    put(server, "orders", large, BODY, large)
    parts = []
    monkeypatch.setattr(prompt, "decode", lambda payload: parts.append(len(payload)) or decode(payload))  # type: ignore[func-returns-value]
    with closing(open_queue(url(server))) as queue:
        found = received(queue, 3)
        assert [len(message.body or b"") for message in found] == [200_000, 4, 200_000]
        assert queue.complete(found) == []
    assert len(parts) == 3


@given(value=VALUES)
def test_what_the_client_can_read_is_read_as_by_the_client(value: object) -> None:
    payload = SERVICE + encode(Described(ULong(STATED), {"a": value})) + encode(Described(ULong(VALUE), value))
    known: object = decode_payload(memoryview(payload))
    assert decode(payload) == known


@given(bare=broken())
def test_no_bytes_raise(bare: bytes) -> None:
    made: Any = ServiceBusReceivedMessage(
        decode(SERVICE + bare), receive_mode=ServiceBusReceiveMode.PEEK_LOCK, receiver=None
    )
    assert _message(made).sequence_number == 7
