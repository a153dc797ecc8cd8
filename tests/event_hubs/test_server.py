"""The server at its sockets: hostile and idle clients are disconnected, others do not notice, nothing leaks."""

from __future__ import annotations

import contextlib
import gc
import random
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from leasehold.emulators.amqp.frames import AMQP_HEADER, FrameReader
from leasehold.emulators.amqp.messages import Message, sent_messages
from leasehold.emulators.amqp.performatives import Attach, Begin, Close, Disposition, Open, Performative, Transfer
from leasehold.emulators.amqp.types import Described, ULong, encode
from leasehold.emulators.event_hubs import EventHubsServer, Limits, MemoryHub
from leasehold.errors import ConfigError
from tests.event_hubs.test_fuzz import hostile
from tests.event_hubs.wire import (
    condition,
    consumer,
    flow,
    frame,
    message,
    opening,
    performatives,
    producer,
    transfers,
)

SOON = 60.0  # seconds, a bound for a hang


class Raw:
    """A client by hand, at a socket."""

    def __init__(self, server: EventHubsServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=SOON)
        self._reader = FrameReader(1 << 30)
        self.heard: list[Performative] = []

    def say(self, *data: bytes) -> None:
        for part in data:
            self._socket.sendall(part)

    def hear(self, wanted: Callable[[Raw], object]) -> None:
        """Read until `wanted`, or the end of the stream."""
        while not wanted(self):
            data = self._socket.recv(65_536)
            if not data:
                assert wanted(self), f"the server has closed after {self.heard}"
                return
            self.heard += performatives(self._reader.feed(data))

    def end(self) -> Performative | None:
        """Read to the end of the stream; the last word, if there was one."""
        with contextlib.suppress(ConnectionError):
            while data := self._socket.recv(65_536):
                self.heard += performatives(self._reader.feed(data))
        return self.heard[-1] if self.heard else None

    def count(self, kind: type[Performative]) -> int:
        return sum(isinstance(one, kind) for one in self.heard)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def hub() -> MemoryHub:
    return MemoryHub(1)


@contextlib.contextmanager
def serving(hub: MemoryHub, **limits: float) -> Iterator[EventHubsServer]:
    with EventHubsServer({"orders": hub}, limits=Limits(**limits)) as server:  # type: ignore[arg-type]
        yield server


def check_alive(raw: Raw, number: int) -> None:
    """Send one event on a client that is open already, and see its outcome."""
    before = raw.count(Disposition)
    raw.say(transfers(message(b"%d" % number), delivery=number))
    raw.hear(lambda one: one.count(Disposition) > before)


def test_a_client_sends_and_receives(hub: MemoryHub) -> None:
    with serving(hub) as server, contextlib.closing(Raw(server)) as raw:
        raw.say(opening(), frame(producer(0), consumer(1)), frame(flow(1, credit=5)))
        raw.hear(lambda one: one.count(Begin))
        raw.say(transfers(message(b"hello")))
        raw.hear(lambda one: one.count(Transfer) and one.count(Disposition))
    assert hub.state("0").end == 1


def test_hostile_clients_disturb_no_other_and_cost_little(hub: MemoryHub) -> None:
    with serving(hub) as server, contextlib.closing(Raw(server)) as raw:
        raw.say(opening(), frame(producer()))
        raw.hear(lambda one: one.count(Begin))
        check_alive(raw, 0)
        gc.collect()
        threads = threading.active_count()  # official consumers of other tests leave theirs behind
        tracemalloc.start()
        try:
            for number in range(1, 401):
                with contextlib.closing(Raw(server)) as bad, contextlib.suppress(ConnectionError):
                    bad.say(*hostile(random.Random(number)))
                if number % 20 == 0:
                    check_alive(raw, number)
            eventually(lambda: server.connections == 1)
            check_alive(raw, 401)
            gc.collect()
            held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 64 << 20
        assert held < 8 << 20
        assert threading.active_count() <= threads + 2


def eventually(wanted: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not wanted():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def test_a_bad_frame_is_answered_with_a_close_and_the_end_of_the_stream(hub: MemoryHub) -> None:
    with serving(hub) as server, contextlib.closing(Raw(server)) as raw:
        raw.say(opening(), b"\xff" * 8)
        last = raw.end()
        assert isinstance(last, Close)
        assert condition(last) == "amqp:connection:framing-error"


@pytest.mark.parametrize("said", [b"", b"AMQP", AMQP_HEADER, AMQP_HEADER + b"\x00\x00\x01"])
def test_a_client_that_does_not_open_is_disconnected(hub: MemoryHub, said: bytes) -> None:
    with serving(hub, handshake_timeout=0.2) as server, contextlib.closing(Raw(server)) as raw:
        raw.say(said)
        raw.end()
        eventually(lambda: server.connections == 0)


def test_a_client_that_shows_no_complete_frame_is_disconnected(hub: MemoryHub) -> None:
    """One byte now and then is no progress."""
    with serving(hub, idle_timeout=0.5) as server, contextlib.closing(Raw(server)) as raw:
        raw.say(opening())
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for byte in frame(producer()):
                raw.say(bytes((byte,)))
                time.sleep(0.05)
                if not server.connections:
                    break
        assert time.monotonic() - began < 20
        eventually(lambda: server.connections == 0)


def test_a_client_that_shows_it_is_alive_stays_and_is_shown_the_same(hub: MemoryHub) -> None:
    with serving(hub, idle_timeout=2.0) as server, contextlib.closing(Raw(server)) as raw:
        raw.say(AMQP_HEADER, frame(Open(container_id="x", idle_time_out=200)))
        for _ in range(20):
            raw.say(b"\x00\x00\x00\x08\x02\x00\x00\x00")
            time.sleep(0.12)
        raw.say(frame(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)))
        raw.hear(lambda one: one.count(Begin))
        assert server.connections == 1
        opened = raw.heard[0]
        assert isinstance(opened, Open)
        assert opened.idle_time_out == 1000


def test_a_client_that_does_not_read_is_disconnected_and_held_back(hub: MemoryHub) -> None:
    hub.append("0", sent(message(b"x" * 100_000), 300))
    with serving(hub, idle_timeout=0.5) as server, contextlib.closing(Raw(server)) as raw:
        tracemalloc.start()
        try:
            raw.say(opening(window=1 << 30), frame(consumer()), frame(flow(credit=10_000, window=1 << 30)))
            for _ in range(20):
                with contextlib.suppress(ConnectionError):
                    raw.say(b"\x00\x00\x00\x08\x02\x00\x00\x00")
                time.sleep(0.1)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 << 20, "it is not all put into memory"
        eventually(lambda: server.connections == 0)


def sent(payload: bytes, count: int) -> list[Message]:
    return sent_messages(0, payload) * count


def test_answers_that_wait_for_credit_are_limited(hub: MemoryHub) -> None:
    """An answer repeats the id of its request, and goes out when the client grants credit."""
    request = encode(Described(ULong(0x73), ["i" * 1_000])) + encode(Described(ULong(0x77), None))
    with serving(hub, waiting_bytes=5_000) as server, contextlib.closing(Raw(server)) as raw:
        raw.say(opening(), frame(producer(0, "$cbs"), consumer(1, "$cbs")))
        raw.hear(lambda one: one.count(Attach) == 2)
        raw.say(*(transfers(request, delivery=number) for number in range(8)))
        raw.hear(lambda one: one.count(Disposition) == 8)
        outcomes = [one.state.descriptor for one in raw.heard if isinstance(one, Disposition)]
        assert outcomes == [0x24] * 4 + [0x25] * 4, "accepted, and then rejected"
        raw.say(frame(flow(1, credit=3)))
        raw.hear(lambda one: one.count(Transfer) == 3)
        raw.say(transfers(request, delivery=8))
        raw.hear(lambda one: one.count(Disposition) == 9)
        assert raw.heard[-1].state.descriptor == 0x24, "what went out makes room"  # type: ignore[attr-defined]


def test_connections_are_limited(hub: MemoryHub) -> None:
    with serving(hub, connections=2) as server, contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(contextlib.closing(Raw(server))) for _ in range(2))
        for raw in (first, second):
            raw.say(opening())
            raw.hear(lambda one: one.count(Begin))
        third = stack.enter_context(contextlib.closing(Raw(server)))
        assert third.end() is None
        first.close()
        eventually(lambda: server.connections == 1)
        fourth = stack.enter_context(contextlib.closing(Raw(server)))
        fourth.say(opening())
        fourth.hear(lambda one: one.count(Begin))


def test_stopping_says_so_to_clients_and_leaves_nothing(hub: MemoryHub) -> None:
    before = threading.active_count()
    server = EventHubsServer({"orders": hub})
    server.start()
    with contextlib.closing(Raw(server)) as raw:
        raw.say(opening(), frame(consumer()), frame(flow()))
        raw.hear(lambda one: one.count(Begin))
        server.stop()
        last = raw.end()
        assert isinstance(last, Close)
        assert condition(last) == "amqp:connection:forced"
    server.stop()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="start"):
        server.faults.drop_connections()
    gc.collect()


def test_a_server_may_be_started_again_at_its_port(hub: MemoryHub) -> None:
    server = EventHubsServer({"orders": hub})
    for _ in range(2):
        with server, contextlib.closing(Raw(server)) as raw:
            raw.say(opening(), frame(producer()))
            raw.hear(lambda one: one.count(Begin))
            check_alive(raw, 0)
    assert hub.state("0").end == 2


def test_a_port_that_is_taken_is_an_error_that_says_so(hub: MemoryHub) -> None:
    with serving(hub) as server:
        other = EventHubsServer({"orders": hub}, port=server.port)
        with pytest.raises(ConfigError, match=f"port = {server.port}"):
            other.start()
        other.stop()


@pytest.mark.parametrize("hubs", [{}, {"a": MemoryHub(), "A": MemoryHub()}, {"a/b": MemoryHub()}, {"": MemoryHub()}])
def test_names_that_cannot_be_addressed_are_refused(hubs: dict[str, MemoryHub]) -> None:
    with pytest.raises(ConfigError, match="hubs"):
        EventHubsServer(hubs)


def test_limits_are_checked() -> None:
    for bad in ({"frame_size": 100}, {"links": 0}, {"idle_timeout": -1.0}, {"sessions": 1 << 17}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            Limits(**bad)


def test_a_hub_that_is_not_served_has_no_connection_string(hub: MemoryHub) -> None:
    with serving(hub) as server, pytest.raises(ConfigError, match="orders"):
        server.connection_string("other")
