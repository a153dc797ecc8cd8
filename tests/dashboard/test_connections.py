"""Slow clients, silent ones, and many: on real sockets, with short bounds."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from leasehold.dashboard.connections import BoundedHttp
from tests.waiting import NEVER, PATIENCE, until

SOON = 0.5
LARGE = b"x" * 1_000_000
REQUEST = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


def bounds(patience: float) -> type[BoundedHttp]:
    """Three connections at most, each of which may keep the server waiting for so long."""

    class Bounded(BoundedHttp):
        most = 3

    Bounded.patience = patience
    return Bounded


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Waits for all of a request; without end at `/stream`, as the dashboard's stream is."""
    request = Request(scope, receive)
    await request.body()
    answer = StreamingResponse(_much()) if request.url.path == "/stream" else PlainTextResponse("done")
    await answer(scope, receive, send)


async def _much() -> AsyncIterator[bytes]:
    while True:
        yield LARGE
        await asyncio.sleep(0)  # by hand: no time at all, others have their turn, as beside whoever waits for news


@contextmanager
def served(http: type[BoundedHttp]) -> Iterator[tuple[uvicorn.Server, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, http=http, ws="none", lifespan="off", log_config=None, timeout_keep_alive=600)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until(lambda: server.started, "the server")
            yield server, listening.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        yield connection


def is_hung_up_on(connection: socket.socket) -> bool:
    """Wait for the end; whether there was no answer before it."""
    try:
        return connection.recv(100) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HT",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_who_never_ends_a_request_is_hung_up_on(begun: bytes) -> None:
    with served(bounds(SOON)) as (_, port), connected(port) as slow:
        with suppress(ConnectionError):  # hung up on already
            slow.sendall(begun)
        assert is_hung_up_on(slow)


def test_a_byte_now_and_then_buys_no_time() -> None:
    with served(bounds(SOON)) as (_, port), connected(port) as slow:
        slow.settimeout(0.05)

        def ended() -> bool:
            try:
                slow.sendall(b"G")
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        until(ended, "the end")


def test_a_second_request_has_the_same_time() -> None:
    http = bounds(NEVER)
    with served(http) as (_, port), connected(port) as slow:
        slow.sendall(REQUEST % b"")
        answer = b""
        while not answer.endswith(b"done"):
            answer += slow.recv(1_000)
        http.patience = SOON
        slow.sendall(b"GET / HT")
        assert is_hung_up_on(slow)


def test_who_reads_nothing_is_hung_up_on() -> None:
    http = bounds(NEVER)
    with served(http) as (server, port), connected(port) as idle:
        until(lambda: server.server_state.connections, "the connection")
        http.patience = SOON
        idle.sendall(REQUEST % b"stream")
        until(lambda: not server.server_state.connections, "the end of it")


def test_who_reads_is_served_for_as_long_as_they_like() -> None:
    paused, http = list[asyncio.TimerHandle | None](), bounds(NEVER)

    class Noting(http):  # type: ignore[misc, valid-type]
        def pause_writing(self) -> None:
            super().pause_writing()
            paused.append(self._taken_by)

    with served(Noting) as (_, port), connected(port) as reader:
        reader.sendall(REQUEST % b"stream")

        def read() -> bool:
            assert reader.recv(1_000_000)
            return len(paused) >= 10

        until(read, "some pauses", pause=0.0)
    assert all(timer is not None and timer.cancelled() for timer in paused[:-1]), "each time they have as long anew"
    assert len(set(map(id, paused))) == len(paused)


def test_one_too_many_is_hung_up_on_and_the_others_are_served() -> None:
    with served(bounds(NEVER)) as (server, port), ExitStack() as open_ones:
        readers = [open_ones.enter_context(connected(port)) for _ in range(3)]
        for one in readers:
            one.sendall(REQUEST % b"stream")
            assert one.recv(10)
        with connected(port) as late:
            assert is_hung_up_on(late)
        assert all(one.recv(10) for one in readers)
        readers[0].close()
        until(lambda: len(server.server_state.connections) < 3, "room")
        with connected(port) as another:
            another.sendall(REQUEST % b"")
            assert another.recv(10).startswith(b"HTTP/1.1")
