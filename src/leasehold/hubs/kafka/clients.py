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
import errno
import logging
import math
import os
import re
import time
import weakref
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from leasehold.errors import ConfigError, HubError, HubUnavailable, LeaseholdError, Verdict
from leasehold.hubs.kafka.options import KafkaSettings, refused
from leasehold.open_files import files_used_up
from leasehold.open_files import remedy as files_remedy

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
_ALERT = re.compile(r"SSL alert number (\d+)")
"""With what a broker ends a TLS handshake that it refuses."""
_CERTIFICATE_ALERTS = (42, 43, 44, 45, 46, 48, 49, 51, 111, 113, 114, 116)
"""Bad, unsupported, revoked, expired, unknown certificate, unknown authority, access denied, bad signature, none, …"""
_HANDSHAKE_ALERTS = (40, 70, 71, 109, 110, 112, 120)
"""Handshake failure, protocol version, insufficient security, missing or unsupported extension, unrecognised name, …"""
_TOO_MANY_FILES = os.strerror(errno.EMFILE)
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
        self._errors: dict[int | str, tuple[float, KafkaError]] = {}
        errors = self._errors  # not self: the client would keep alive what keeps it alive
        config = {
            **_COMMON,
            **{name if name == "on_commit" else name.replace("_", "."): value for name, value in config.items()},
            **settings.client_config,
            "error_cb": lambda error: errors.update({_kind(error): (time.monotonic(), error)}),
            "logger": _DebugLog(),
        }
        try:
            self.handle: Handle = kind(config)
        except KafkaException as error:
            if limit := files_used_up():
                raise HubUnavailable(f"{settings.url}: no client can be made: {limit}") from None
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
        kinds = (_REFUSED_TLS, KafkaError._TRANSPORT, KafkaError._SSL)
        reason = next((reported[kind] for kind in kinds if kind in reported), None)
        return failure(self._settings, error, doing, reason)

    def _reported(self, since: float) -> dict[int | str, KafkaError]:
        return {kind: error for kind, (at, error) in list(self._errors.items()) if at >= since}

    def close(self) -> None:
        """Close a consumer; the others need no closing. The object is of no use from then on."""
        _alive.discard(self)
        if isinstance(self.handle, Consumer):
            self.handle.close()


_REFUSED_TLS = "TLS"


def _kind(error: KafkaError) -> int | str:
    """Of two errors of one kind that a client reports the last one counts.

    What no waiting mends is not to be forgotten for a refused connection to another address of the same broker.
    """
    return _REFUSED_TLS if _tls_remedy(error.str()) else error.code()


def _tls_remedy(text: str) -> str:
    """What to do where client or broker refuse each other in TLS; nothing where that is not what is said."""
    alert = _ALERT.search(text)
    if _UNTRUSTED in text:
        return (
            "The broker's certificate is signed by nobody that this client trusts, is for another name than the one in "
            "the URL or that the broker tells, or has expired or not begun: name the authority with ssl_ca_location or "
            "ssl_ca_pem, or have the certificate renewed."
        )
    if alert and int(alert[1]) in _CERTIFICATE_ALERTS:
        return (
            "The broker wants a certificate of this client, or refuses the one it was shown: name one that it trusts "
            "and that has not expired with ssl_certificate_location and ssl_key_location (or …_pem)."
        )
    if alert and int(alert[1]) in _HANDSHAKE_ALERTS:
        return (
            "The broker refuses this TLS: it wants a certificate of this client (ssl_certificate_location and "
            "ssl_key_location), or there is no version or cipher that both have (ssl_cipher_suites)."
        )
    return ""


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
            "sasl_password, and that this user may describe, read and (to send) write the topic.",
            verdict=Verdict.MEND,
        )
    if remedy := _tls_remedy(said):
        return HubError(f"{url}: {doing} failed: {said}. {remedy}", verdict=Verdict.MEND)
    if error is None or code in _TRANSIENT or error.retriable():
        if _TOO_MANY_FILES in said:
            return HubUnavailable(f"{url}: {doing} failed: {said}. It is that {files_remedy()}")
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
