"""In front of librdkafka's mock cluster, what it lacks: an answer to DescribeConfigs, on the wire.

A relay that passes every request and answer on as it is, but for three things: it adds DescribeConfigs to the
requests that the broker says it knows, puts its own port in the place of the broker's, and answers DescribeConfigs
itself. The client is the real one and sees a broker that tells the topic's configuration.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Mapping

API_VERSIONS, METADATA, DESCRIBE_CONFIGS = 18, 3, 32


class ConfigRelay:
    """Relays to the broker at `servers` (`host:port`); tells `config` of every topic it is asked about."""

    def __init__(self, servers: str, config: Mapping[str, str | None]) -> None:
        host, _, port = servers.partition(":")
        self._broker, self._config = (host, int(port)), config
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.servers = f"127.0.0.1:{self.port}"
        self.described = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        for each in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                broker = socket.create_connection(self._broker)
                self._open += [client, broker]
                asked: dict[int, tuple[int, int]] = {}
                threading.Thread(target=self._requests, args=(client, broker, asked), daemon=True).start()
                threading.Thread(target=self._answers, args=(client, broker, asked), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _frame(client)
                key, version, correlation = struct.unpack_from(">hhi", frame)
                if key == DESCRIBE_CONFIGS:
                    self.described += 1
                    _send(client, struct.pack(">i", correlation) + self._described(frame))
                    continue
                asked[correlation] = key, version
                _send(broker, frame)

    def _answers(self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _frame(broker)
                key, version = asked.pop(struct.unpack_from(">i", frame)[0])
                if key == API_VERSIONS:
                    frame = _with_describe_configs(frame, version)
                host, port = self._broker
                there = host.encode() + struct.pack(">i", port)
                _send(client, frame.replace(there, b"127.0.0.1" + struct.pack(">i", self.port)))

    def _described(self, request: bytes) -> bytes:
        """DescribeConfigs 1: one resource, all of its configuration."""
        at = 8 + 2 + max(0, struct.unpack_from(">h", request, 8)[0])  # behind the client's name
        resources, kind, length = struct.unpack_from(">ibh", request, at)
        assert resources == 1
        name = request[at + 7 : at + 7 + length].decode()
        entries = b"".join(
            _text(key) + _text(value) + struct.pack(">bbbi", 0, 1, 0, 0) for key, value in self._config.items()
        )
        return (
            struct.pack(">iih", 0, 1, 0)
            + _text(None)
            + struct.pack(">b", kind)
            + _text(name)
            + struct.pack(">i", len(self._config))
            + entries
        )


def _with_describe_configs(answer: bytes, version: int) -> bytes:
    error, entry = struct.unpack_from(">h", answer, 4)[0], struct.pack(">hhh", DESCRIBE_CONFIGS, 0, 1)
    if version >= 3 and not error:  # flexible: the count is a varint, plus one; each entry ends with its tags
        count = answer[6]
        assert count < 127
        return answer[:6] + bytes([count + 1]) + entry + b"\0" + answer[7:]
    count = struct.unpack_from(">i", answer, 6)[0]
    return answer[:6] + struct.pack(">i", count + 1) + entry + answer[10:]


def _frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(struct.pack(">i", len(frame)) + frame)


def _text(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()
