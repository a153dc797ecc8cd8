"""A network that can be made bad: a proxy on this host, between a store and its server.

Owns its threads and sockets. It passes bytes on, or, when told to, hangs (takes a request and never passes it
on), loses answers (passes the request on, waits for the answer and closes the connection instead), holds a request
(keeps it until it is let go, and closes the connection, so that the sender gives it up) or is far away (each answer
takes a while).
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading

from tests.waiting import take


class Proxy:
    """Listens on a port of its own and passes everything on to `target`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.hangs = False
        self.away = 0.0
        """Seconds that each answer takes."""
        self.answers_to_lose = 0
        self.lost = 0
        self.losing = b""
        """Only answers to requests that contain this are lost."""
        self.holding = b""
        """The next request that contains this is held."""
        self.held = b""
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        self._open += [client, server]
        doomed = threading.Event()
        threading.Thread(target=self._back, args=(client, server, doomed), daemon=True).start()
        with contextlib.suppress(OSError):
            while request := client.recv(65536):
                if self.hangs:
                    continue
                if self._begins_to_hold(request):
                    self.held = _whole(request, client)
                    break
                if self._lose(request):
                    doomed.set()
                server.sendall(request)
        self._end(client, server)

    def _back(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while answer := server.recv(65536):
                if doomed.is_set():
                    break
                take(self.away)
                client.sendall(answer)
        self._end(client, server)

    @staticmethod
    def _end(*sockets: socket.socket) -> None:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _lose(self, request: bytes) -> bool:
        with self._lock:
            if self.answers_to_lose and self.losing in request:
                self.answers_to_lose -= 1
                self.lost += 1
                return True
        return False

    def _begins_to_hold(self, request: bytes) -> bool:
        with self._lock:
            if not self.holding or self.holding not in request:
                return False
            self.holding = b""
            return True

    def let_go(self) -> None:
        """Pass on what is held, and wait for its answer, which goes to nobody."""
        with socket.create_connection(("127.0.0.1", self._target)) as server:
            server.sendall(self.held)
            server.recv(65536)

    def close(self) -> None:
        self._server.close()
        self._end(*self._open)


def _whole(request: bytes, client: socket.socket) -> bytes:
    """A request with the rest of its body, which may come after its head."""
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0 and (more := client.recv(missing)):
        request, missing = request + more, missing - len(more)
    return request
