"""A registry of schemas in memory, for tests and trials: what Confluent's serializers and clients ask of one.

Owns the part of Confluent's REST API that they use: to register a schema, to look one up, to get it by number, and the
versions of a subject. It judges no compatibility and reads no schema. Numbers begin at 1, and equal texts of a kind
have one number, whatever their subjects.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

BOUNDS = "It is in memory: schemas are gone at the end, and none is checked against those before it"

_MEDIA = "application/vnd.schemaregistry.v1+json"
_MOST = 1 << 20  # bytes of a request
Answer = tuple[int, Any]


class RegistryServer:
    """A registry at `port` of this machine; 0 takes a free one.

    With `user` and `password`, or with a `token`, it lets nobody else in. With `tls` it speaks that, and `tls` says
    whose certificates it wants.
    """

    def __init__(
        self, port: int = 0, *, user: str = "", password: str = "", token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        basic = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}" if user else None
        self._allowed = f"Bearer {token}" if token else basic
        self.requests: list[str] = []
        """The paths that have been asked for, in order."""
        self._http = http_server(port, _handler(self._answer), tls)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """Its address, without a user."""
        return f"{'https' if isinstance(self._http.socket, ssl.SSLSocket) else 'http'}://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def register(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        """Register a schema of this text. Its number."""
        with self._lock:
            return self._register(subject, {"schema": schema, "schemaType": kind})

    def _answer(self, method: str, path: str, body: Any, authorization: str | None) -> Answer:
        with self._lock:
            self.requests.append(path)
            if self._allowed is not None and authorization != self._allowed:
                return 401, {"error_code": 40101, "message": "Unauthorized"}
            match method, [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]:
                case "GET", ["subjects"]:
                    return 200, sorted(self._subjects)
                case "GET", ["schemas", "ids", number] if number.isdecimal():
                    return self._of_number(int(number))
                case "GET", ["subjects", subject, "versions"] if subject in self._subjects:
                    return 200, list(range(1, len(self._subjects[subject]) + 1))
                case "GET", ["subjects", subject, "versions"]:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found"}
                case "GET", ["subjects", subject, "versions", version]:
                    return self._of_version(subject, version)
                case "POST", ["subjects", subject, "versions"]:
                    return 200, {"id": self._register(subject, body)}
                case "POST", ["subjects", subject]:
                    return self._looked_up(subject, body)
        return 404, {"error_code": 404, "message": f"{method} {path} is not served here"}

    def _of_number(self, number: int) -> Answer:
        if not 1 <= number <= len(self._schemas):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 200, self._schemas[number - 1]

    def _of_version(self, subject: str, version: str) -> Answer:
        numbers = self._subjects.get(subject, [])
        place = len(numbers) if version == "latest" else int(version) if version.isdecimal() else 0
        if not 1 <= place <= len(numbers):
            return 404, {"error_code": 40402, "message": f"Version {version} of {subject} not found"}
        number = numbers[place - 1]
        return 200, {"subject": subject, "version": place, "id": number, **self._schemas[number - 1]}

    def _register(self, subject: str, body: Any) -> int:
        schema = _schema(body)
        if schema not in self._schemas:
            self._schemas.append(schema)
        number = self._schemas.index(schema) + 1
        numbers = self._subjects.setdefault(subject, [])
        if number not in numbers:
            numbers.append(number)
        return number

    def _looked_up(self, subject: str, body: Any) -> Answer:
        schema = _schema(body)
        number = self._schemas.index(schema) + 1 if schema in self._schemas else 0
        if number not in self._subjects.get(subject, ()):
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return self._of_version(subject, str(self._subjects[subject].index(number) + 1))


class _TlsServer(ThreadingHTTPServer):
    """Shakes hands in the thread of each connection, so that nobody waits for one who does not."""

    def finish_request(self, request: Any, client_address: Any) -> None:
        with suppress(OSError):
            request.do_handshake()
            super().finish_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with suppress(OSError):
            super().shutdown_request(request)


def http_server(
    port: int, handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None
) -> ThreadingHTTPServer:
    """A server at a port of this machine, which nobody has begun to serve."""
    server = (ThreadingHTTPServer if tls is None else _TlsServer)(("127.0.0.1", port), handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


def _schema(body: Any) -> dict[str, Any]:
    """What is kept of a request. Avro is the kind that is not named."""
    kept = {"schema": str(body["schema"])}
    if (kind := body.get("schemaType") or "AVRO") != "AVRO":
        kept["schemaType"] = kind
    return kept | ({"references": body["references"]} if body.get("references") else {})


def _handler(answer: Callable[[str, str, Any, str | None], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or the body of an answer waits 40 ms for the client to confirm its head

        def do_GET(self) -> None:
            self._reply(*answer("GET", self.path, None, self.headers.get("Authorization")))

        def do_POST(self) -> None:
            try:
                length = min(int(self.headers.get("Content-Length") or 0), _MOST)
                body = json.loads(self.rfile.read(length))
                found = answer("POST", self.path, body, self.headers.get("Authorization"))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                found = 422, {"error_code": 42201, "message": f"not a request that is understood: {error}"}
            self._reply(*found)

        def _reply(self, status: int, content: Any) -> None:
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", _MEDIA)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

    return Handler
