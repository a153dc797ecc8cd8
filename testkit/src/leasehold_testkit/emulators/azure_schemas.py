"""Azure's Schema Registry in memory, for tests: what its official clients and encoders ask of it, and who gives tokens.

Owns the part of the REST API of 2022-10 that they use: to register a schema in a group, to find its id by its text, and
to get it by its id, or by name and version. It reads no schema, and makes groups as they are named. Its answers, errors
among them, have the form of the service's own, as recorded by the tests of Azure's SDKs. The official client speaks
nothing but TLS, so that a test brings a certificate.

`IdentityServer` gives the tokens, as the managed identity of an Azure App Service does, which azure-identity finds by
two variables of the environment.
"""

from __future__ import annotations

import json
import re
import secrets
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from leasehold_testkit.emulators.registry import http_server

_MOST = 1 << 20  # bytes of a request
_ASKED_AS = "application/json; serialization=Avro"


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What a server says to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A version of a schema."""

    group: str
    name: str
    version: int
    id: str
    media: str
    text: bytes


class _Server:
    """Serves what `_answer` says, until it is closed."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self._http = http_server(port, _handler(self), tls)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._http.server_address[1])

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> ServerAnswer:
        raise NotImplementedError


class AzureSchemasServer(_Server):
    """A registry at `port` of this machine; 0 takes a free one. With a `token` it lets nobody in with another."""

    def __init__(self, tls: ssl.SSLContext, port: int = 0, *, token: str = "") -> None:
        self._kept: list[_Kept] = []
        self._lock = threading.Lock()
        self._token = token
        self.requests: list[str] = []
        """The paths that have been asked for, in order."""
        super().__init__(port, tls)

    @property
    def namespace(self) -> str:
        """What clients are told in place of `NAMESPACE.servicebus.windows.net`."""
        return f"127.0.0.1:{self.port}"

    @property
    def ids(self) -> list[str]:
        """The ids of all schemas, in the order in which they came."""
        with self._lock:
            return [one.id for one in self._kept]

    def register(self, group: str, name: str, text: str, format: str = "Avro", id: str | None = None) -> str:
        """Register a schema of this text, under an `id` of your own if you give one. Its id."""
        media = f"application/json; serialization={format}" if format != "Custom" else "text/plain; charset=utf-8"
        with self._lock:
            return self._register(group, name, media, text.encode(), id).id

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> ServerAnswer:
        """What the service says to this request."""
        with self._lock:
            self.requests.append(path)
            if self._token and headers.get("Authorization") != f"Bearer {self._token}":
                return _error(401, "Unauthorized", "InvalidAuthenticationToken")
            parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
            media = headers.get("Content-Type") or _ASKED_AS
            match method, parts:
                case "GET", ["$schemaGroups", "$schemas", id]:
                    return self._of_id(id)
                case "GET", ["$schemaGroups", group, "schemas", name, "versions", version]:
                    found = [one for one in self._of(group, name) if str(one.version) == version]
                    return _text(found[0]) if found else _missing(f"Schema {group}/{name} version {version}")
                case "PUT", ["$schemaGroups", group, "schemas", name]:
                    return _id(self._register(group, name, media, body))
                case "POST", ["$schemaGroups", group, "schemas", name] if name.endswith(":get-id"):
                    name = name.removesuffix(":get-id")
                    found = [one for one in self._of(group, name) if (one.media, one.text) == (media, body)]
                    return _id(found[0]) if found else _missing(f"Schema {group}/{name}")
        return ServerAnswer(404, {"Content-Type": "text/html"}, b"<h1>Not Found</h1>")

    def _of(self, group: str, name: str) -> list[_Kept]:
        return [one for one in self._kept if (one.group, one.name) == (group, name)]

    def _of_id(self, id: str) -> ServerAnswer:
        if not re.fullmatch(r"[0-9a-fA-F]{32}", id):
            return _error(400, "InvalidRequest", "SubCode=40000, UnknownType:The request is invalid.")
        found = [one for one in self._kept if one.id == id.lower()]
        return _text(found[0]) if found else _missing(f"Schema id {id}")

    def _register(self, group: str, name: str, media: str, text: bytes, id: str | None = None) -> _Kept:
        there = self._of(group, name)
        for one in there:
            if (one.media, one.text) == (media, text):
                return one
        made = _Kept(group, name, len(there) + 1, id or secrets.token_hex(16), media, text)
        self._kept.append(made)
        return made


class IdentityServer(_Server):
    """Gives `token` to who has the secret of `environment`, at a port of this machine."""

    def __init__(self, token: str) -> None:
        self.token = token
        """What it gives."""
        self.resources: list[str] = []
        """What tokens have been asked for."""
        self._secret = secrets.token_hex(8)
        super().__init__(0, None)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which azure-identity finds it."""
        return {"IDENTITY_ENDPOINT": f"http://127.0.0.1:{self.port}/token", "IDENTITY_HEADER": self._secret}

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> ServerAnswer:
        """A token that is good for a day; one that is refused has the form of the service's."""
        if headers.get("X-IDENTITY-HEADER") != self._secret:
            return ServerAnswer(
                401, {"Content-Type": "application/json"}, b'{"statusCode": 401, "message": "Unauthorized"}'
            )
        resource = dict(pair.split("=", 1) for pair in unquote(urlsplit(path).query).split("&"))["resource"]
        self.resources.append(resource)
        given = {"access_token": self.token, "expires_on": str(int(time.time()) + 86_400), "resource": resource}
        return ServerAnswer(
            200, {"Content-Type": "application/json"}, json.dumps({**given, "token_type": "Bearer"}).encode()
        )


def _named(schema: _Kept) -> dict[str, str]:
    return {
        "Schema-Id": schema.id,
        "Schema-Group-Name": schema.group,
        "Schema-Name": schema.name,
        "Schema-Version": str(schema.version),
    }


def _text(schema: _Kept) -> ServerAnswer:
    return ServerAnswer(200, {**_named(schema), "Content-Type": schema.media}, schema.text)


def _id(schema: _Kept) -> ServerAnswer:
    return ServerAnswer(204, _named(schema))


def _missing(what: str) -> ServerAnswer:
    return _error(404, "ItemNotFound", f"{what} does not exist.")


def _error(status: int, code: str, message: str) -> ServerAnswer:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    return ServerAnswer(status, {"Content-Type": "application/json", "x-ms-error-code": code}, body)


def _handler(server: _Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._reply()

        def do_PUT(self) -> None:
            self._reply()

        def do_POST(self) -> None:
            self._reply()

        def _reply(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _MOST))
            headers: Any = self.headers
            found = server.answer(self.command, self.path, headers, body)
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

    return Handler
