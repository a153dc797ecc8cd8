"""Sending events to a topic.

Owns the process's producer. An event's partition key is the message's key and decides the partition by murmur2,
as with Kafka's own producers; its properties are the headers. An event without a key goes where `send` says.

Promises that an event is on all in-sync replicas when `send` returns (`acks=all`), that events of one key keep
their order and that the producer's own retries make no duplicates (an idempotent producer). An error says
nothing on the events that were under way: some may be appended, and a caller that sends them again may have them
twice. Where the broker refuses some, none behind them in their partition is appended. Refuses a publisher, for which
a message has no place.

Concurrency: one `send` at a time; others wait.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from leasehold.errors import HubUnavailable, LeaseholdError, SchemaMismatch
from leasehold.hubs.kafka.clients import Client
from leasehold.hubs.kafka.options import KafkaSettings
from leasehold.hubs.trace_context import sent_in_span
from leasehold.model import Event

_REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE: "The option message_max_bytes is the client's limit; the topic has its own",
    KafkaError.RECORD_LIST_TOO_LARGE: "The topic's segment.bytes bounds how many bytes come at once",
    KafkaError.INVALID_RECORD: "The topic may be compacted, which takes no event without a key, or want a schema",
    KafkaError.POLICY_VIOLATION: "A policy of the broker does not allow it",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The topic's message format is too old for it, as for headers",
}
"""By which errors a broker refuses what was sent for what it is, and what to look at: no waiting mends it.

A broker refuses all events that it was sent together, though each of them may pass alone. That it refuses their time is
not among these: events are stamped by this machine's clock when they are sent, so that they pass once that is set.
"""
_CLOCKS = (
    "An event's time is that of this machine's clock, and the topic bounds how far it may be from the broker's "
    "(message.timestamp.before.max.ms, message.timestamp.after.max.ms): set the clock that is wrong, and try again"
)
_FOLLOWS = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL, KafkaError._GAPLESS_GUARANTEE)
"""By which errors events fail that were not sent, since others had failed."""
_BY_KEY = -1
_POLL_EVERY = 1_000


class KafkaSender:
    """The producer of one hub in one process."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: Client[Producer] | None = None
        self._turn: int | None = None

    def send(self, events: Iterable[Event], partition: int | None, count: int) -> int:
        """Send to `partition`, or over all `count` by key and in turn; return how many when they are durable."""
        with self._lock:
            client = self._client or self._connected()
            failed: list[KafkaError] = []
            sent = 0

            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    failed.append(error)

            try:
                try:
                    for event in sent_in_span(events):
                        headers = _checked(event)
                        place = partition if partition is not None else self._place(event, count)
                        while not failed:
                            try:
                                client.handle.produce(
                                    self._settings.topic,
                                    event.body,
                                    event.partition_key,
                                    place,
                                    on_delivery=delivered,
                                    headers=headers,
                                )
                                break
                            except BufferError:
                                client.handle.poll(0.1)
                        if failed:
                            break
                        sent += 1
                        if sent % _POLL_EVERY == 0:
                            client.handle.poll(0)
                finally:
                    unsent = client.handle.flush(self._settings.transfer_timeout + self._settings.request_timeout)
            except KafkaException as error:
                raise self._failure(client, _cause(failed, error.args[0])) from error
            except SystemError as error:
                # What the client makes of a fatal error that it reports beside another callback of ours.
                fatal = error.__cause__ or error.__context__
                if not isinstance(fatal, KafkaException):
                    raise
                raise self._failure(client, _cause(failed, fatal.args[0])) from fatal
            if failed:
                raise self._failure(client, _cause(failed, failed[0]))
            if unsent:
                raise self._failure(client, None)
            return sent

    def _connected(self) -> Client[Producer]:
        self._client = Client(
            Producer,
            self._settings,
            acks="all",
            enable_idempotence=True,
            enable_gapless_guarantee=True,  # or what comes behind a list that is refused is appended before it
            partitioner="murmur2_random",
            message_timeout_ms=round(self._settings.transfer_timeout * 1000),
        )
        return self._client

    def _place(self, event: Event, count: int) -> int:
        if event.partition_key is not None:
            return _BY_KEY
        if self._turn is None:
            self._turn = random.randrange(count)  # short-lived producers would all begin at 0
        self._turn += 1
        return self._turn % count

    def _failure(self, client: Client[Producer], error: KafkaError | None) -> LeaseholdError:
        """The error to raise. After a fault the next call begins with a producer of its own."""
        failed = client.failure(error, "sending")
        if error is not None and (reason := _REFUSED.get(error.code())):
            failed = SchemaMismatch(
                f"{self._settings.url}: an event was refused, or others with it: {error.str()}. {reason}."
            )
        elif error is not None and error.code() == KafkaError.INVALID_TIMESTAMP:
            failed = HubUnavailable(f"{self._settings.url}: events were refused: {error.str()}. {_CLOCKS}.")
        if not isinstance(failed, HubUnavailable) or error is None:
            client.handle.purge()
        client.close()
        self._client = None
        return failed


def _cause(failed: Sequence[KafkaError], otherwise: KafkaError) -> KafkaError:
    """Of the errors by which events have failed the first that is not just another one's consequence."""
    return next((error for error in failed if error.code() not in _FOLLOWS), otherwise)


def _checked(event: Event) -> list[tuple[str, str | bytes | None]]:
    """The event's headers. Raises `SchemaMismatch` for what a message cannot hold."""
    if event.publisher is not None:
        raise SchemaMismatch(
            f"an event has the publisher {event.publisher!r}, and a message of Kafka has no place for it. Make it one "
            "of its properties"
        )
    key, headers = event.partition_key, list(event.properties.items())
    texts = all(isinstance(text, str) for text in (*([] if key is None else [key]), *(t for h in headers for t in h)))
    if not isinstance(event.body, bytes) or not texts:
        raise SchemaMismatch(
            "an event's body is bytes, its partition key text or None, and its properties map text to text"
        )
    try:
        "".join((key or "", *(text for header in headers for text in header))).encode()
    except UnicodeEncodeError as error:  # which would end the process in the client's own code
        raise SchemaMismatch(
            f"an event's partition key and properties are text in UTF-8, and one holds half a surrogate pair: {error}"
        ) from error
    return [(name, value) for name, value in headers]
