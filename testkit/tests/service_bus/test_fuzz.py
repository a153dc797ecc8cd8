"""Hostile bytes: recorded streams, changed at random, through the server's own client code, from socket to queue.

The seed is the bug report: it is in the message of the assertion. `FUZZ_INPUTS` sets how many streams are tried;
without it, few in `make test` and 100,000 in `make soak`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import tracemalloc
from pathlib import Path

import pytest
from tests.waiting import PATIENCE

from leasehold.clock import SystemClock
from leasehold_testkit.emulators.amqp.conditions import AmqpError
from leasehold_testkit.emulators.amqp.frames import FrameReader, Header
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.amqp.links import Link
from leasehold_testkit.emulators.amqp.messages import BATCH_FORMAT
from leasehold_testkit.emulators.amqp.performatives import Close, SaslOutcome
from leasehold_testkit.emulators.service_bus.content import content_of, sent_contents
from leasehold_testkit.emulators.service_bus.faults import Faults
from leasehold_testkit.emulators.service_bus.kept import KeptEntity
from leasehold_testkit.emulators.service_bus.namespace import Entity, Namespace, entity_of
from leasehold_testkit.emulators.service_bus.serving import QueueClient, ServingQueues
from leasehold_testkit.emulators.service_bus.settings import QueueSettings
from testkit.tests.event_hubs.hostile import Hostile, flip, number, replace, shorten
from testkit.tests.event_hubs.wire import message, performatives

RECORDED = [path.read_bytes() for path in sorted((Path(__file__).parent / "recorded").glob("*.bin"))]
"""What the official client sent: sending and scheduling, every way to settle, sessions, receive-and-delete."""
HOSTILE = Hostile(RECORDED)
LIMITS = Limits(frame_size=65_536, message_size=50_000, partial_bytes=100_000, sessions=8, links=16, credit=50)
FIRST = int(os.environ.get("FUZZ_SEED", "20261122"))


class Socket:
    """Takes what a client is answered."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.transport = self

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    async def drain(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


def entities() -> dict[str, Entity]:
    made = {
        name: entity_of(KeptEntity(name, "queue", settings), None)
        for name, settings in {
            "orders": QueueSettings(max_delivery_count=2, duplicate_window=60.0),
            "sessions": QueueSettings(requires_session=True),
        }.items()
    }
    contents = [content_of(message(b"%d" % at)) for at in range(6)]
    made["orders"].alive.send(contents, 1)
    return made


async def tried(seed: int) -> int:
    """Feed one hostile stream to a client of the server; return how many bytes it answered."""
    made = entities()
    serving: ServingQueues

    def expel(holder: object, error: AmqpError) -> None:
        if isinstance(holder, Link) and holder in serving.owners:
            serving.owners[holder].expel(holder, error)

    faults = Faults(lambda: 0, lambda error, name: 0, lambda name: 0)
    namespace = Namespace(made, None, SystemClock(), expel, lambda: None)
    serving = ServingQueues(LIMITS, faults, namespace=namespace, queue_faults=faults)
    reader, socket = asyncio.StreamReader(), Socket()
    for part in HOSTILE.stream(random.Random(seed)):
        reader.feed_data(part)
    reader.feed_eof()
    client = QueueClient(serving, reader, socket)  # type: ignore[arg-type]
    async with asyncio.timeout(PATIENCE):
        await client.run()
        while rest := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(rest)
    assert not serving.clients, f"seed {seed}"
    assert not serving.owners, f"seed {seed}"
    for entity in made.values():
        assert not entity.waiting, f"seed {seed}: somebody waits for {entity.name} for ever"
        assert not len(entity.locks), f"seed {seed}: a session of {entity.name} is held by nobody"
        if entity.timer is not None:
            entity.timer.cancel()
    check_answers(seed, bytes(socket.written))
    return len(socket.written)


def check_answers(seed: int, answered: bytes) -> None:
    """What was said is AMQP, and nothing follows the last word."""
    units = [unit for unit in FrameReader(1 << 20).feed(answered) if not isinstance(unit, Header)]
    assert answered.startswith(b"AMQP") or not answered, f"seed {seed}"
    said = performatives(list(units))
    for early in said[:-1]:
        assert not isinstance(early, Close), f"seed {seed}: {early} is not the last word"
        assert not isinstance(early, SaslOutcome) or early.code == 0, f"seed {seed}: {early}"


def run(inputs: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> int:
        answered = 0
        for seed in range(FIRST, FIRST + inputs):
            if (seed - FIRST) % 10_000 == 0:
                tracemalloc.start()
                await tried(seed)
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                assert peak < 8 << 20, f"seed {seed}: {peak:,} bytes at once"
                continue
            answered += await tried(seed)
            assert not caplog.records, f"seed {seed}: {caplog.records[0].getMessage()}"
        return answered

    with caplog.at_level(logging.WARNING, "leasehold"):
        answered = asyncio.run(main())
    assert 100 < answered / inputs < 20_000


@pytest.mark.more
@pytest.mark.timeout(120)
def test_hostile_streams_end_their_own_connection_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    run(int(os.environ.get("FUZZ_INPUTS", "2000")), caplog)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_a_hundred_thousand_hostile_streams(caplog: pytest.LogCaptureFixture) -> None:
    run(100_000, caplog)


def test_hostile_messages_are_refused() -> None:
    batch = b"".join(message(message(b"%d" % at)) for at in range(5))
    payloads = [message(b"body" * 20), content_of(message(b"x")).encoded(), batch]
    for seed in range(5_000):
        chance = random.Random(seed)
        payload = chance.choice((flip, replace, number, shorten))(chance, chance.choice(payloads))
        for message_format in (0, BATCH_FORMAT):
            try:
                for content in sent_contents(message_format, payload):
                    assert content_of(content.encoded()) == content, f"seed {seed}"
            except AmqpError as error:
                assert error.condition == "amqp:decode-error", f"seed {seed}"  # noqa: PT017  others pass on
