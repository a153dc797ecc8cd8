"""A small HTTP server: some paths, each answered by a function.

Owns the port. Promises to bind before it returns, so that a port in use is told at the start; to answer each request in
a thread of its own, so that a slow one keeps no other waiting; that clients cost no more than `MOST_CLIENTS` threads,
and each for no longer than `LONGEST`, whatever they send or leave unread: one client more is hung up on; and that an
answer which fails is a 500 in one request and nothing more. Knows GET and HEAD. Says nothing of who asks, and has no
secrets to protect: give it no others.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from leasehold.errors import ConfigError
from leasehold.listening import Address

logger = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
MOST_CLIENTS = 64
LONGEST = 60.0
"""Seconds from a client's connection to its end."""
_PATIENCE = 10.0  # seconds that a client may be silent


@dataclass(frozen=True, slots=True)
class MetricsResponse:
    """What a request gets."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


Route = Callable[[], MetricsResponse]
"""Answers one path. Called by several threads at once."""


class HttpServer:
    """Serves `routes`, by path, at `address` until it is closed; a port of 0 takes a free one.

    Raises `ConfigError` that names `field` where it cannot listen there.
    """

    def __init__(self, address: Address, routes: Mapping[str, Route], *, field: str = "listen") -> None:
        try:
            family, *_, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
            self._server = _server(family)((str(place[0]), address.port), _handler(routes))
        except OSError as error:
            raise ConfigError(field, str(address), f"cannot be listened at ({error})", "Name another port") from error
        self.address = Address(address.host, int(self._server.server_address[1]))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), daemon=True, name="leasehold-http"
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """What its paths begin with."""
        return f"http://{self.address}"

    def close(self) -> None:
        """Answer nobody any more, and give the port back. Closing twice is fine."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _server(family: int) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True
        request_queue_size = 128
        block_on_close = False  # a client that is slow to go keeps nobody

        def __init__(self, *arguments: Any) -> None:
            self._since: dict[Any, float] = {}  # when each client connected, the earliest first
            self._lock = threading.Lock()
            super().__init__(*arguments)

        def process_request(self, request: Any, client_address: Any) -> None:
            with self._lock:
                full = len(self._since) >= MOST_CLIENTS
                if not full:
                    self._since[request] = time.monotonic()
            if full:
                self.shutdown_request(request)
            else:
                super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            with self._lock:
                self._since.pop(request, None)
            super().shutdown_request(request)

        def service_actions(self) -> None:
            """Hang up on who is here for too long, several times a second: its thread then ends by itself."""
            now = time.monotonic()
            with self._lock:
                for request in [one for one, since in self._since.items() if now - since > LONGEST]:
                    with suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

        def handle_error(self, request: object, client_address: object) -> None:
            logger.debug("a request has ended early", exc_info=True)

    return Server


def _handler(routes: Mapping[str, Route]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE
        server_version, sys_version = "leasehold", ""

        def do_GET(self) -> None:
            self._answer(self._asked())

        def do_HEAD(self) -> None:
            self._answer(self._asked(), body=False)

        def _asked(self) -> MetricsResponse:
            route = routes.get(self.path.partition("?")[0])
            if route is None:
                return MetricsResponse(f"there is only {', '.join(routes)}\n".encode(), status=HTTPStatus.NOT_FOUND)
            try:
                return route()
            except Exception:
                logger.exception("%s could not be answered", self.path)
                return MetricsResponse(b"this failed; the log says why\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)

        def _answer(self, answer: MetricsResponse, *, body: bool = True) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if body:
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            logger.debug(format, *args)

    return Handler
