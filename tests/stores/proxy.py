"""A network that can be made bad: a proxy on this host, between a store and its server.

Owns its threads and sockets. It passes bytes on, or, when told to, hangs (takes a request and never passes it
on) or loses answers (passes the request on, waits for the answer and closes the connection instead).
"""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Listens on a port of its own and passes everything on to `target`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.hangs = False
        self.answers_to_lose = 0
        self.lost = 0
        self.losing = b""
        """Only answers to requests that contain this are lost."""
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target)) as server:
            self._open += [client, server]
            while request := client.recv(65536):
                if self.hangs:
                    threading.Event().wait(30)
                    return
                server.sendall(request)
                answer = server.recv(65536)
                if self._lose(request):
                    return
                client.sendall(answer)
                while not answer.endswith((b"\r\n\r\n", b"</EnumerationResults>", b"0\r\n\r\n", b"}", b"</Error>")):
                    answer = server.recv(65536)
                    client.sendall(answer)
                    if not answer:
                        return

    def _lose(self, request: bytes) -> bool:
        with self._lock:
            if self.answers_to_lose and self.losing in request:
                self.answers_to_lose -= 1
                self.lost += 1
                return True
        return False

    def close(self) -> None:
        self._server.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
