"""Hostile bytes: recorded streams, changed at random, never do more than end their own connection.

The seed is the bug report: it is in the message of the assertion. `FUZZ_INPUTS` sets how many streams are tried;
`make soak` tries 100,000.
"""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from leasehold_testkit.emulators.amqp.conditions import AmqpError
from leasehold_testkit.emulators.amqp.connection import Connection
from leasehold_testkit.emulators.amqp.frames import AMQP_HEADER, FrameReader, Header
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.amqp.links import (
    ACCEPTED,
    AttachAsked,
    Delivered,
    Disposed,
    Flowed,
    Link,
    Request,
    filters_of,
    rejected,
)
from leasehold_testkit.emulators.amqp.messages import BATCH_FORMAT, sections, sent_messages
from leasehold_testkit.emulators.amqp.performatives import Close, SaslOutcome
from leasehold_testkit.emulators.event_hubs import addresses
from testkit.tests.event_hubs.hostile import flip, number, replace, shorten
from testkit.tests.event_hubs.streams import hostile
from testkit.tests.event_hubs.wire import RECORDED, message, performatives

INPUTS = int(os.environ.get("FUZZ_INPUTS", "5000"))
MANY = max(INPUTS, 100_000)
LIMITS = Limits(frame_size=65_536, message_size=50_000, partial_bytes=100_000, sessions=8, links=16, credit=50)


def serve(connection: Connection, links: list[Link], requests: list[Request]) -> None:
    """Answer as the server does, from memory."""
    for request in requests:
        if isinstance(request, Disposed):
            continue
        link = request.link
        if isinstance(request, AttachAsked):
            try:
                address = addresses.consumer_address if link.sends else addresses.producer_address
                address(link.address)
                addresses.start(filters_of(link).get("apache.org:selector-filter:string"))
                connection.accept(link)
                links.append(link)
            except AmqpError as error:
                connection.refuse(link, error)
        elif isinstance(request, Delivered):
            try:
                sent_messages(request.message_format, request.payload)
                connection.settle(request, ACCEPTED)
            except AmqpError as error:
                connection.settle(request, rejected(error))
        elif isinstance(request, Flowed):
            for _ in range(4):  # the server writes out what it has sent before it sends more
                connection.send(link, message(b"y" * 700))


def tried(seed: int) -> tuple[Connection, int]:
    """Feed one hostile stream to a connection; return it, and how many bytes it answered."""
    chance = random.Random(seed)
    connection, links = Connection(LIMITS), list[Link]()
    answered = bytearray()
    for part in hostile(chance):
        serve(connection, links, connection.receive(part))
        answered += connection.output()
        if connection.closed:
            break
        held = connection.held_bytes
        assert 0 <= held <= LIMITS.partial_bytes, f"seed {seed}: {held} bytes of messages are held"
    check_answers(seed, connection, bytes(answered))
    return connection, len(answered)


def check_answers(seed: int, connection: Connection, answered: bytes) -> None:
    """What was said is AMQP, and a connection that ended said so at last."""
    units = list(FrameReader(1 << 20).feed(answered))
    if connection.closed and units[-1] != Header(AMQP_HEADER):
        (last,) = performatives(units[-1:])
        assert isinstance(last, Close | SaslOutcome), f"seed {seed}: the last word is {last}"
        assert not isinstance(last, SaslOutcome) or last.code == 2, f"seed {seed}: {last}"
    if connection.closed:
        assert connection.receive(b"\x00" * 8) == []


def seeds(inputs: int) -> Iterator[int]:
    first = int(os.environ.get("FUZZ_SEED", "20260131"))
    return iter(range(first, first + inputs))


@pytest.mark.more
@pytest.mark.timeout(900)
@pytest.mark.parametrize("inputs", [INPUTS, pytest.param(MANY, marks=pytest.mark.soak)])
def test_hostile_streams_end_in_a_proper_error_and_hold_little(inputs: int) -> None:
    closed = answered = 0
    tracemalloc_every = 20_000
    for count, seed in enumerate(seeds(inputs)):
        if count % tracemalloc_every == 0:
            tracemalloc.start()
            tried(seed)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 8 << 20, f"seed {seed}: {peak:,} bytes at once"
            continue
        connection, size = tried(seed)
        closed += connection.closed
        answered += size
    assert closed > inputs // 4, "many changes are errors"
    assert answered / max(1, inputs) < 20_000


def test_hostile_messages_are_refused() -> None:
    payloads = [message(b"body" * 20), RECORDED["producer"][-400:]]
    batch = b"".join(message(message(b"%d" % n)) for n in range(5))
    for seed in range(INPUTS):
        chance = random.Random(seed)
        payload = chance.choice((flip, replace, number, shorten))(chance, chance.choice([*payloads, batch]))
        for message_format in (0, BATCH_FORMAT):
            try:
                sent_messages(message_format, payload)
                sections(payload)
            except AmqpError as error:
                assert error.condition == "amqp:decode-error", f"seed {seed}"  # noqa: PT017  others pass on
