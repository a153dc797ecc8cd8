"""Talking to a Redis server: addresses, deadlines, threads, forks, and servers that go away.

Owns the client of a store, the names of its keys, the key `PREFIX:version:COMPONENT`, and the translation of errors.
Promises that a call ends within the time-out also when the server is stopped or no packet reaches it (looking up
the server's name takes what the system takes), and that a server that is back is used again without anything being
done about it. Refuses data of another version, and to send a call again by itself: what was sent may have been done.

Names are percent-encoded in keys, so that no two of them meet. All keys of a consumer group carry one hash tag,
and so do all keys of leases: in a Redis Cluster (`?cluster=true`) each script finds its keys on one node.

Concurrency. Any number of threads call at once, each on a connection that is its own meanwhile. One call is one
script, which the server runs alone from begin to end: nothing stays locked if this process stops for a minute. If
the server stops, the call raises `StoreUnavailable` at its deadline and leaves the connection. Each process has a
client of its own: a forked child makes its own, and leaves an inherited one alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from inspect import signature
from typing import Any
from urllib.parse import quote

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, Connection, SSLConnection, parse_url
from redis.retry import Retry

from leasehold.backends import masked, say_unverified, unknown_option
from leasehold.environment import secret_from
from leasehold.errors import ConfigError, StoreError, StoreUnavailable, Verdict
from leasehold.model import ConsumerGroup
from leasehold.printable import shortened, span
from leasehold.server_urls import bad_url, check_server_url
from leasehold.stored_formats import refusal
from leasehold.stores.base import SchemaChange

logger = logging.getLogger(__name__)

VERSIONS = {"stores": 2, "leases": 1}
"""The version of the keys and values, by component."""

_STRINGS = {"fence", "binding"}
"""Which kinds of keys hold a string, beside the version. All others hold a hash."""

LOOK_AGAIN = 60.0
"""Seconds after which a process looks at the version again: another one may have raised it, or removed all keys."""

PASSWORD = "LEASEHOLD_REDIS_PASSWORD"  # noqa: S105  the name of the variable
_FORM = (
    "a Redis URL is redis://USER:PASSWORD@HOST:PORT/NUMBER?OPTION=VALUE (rediss:// for TLS); options are prefix (1 to "
    "100 letters, digits or any of . _ : -), cluster (true or false) and those of redis-py"
)
_SECRETS = ("password", "username", "ssl_password")
_KNOWN_OPTIONS = {
    "prefix",
    "cluster",
    "timeout",
    "max_connections",
    *(name for kind in (AbstractConnection, Connection, SSLConnection) for name in signature(kind).parameters),
} - {"self", "kwargs"}
_AWAY = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.ClusterError,
    exceptions.TryAgainError,
    exceptions.OutOfMemoryError,
    OSError,
)
_CODES = "LOADING|BUSY|READONLY|OOM|MISCONF|NOREPLICAS|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|UNBLOCKED"
_AWAY_REPLY = re.compile(rf"(?:^|: -)((?:{_CODES})\b.*)", re.DOTALL)
"""What a server answers while it refuses writes, in a failover too. The error of a script has it in its middle."""
_WRONG_KIND = "wrong kind of value"
_NO_CLUSTER = "Cluster mode is not enabled"

_deadline = threading.local()


def _time_left() -> float:
    left: float = getattr(_deadline, "at", time.monotonic() + 1.0) - time.monotonic()
    if left <= 0:
        raise exceptions.TimeoutError("the time is over")
    return left


class _Punctual(Connection):
    """A connection whose steps together end by the deadline of the calling thread."""

    def connect(self) -> None:
        if self._sock is None:
            self.socket_timeout = self.socket_connect_timeout = _time_left()
        super().connect()  # type: ignore[no-untyped-call]

    def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        self._limit()
        super().send_packed_command(*args, **kwargs)  # type: ignore[no-untyped-call]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        self._limit()
        return super().read_response(*args, **kwargs)

    def _limit(self) -> None:
        """By the socket: only redis-py 8 and later take a time-out for one response."""
        sock: Any = self._sock
        if sock is not None:
            sock.settimeout(_time_left())


class _PunctualTls(_Punctual, SSLConnection):
    """The same, over TLS."""


class Script:
    """A Lua script that the server runs alone, known to it by its digest.

    Arguments and answer each are one JSON text: redis-py would take longer for thousands of them than the server.
    Whole numbers that may be large are sent as text, since a number in Lua is exact only up to 2^53.
    """

    def __init__(self, body: str) -> None:
        self.text = (
            f"local function run(KEYS, ARGV)\n{body}\nend\n"
            "local answer = run(KEYS, cjson.decode(ARGV[1]))\nreturn cjson.encode(answer)"
        )
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class WrongKind(StoreError):
    """A key holds another kind of value than is kept there: somebody else has written it."""


Call = tuple[Script, Sequence[str], Sequence[str]]
"""A script, the keys that it uses, and its arguments."""


class RedisServer:
    """The server at `url`, as one store uses it. `component` names the part of the data that has a version."""

    def __init__(self, url: str, timeout: float, component: str) -> None:
        self.shown = masked(url)
        self.timeout = timeout
        self._component = component
        self._options = _options(url)
        if url.startswith("rediss://"):
            for setting, off in (("ssl_cert_reqs", ("none", "optional")), ("ssl_check_hostname", ("false",))):
                if str(self._options.get(setting, "")).lower() in off:
                    say_unverified(logger, self.shown, f"{setting}={self._options[setting]}")
        self._prefix: str = self._options.pop("prefix")
        self._cluster: bool = self._options.pop("cluster")
        self._clients: dict[int, Any] = {}
        self._look_again_at = 0.0

    @property
    def _version_key(self) -> str:
        return f"{self._prefix}:version:{self._component}"

    def group_key(self, group: ConsumerGroup, kind: str) -> str:
        """The key of what a consumer group has of this kind."""
        return self._key("/".join(quote(name, safe="") for name in (group.namespace, group.hub, group.name)), kind)

    def lease_key(self, kind: str, scope: str | None = None) -> str:
        """The key of what leases have of this kind, of one scope or of all."""
        return self._key("leases", kind if scope is None else f"{kind}:{quote(scope, safe='')}")

    def _key(self, tag: str, kind: str) -> str:
        return f"{self._prefix}:{{{tag}}}:{kind}"

    def call(self, script: Script, keys: Sequence[str], values: Sequence[str]) -> Any:
        """Run a script as one request, and return its answer."""
        with self._in_time(keys):
            return self._run(self._client(), script, keys, values)

    def calls(self, calls: Sequence[Call]) -> list[Any]:
        """Run several scripts, as one request unless they are on several nodes, and return their answers."""
        if len(calls) == 1:
            return [self.call(*calls[0])]
        with self._in_time([key for _, keys, _ in calls for key in keys]):
            client = self._client()
            if self._cluster:
                return [self._run(client, *call) for call in calls]
            with client.pipeline(transaction=False) as pipeline:
                for script, keys, values in calls:
                    pipeline.execute_command("EVALSHA", script.digest, len(keys), *keys, json.dumps(values))
                answers = pipeline.execute(raise_on_error=False)
            return [
                self._run(client, *call) if isinstance(answer, exceptions.NoScriptError) else _read(answer)
                for call, answer in zip(calls, answers, strict=True)
            ]

    def command(self, name: str, key: str, *words: str | int) -> Any:
        """Run one command about one key as one request, and return its answer."""
        with self._in_time([key]):
            return self._client().execute_command(name, key, *words)

    def create_schema(self) -> SchemaChange:
        """Mark the data with its version, which the first use does too, and say what was done."""
        with self._in_time():
            client = self._connected()
            try:
                return self._check(client)
            finally:
                client.close()

    def is_made(self) -> bool:
        """Whether the data has a version. Writes nothing."""
        with self._in_time():
            client = self._connected()
            try:
                return client.execute_command("GET", self._version_key) is not None
            finally:
                client.close()

    def close(self) -> None:
        """Close what this process has open. The store may be used again afterwards."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    @staticmethod
    def _run(client: Any, script: Script, keys: Sequence[str], values: Sequence[str]) -> Any:
        sent = json.dumps(values)
        try:
            return _read(client.execute_command("EVALSHA", script.digest, len(keys), *keys, sent))
        except exceptions.NoScriptError:  # the server is new, or another node answers
            return _read(client.execute_command("EVAL", script.text, len(keys), *keys, sent))

    def _client(self) -> Any:
        """The client of this process, once what the server holds is known to be fit."""
        client = self._clients.get(os.getpid())
        if client is None:
            client = self._connected()
            self._check(client)
            if not self._cluster:
                self._warn(client)
            client = self._clients.setdefault(os.getpid(), client)  # another thread may have been faster
        elif time.monotonic() >= self._look_again_at:
            self._check(client)
        return client

    def _connected(self) -> Any:
        options = {**self._options, "socket_timeout": self.timeout, "socket_connect_timeout": self.timeout}
        if self._cluster:
            host, port = options.pop("host"), options.pop("port", 6379)
            options.pop("db", None)
            # By a URL, since a cluster's client takes a class of connections with one alone.
            url = f"redis://{f'[{host}]' if ':' in host else host}:{port}"
            return redis.RedisCluster(url=url, **options)
        return redis.Redis(connection_pool=redis.ConnectionPool(**options, retry=Retry(NoBackoff(), 0)))

    def _check(self, client: Any) -> SchemaChange:
        """Refuse data of another version; mark data that has none, or none any more."""
        key, version = self._version_key, VERSIONS[self._component]
        is_new = client.execute_command("SET", key, version, "NX")
        said = str(client.execute_command("GET", key) or version)  # all keys may have been removed in between
        if not re.fullmatch("[1-9][0-9]{0,5}", said):
            raise StoreError(
                f"{self.shown}: the key {key} says which version its data has, and holds {shortened(repr(said), 80)}, "
                f"which is no number: set it to {version}"
            )
        remedy = (
            f"Stop every instance; delete the keys that begin with {self._prefix}:, or take another prefix "
            "(?prefix=NAME) or database (/NUMBER) in the URL; then, for each pipeline, leasehold reset PIPELINE.toml "
            "--to sink"
        )
        if refused := refusal(f"{self.shown}: its data for {self._component} has", int(said), version, remedy):
            raise StoreError(refused)
        self._look_again_at = time.monotonic() + LOOK_AGAIN
        return SchemaChange(self._component, 0 if is_new else version, version)

    def _warn(self, client: Any) -> None:
        try:
            state = {**client.info("persistence"), **client.info("memory")}
        except exceptions.ResponseError:  # this user may not ask
            return
        if not state.get("aof_enabled"):
            logger.warning(
                "%s: this server does not write its commands to disk as they come (appendonly no): claims, checkpoints "
                "and leases that were acknowledged can be lost when it restarts. Set appendonly yes and appendfsync "
                "always, or everysec if losing the last second is acceptable.",
                self.shown,
            )
        if state.get("maxmemory") and str(state.get("maxmemory_policy", "")).startswith("allkeys"):
            logger.warning(
                "%s: this server evicts any key when its memory is full (maxmemory-policy %s), also ownership and "
                "checkpoints. Set maxmemory-policy noeviction.",
                self.shown,
                state["maxmemory_policy"],
            )

    @contextmanager
    def _in_time(self, keys: Sequence[str] = ()) -> Iterator[None]:
        """Until the deadline, with the client's errors in our words; `keys` are those that are used."""
        _deadline.at = time.monotonic() + self.timeout
        try:
            yield
        except exceptions.AuthenticationError as error:
            raise StoreUnavailable(
                f"{self.shown}: {error} (check the user and password in the URL or in {PASSWORD})", verdict=Verdict.MEND
            ) from error
        except exceptions.TimeoutError as error:
            raise StoreUnavailable(
                f"{self.shown}: no answer within {span(self.timeout)} (is the server running and reachable?)"
            ) from error
        except _AWAY as error:
            raise StoreUnavailable(f"{self.shown}: {error}") from error
        except exceptions.RedisClusterException as error:
            if _NO_CLUSTER in str(error):
                raise StoreError(f"{self.shown}: this server is no Redis Cluster. Take cluster=true out") from error
            raise StoreUnavailable(f"{self.shown}: {error}") from error
        except exceptions.RedisError as error:
            if found := _AWAY_REPLY.search(str(error)):
                raise StoreUnavailable(f"{self.shown}: {found[1]}") from error
            if _WRONG_KIND in str(error):
                raise WrongKind(f"{self.shown}: {self._wrong_kind([self._version_key, *keys])}") from error
            raise StoreError(f"{self.shown}: {error}") from error

    def _wrong_kind(self, keys: Sequence[str]) -> str:
        """Which of these keys holds a value of the wrong kind, which the server does not say, and what to do.

        Reads each as what is kept there: an instance with the least rights may do that, and may not ask for a type.
        """
        remedy = "Delete it, or take another prefix (?prefix=NAME) or another database (/NUMBER) in the URL"
        with suppress(exceptions.RedisError, OSError), closing(self._connected()) as client:
            for key in dict.fromkeys(keys):
                is_string = key == self._version_key or key.rpartition("}:")[2] in _STRINGS
                try:
                    client.execute_command(*(("GET", key) if is_string else ("HGET", key, "")))
                except exceptions.ResponseError:
                    kept = "string" if is_string else "hash"
                    return f"the key {key} is not Leasehold's: what it holds is no {kept}. {remedy}"
        return f"one of the keys {', '.join(keys)} holds a value of the wrong kind. {remedy}"


def _read(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return json.loads(answer)


def _check_query(url: str) -> None:
    """Refuse options that redis-py does not know: it would pass them on until somebody repeats them in an error."""
    seen: list[str] = []
    for part in filter(None, url.partition("?")[2].split("&")):
        given, equals, _ = part.partition("=")
        if not equals or given not in _KNOWN_OPTIONS:
            shown = unknown_option(given if equals else "a part without =", seen, _SECRETS)
            raise ConfigError("store", masked(url), f"{shown} is no option; {_FORM}", "Correct the URL")
        seen.append(given)


def _options(url: str) -> dict[str, Any]:
    """What to connect with, from the URL and the environment."""
    check_server_url(url, _FORM)
    _check_query(url)
    try:
        options: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
        cluster = {"true": True, "false": False}[str(options.pop("cluster", "false")).lower()]
        prefix = str(options.pop("prefix", "leasehold"))
        if not re.fullmatch(r"[\w.:-]{1,100}", prefix):
            raise ValueError
    except (ValueError, KeyError):  # redis-py repeats parts of the URL
        raise bad_url(url, _FORM) from None
    if not options.get("password") and (secret := secret_from(os.environ, PASSWORD)):
        options["password"] = secret
    for decided_here in ("socket_timeout", "socket_connect_timeout", "decode_responses", "protocol", "timeout"):
        options.pop(decided_here, None)
    options["connection_class"] = _PunctualTls if url.startswith("rediss://") else _Punctual
    options.setdefault("host", "localhost")
    return {
        **options,
        "decode_responses": True,
        "encoding_errors": "surrogateescape",
        "protocol": 2,
        "prefix": prefix,
        "cluster": cluster,
    }
