"""librdkafka's clients: how they are made, how they fail, and what becomes of them in a forked process.

Owns the configuration that all have, the translation of their errors, and the rule for forks: a client works
through threads, which a fork does not copy, and closing a copy waits for them for ever. So in a child process
the copies are never touched again, not even by the garbage collector. Whoever keeps clients keeps them by
process id and makes new ones in a child. At the end of a process clients that nobody closed are left as they are.

Promises that a message holds no secret, and that librdkafka's own log, which repeats a lost connection many
times a second, goes to the logger `leasehold.hubs.kafka.clients` at level DEBUG and nowhere else.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import math
import os
import time
import weakref
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from leasehold.errors import ConfigError, HubError, HubUnavailable, LeaseholdError
from leasehold.hubs.kafka.options import KafkaSettings, refused

logger = logging.getLogger(__name__)

Handle = TypeVar("Handle", Consumer, Producer, AdminClient)

_COMMON = {
    "allow.auto.create.topics": False,
    # A load balancer forgets an idle connection in silence (Azure's after four minutes): leave it first.
    "connections.max.idle.ms": 180_000,
    "socket.keepalive.enable": True,
    "metadata.max.age.ms": 180_000,
    # Ten seconds, the default, would outlast the timeouts here after a broker has come back.
    "reconnect.backoff.max.ms": 1_000,
}

_REFUSED = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION)
MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
"""A partition has another leader than the client believes, or a new one that is not ready yet."""
_TRANSIENT = (
    *MOVING,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,  # a fetch's own, which librdkafka does not mark as one to try again
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._SSL,
    KafkaError._WAIT_COORD,
    KafkaError._NOENT,  # no leader of a partition is known
    KafkaError._RETRY,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._DESTROY,
)


_UNTRUSTED = "certificate verify failed"
_PROTOCOL = (
    " If they can, check security_protocol, which is {}: a listener that wants TLS or a login only closes a connection "
    "that comes without."
)


class _DebugLog:
    """Takes librdkafka's log lines, of whatever level."""

    def log(self, level: int, message: str, *values: object) -> None:
        logger.debug(message, *values)


READING: Mapping[str, Any] = {
    "enable_auto_commit": False,
    "enable_auto_offset_store": False,
    "enable_partition_eof": True,
    "isolation_level": "read_committed",
    # A range that ends with the mark of a transaction waits for this: an end is told after so long.
    "fetch_wait_max_ms": 100,
}
"""What whoever reads a range asks of a consumer: committed messages only, the end of each partition, no commits."""


class Client(Generic[Handle]):
    """One librdkafka client of this process, with the last errors that it reported by itself."""

    def __init__(self, kind: type[Handle], settings: KafkaSettings, **config: Any) -> None:
        self._settings = settings
        self._errors: dict[int, tuple[float, KafkaError]] = {}
        errors = self._errors  # not self: the client would keep alive what keeps it alive
        config = {
            **_COMMON,
            **{name if name == "on_commit" else name.replace("_", "."): value for name, value in config.items()},
            **settings.client_config,
            "error_cb": lambda error: errors.update({error.code(): (time.monotonic(), error)}),
            "logger": _DebugLog(),
        }
        try:
            self.handle: Handle = kind(config)
        except KafkaException as error:
            raise refused(settings, error.args[0].str()) from None
        _alive.add(self)

    def forget_errors(self) -> None:
        """Begin to ask: what was reported so far says nothing on the answer."""
        self._errors.clear()

    def all_brokers_down(self, since: float) -> bool:
        """Whether the client has said so since this (monotonic) time."""
        return KafkaError._ALL_BROKERS_DOWN in self._reported(since)

    def failure(self, error: KafkaError | None, doing: str, since: float = -math.inf) -> LeaseholdError:
        """What to raise for a call that failed with `error`, or that had no answer in time (`None`).

        What the client has reported by itself since this (monotonic) time says why.
        """
        if not isinstance(self.handle, Consumer):
            self.handle.poll(0)  # so that the client reports what it knows; a consumer has done so
        reported = self._reported(since)
        for code in _REFUSED:
            error = reported.get(code, error)
        reason = reported.get(KafkaError._TRANSPORT) or reported.get(KafkaError._SSL)
        return failure(self._settings, error, doing, reason)

    def _reported(self, since: float) -> dict[int, KafkaError]:
        return {code: error for code, (at, error) in list(self._errors.items()) if at >= since}

    def close(self) -> None:
        """Close a consumer; the others need no closing. The object is of no use from then on."""
        _alive.discard(self)
        if isinstance(self.handle, Consumer):
            self.handle.close()


def failure(
    settings: KafkaSettings, error: KafkaError | None, doing: str, reason: KafkaError | None = None
) -> LeaseholdError:
    """The error of ours for one of librdkafka's, in the words of the one who asked."""
    code = error.code() if error is not None else KafkaError._TIMED_OUT
    said = "no answer in time" if error is None else error.str()
    if reason is not None and reason is not error:
        said = f"{said} ({reason.str()})"
    said, url = settings.without_secrets(said), settings.url
    if code in _NO_TOPIC:
        return ConfigError(
            "hub", url, f"the cluster has no topic {settings.topic} that this user may see", "Create it, or correct it"
        )
    if code in _REFUSED:
        return HubError(
            f"{url}: {doing} was refused: {said}. Check security_protocol, sasl_mechanism, sasl_username and "
            "sasl_password, and that this user may describe, read and (to send) write the topic."
        )
    if _UNTRUSTED in said:
        return HubError(
            f"{url}: {doing} failed: {said}. The broker's certificate is signed by nobody that this client trusts, or "
            "is for another name: name the authority with ssl_ca_location or ssl_ca_pem."
        )
    if error is None or code in _TRANSIENT or error.retriable():
        answered = reason is None or "refused" not in reason.str()
        hint = _PROTOCOL.format(settings.client.get("security.protocol", "plaintext")) if answered else ""
        return HubUnavailable(
            f"{url}: {doing} failed: {said}. Check that the brokers can be reached, and try again.{hint}"
        )
    return HubError(f"{url}: {doing} failed: {said}")


_alive: weakref.WeakSet[Client[Any]] = weakref.WeakSet()


def _abandon() -> None:
    """Give every client one reference too many, so that nothing ever destroys it."""
    for client in list(_alive):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client.handle))
    _alive.clear()


os.register_at_fork(after_in_child=_abandon)
atexit.register(_abandon)  # destroying one may wait for a broker that is away; nothing is left in it that is promised
