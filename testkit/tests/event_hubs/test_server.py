"""The server at its sockets: hostile and idle clients are disconnected, others do not notice, nothing leaks."""

from __future__ import annotations

import contextlib
import gc
import random
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.waiting import NEVER, PATIENCE, until

from leasehold.errors import ConfigError
from leasehold_testkit.emulators.amqp.frames import AMQP_HEADER, FrameReader
from leasehold_testkit.emulators.amqp.limits import SHORTEST_IDLE
from leasehold_testkit.emulators.amqp.messages import Message, sent_messages
from leasehold_testkit.emulators.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Disposition,
    Open,
    Performative,
    Transfer,
)
from leasehold_testkit.emulators.amqp.types import Described, ULong, encode
from leasehold_testkit.emulators.event_hubs import EventHubsServer, Limits, MemoryHub
from testkit.tests.event_hubs.streams import hostile
from testkit.tests.event_hubs.wire import (
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

ALIVE = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""A frame without a body: all it says is that the client is there."""


class Raw:
    """A client by hand, at a socket."""

    def __init__(self, server: EventHubsServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
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
        raw.hear(lambda one: one.count(Attach) == 2)  # before that, nobody may send
        raw.say(transfers(message(b"hello")))
        raw.hear(lambda one: one.count(Transfer) and one.count(Disposition))
    assert hub.state("0").end == 1


def test_hostile_clients_disturb_no_other_and_cost_little(hub: MemoryHub) -> None:
    with serving(hub) as server, contextlib.closing(Raw(server)) as raw:
        raw.say(opening(), frame(producer()))
        raw.hear(lambda one: one.count(Attach))
        check_alive(raw, 0)
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(1, 201):
                with contextlib.closing(Raw(server)) as bad, contextlib.suppress(ConnectionError):
                    bad.say(*hostile(random.Random(number)))
                if number % 20 == 0:
                    check_alive(raw, number)
            until(lambda: server.connections == 1, "all others to be gone")
            check_alive(raw, 201)
            gc.collect()
            held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 64 << 20
        assert held < 8 << 20
        assert threads_of(server) == 1, "no thread for a client"


def threads_of(server: EventHubsServer) -> int:
    """How many threads there are with the name of a server's."""
    return sum(thread.name.startswith((type(server).__name__, "served-")) for thread in threading.enumerate())


def test_a_bad_frame_is_answered_with_a_close_and_the_end_of_the_stream(hub: MemoryHub) -> None:
    with serving(hub) as server, contextlib.closing(Raw(server)) as raw:
        raw.say(opening(), b"\xff" * 8)
        last = raw.end()
        assert isinstance(last, Close)
        assert condition(last) == "amqp:connection:framing-error"


@pytest.mark.parametrize("said", [b"", b"AMQP", AMQP_HEADER, AMQP_HEADER + b"\x00\x00\x01"])
def test_a_client_that_does_not_open_is_disconnected(hub: MemoryHub, said: bytes) -> None:
    with (
        serving(hub, handshake_timeout=0.2) as server,  # expires: the only client is the one that does not open
        contextlib.closing(Raw(server)) as raw,
    ):
        raw.say(said)
        raw.end()
        until(lambda: server.connections == 0, "it to be disconnected")


def test_a_client_that_shows_no_complete_frame_is_disconnected(hub: MemoryHub) -> None:
    """One byte now and then is no progress."""
    piecemeal = iter(transfers(message(b"x" * 60_000)))
    with (
        serving(hub, idle_timeout=0.5) as server,  # expires: the only client is the one without a complete frame
        contextlib.closing(Raw(server)) as raw,
    ):
        raw.say(opening())
        raw.hear(lambda one: one.count(Begin))

        def left() -> bool:
            with contextlib.suppress(ConnectionError):
                raw.say(bytes((next(piecemeal),)))
            return server.connections == 0

        until(left, "it to be disconnected", pause=0.05)


def test_a_client_that_shows_it_is_alive_stays_and_is_shown_the_same(
    hub: MemoryHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 0.0
    with serving(hub, idle_timeout=NEVER) as server, contextlib.closing(Raw(server)) as raw:
        assert server._loop is not None
        real = server._loop.time
        monkeypatch.setattr(server._loop, "time", lambda: real() + ahead)
        raw.say(AMQP_HEADER, frame(Open(container_id="x", idle_time_out=SHORTEST_IDLE)))
        raw.hear(lambda one: one.count(Open))
        for _ in range(4):
            before = heard(server)
            ahead += NEVER * 0.6
            raw.say(ALIVE)
            until(partial(has_heard, server, before + 1), "the sign to come")
        raw.say(frame(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)))
        raw.hear(lambda one: one.count(Begin))
        assert server.connections == 1
        opened = raw.heard[0]
        assert isinstance(opened, Open)
        assert opened.idle_time_out == NEVER * 500


def has_heard(server: EventHubsServer, frames: int) -> bool:
    return heard(server) >= frames


def heard(server: EventHubsServer) -> int:
    """How many frames the only client has sent, as far as the server has read them."""
    assert server._shared is not None
    return sum(client._connection.frames for client in server._shared.clients)


def holds_back(server: EventHubsServer) -> bool:
    """Whether the server has something for the only client that its socket does not take."""
    assert server._shared is not None
    return any(client._writer.transport.get_write_buffer_size() for client in list(server._shared.clients))


def test_a_client_that_does_not_read_is_disconnected_and_held_back(
    hub: MemoryHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.append("0", sent(message(b"x" * 100_000), 300))
    ahead = 0.0
    with serving(hub, idle_timeout=NEVER) as server, contextlib.closing(Raw(server)) as raw:
        assert server._loop is not None
        real = server._loop.time
        monkeypatch.setattr(server._loop, "time", lambda: real() + ahead)

        def left() -> bool:
            """Let less than the idle time-out pass between two signs of life: the client only does not read."""
            nonlocal ahead
            before = heard(server)
            ahead += NEVER * 0.4
            with contextlib.suppress(ConnectionError):
                raw.say(ALIVE)
            until(lambda: server.connections == 0 or has_heard(server, before + 1), "the sign to come")
            return server.connections == 0

        tracemalloc.start()
        try:
            raw.say(opening(window=1 << 30))
            raw.hear(lambda one: one.count(Begin))
            raw.say(frame(consumer()), frame(flow(credit=10_000, window=1 << 30)))
            until(lambda: holds_back(server), "the server to have more than the client takes")
            until(left, "it to be disconnected")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 << 20, "it is not all put into memory"


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
        until(lambda: server.connections == 1, "the first to be gone")
        fourth = stack.enter_context(contextlib.closing(Raw(server)))
        fourth.say(opening())
        fourth.hear(lambda one: one.count(Begin))


def test_stopping_says_so_to_clients_and_leaves_nothing(hub: MemoryHub) -> None:
    before = set(threading.enumerate())
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
    assert set(threading.enumerate()) <= before
    with pytest.raises(RuntimeError, match="start"):
        server.faults.drop_connections()
    gc.collect()


def test_stopping_closes_also_who_is_just_being_accepted(hub: MemoryHub) -> None:
    """An open socket that is left behind is an error once it is collected."""
    for _ in range(20):
        with serving(hub) as server, contextlib.closing(Raw(server)) as raw:
            raw.say(opening())
    gc.collect()


def test_a_server_may_be_started_again_at_its_port(hub: MemoryHub) -> None:
    server = EventHubsServer({"orders": hub})
    for _ in range(2):
        with server, contextlib.closing(Raw(server)) as raw:
            raw.say(opening(), frame(producer()))
            raw.hear(lambda one: one.count(Attach))
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
