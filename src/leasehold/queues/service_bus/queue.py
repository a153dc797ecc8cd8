"""A Service Bus queue, subscription, or the dead letters of either, through `azure-servicebus`.

Owns the receiver and the sender, each opened when it is first used, and the words of the driver in ours: a lock that
was lost is a value, what may pass is a transient `QueueUnavailable`, all else a lasting one. Nothing is asked for but
by `receive`: what is locked is in the caller's hands, who knows how long it takes, or comes with the next call. No
message or error shows a secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    SessionLockLostError,
)

from leasehold.errors import QueueError, QueueUnavailable, Verdict
from leasehold.queues.base import NewMessage, Queue, QueueMessage
from leasehold.queues.locks import SHORTEST
from leasehold.queues.service_bus.lock_checks import service_decides
from leasehold.queues.service_bus.prompt import ABANDONED, COMPLETED, announce, has_some
from leasehold.queues.service_bus.sending import NOT_ALLOWED, send_all
from leasehold.queues.service_bus.url import QueueAddress, read_url

_UNAUTHORIZED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)
_LASTING = (MessagingEntityNotFoundError, MessagingEntityDisabledError, *_UNAUTHORIZED)
_ANNOUNCED = (b"DeadLetterReason", b"DeadLetterErrorDescription")
_SESSION_WAIT = 1.0
"""Seconds to wait for more messages of a session before the next one is taken."""
_BRIEFLY = 0.05
"""Seconds to wait for more where some have come already."""
_RETRIES = 3
"""How often the driver makes a call anew. With sessions not at all: it takes having waited in vain for a free session
for a failure, and would wait four times, with pauses; and what a link's end takes away there is the session, which no
second call brings back."""
_SESSIONS = "write ?sessions=true behind a queue that requires sessions, and leave it out with any other"
_COPIED = (
    *("session_id", "partition_key", "correlation_id", "content_type", "subject", "to", "reply_to"),
    *("reply_to_session_id", "time_to_live"),
)
FIRST_ID = "leasehold-first-message-id"
"""The property of a copy that has the message id of its first; an empty text where that has none."""


def open_service_bus_queue(url: str, base: Path) -> ServiceBusQueue:
    """The queue or subscription at a `servicebus:` URL; `base` is not needed."""
    return ServiceBusQueue(read_url(url))


class ServiceBusQueue(Queue):
    """One queue or subscription; with `dead`, its dead letters."""

    takes_messages = True

    def __init__(self, address: QueueAddress, *, dead: bool = False) -> None:
        self._address, self._dead = address, dead
        self._client: Any = None
        self._receiver: Any = None
        self._sessions = address.sessions and not dead
        self._rest = 0
        """How many messages the session at hand gave last."""

    @property
    def url(self) -> str:
        """The URL that opens the queue, without secrets; dead letters have that of their queue."""
        return self._address.url

    @property
    def name(self) -> str:
        """Namespace and path."""
        behind = "/$deadletterqueue" if self._dead else ""
        return f"{self._address.namespace}/{self._address.path}{behind}".lower()

    @property
    def shortest_lock(self) -> float:
        """See `Queue.shortest_lock`: what the service takes for a lock duration; a local server takes any."""
        return 0.0 if self._address.local else SHORTEST

    def receive(self, most: int, wait: float) -> list[QueueMessage]:
        """See `Queue.receive`."""
        with self._linked():
            try:
                return self._received(most, wait)
            except OperationTimeoutError:  # the link was lost, and not opened again within the wait
                self._leave()
                return self._received(most, wait)

    def _received(self, most: int, wait: float) -> list[QueueMessage]:
        if self._sessions:
            return self._of_sessions(most, wait)
        receiver = self._opened()
        wait = min(wait, _BRIEFLY) if has_some(receiver) else wait
        return [_message(each) for each in receiver.receive_messages(max_message_count=most, max_wait_time=wait)]

    def _of_sessions(self, most: int, wait: float) -> list[QueueMessage]:
        """Messages of one session. The next call stays with it if there may be more, and else takes the next one."""
        if self._rest < most:
            self._leave()
        while True:
            if self._receiver is None and not self._joined(wait):
                return []
            found = self._receiver.receive_messages(max_message_count=most, max_wait_time=min(wait, _SESSION_WAIT))
            self._rest = len(found)
            if found:
                return [_message(each) for each in found]
            self._leave()

    def _joined(self, wait: float) -> bool:
        """Take the next free session, which is waited for; whether there is one."""
        receiver = self._receiver_of(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=max(wait, _SESSION_WAIT))
        try:
            receiver.__enter__()
            self._receiver = receiver
        except OperationTimeoutError:
            return False
        finally:
            if self._receiver is None:
                receiver.close()
        return True

    def _leave(self) -> None:
        """Give the receiver up, and its session. The next one is opened before it is asked, however long that takes.

        One that has failed opens its link again within the wait, or never if that is too short; a session's never does.
        """
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    def complete(self, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        """See `Queue.complete`."""
        self._announce(messages, COMPLETED)
        return [
            each for each in messages if not self._settled(lambda driver: self._opened().complete_message(driver), each)
        ]

    def abandon(self, messages: Sequence[QueueMessage]) -> None:
        """See `Queue.abandon`."""
        self._announce(messages, ABANDONED)
        for each in messages:
            self._settled(lambda driver: self._opened().abandon_message(driver), each)

    def dead_letter(self, message: QueueMessage, reason: str, description: str) -> bool:
        """See `Queue.dead_letter`."""
        return self._settled(
            lambda each: self._opened().dead_letter_message(each, reason=reason, error_description=description), message
        )

    def renew(self, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        """See `Queue.renew`."""
        held = []
        if self._sessions:
            if not messages or not self._settled(lambda driver: self._opened().session.renew_lock(), messages[0]):
                return []
            until = self._receiver.session.locked_until_utc.timestamp()
            return [replace(each, locked_until=until) for each in messages]
        for each in messages:
            if self._settled(lambda driver: self._opened().renew_message_lock(driver), each):
                held.append(replace(each, locked_until=each.driver.locked_until_utc.timestamp()))
        return held

    def peek(self, start: int, most: int) -> list[QueueMessage]:
        """See `Queue.peek`."""
        if self._sessions:
            raise QueueError(
                f"{self.url}: a queue with sessions is looked at session by session, which is not done here"
            )
        with self._linked():
            found = self._opened().peek_messages(max_message_count=most, sequence_number=max(1, start))
            return [_message(each) for each in found]

    def resubmit(self, messages: Sequence[QueueMessage]) -> None:
        """See `Queue.resubmit`. Into a subscription nobody can send: copies go to its topic, and to all of it."""
        with self._told(), self._sender() as sender:
            for each in messages:
                try:
                    sender.send_messages(_copy(each, self.name))
                except (TypeError, ValueError) as error:  # what the driver reads and does not send
                    raise QueueError(f"message {each.sequence_number} cannot be sent as it was: {error}") from error

    def send(self, messages: Sequence[NewMessage]) -> None:
        """See `Queue.send`. A key is the session's id where the queue requires sessions, else the partition key."""
        with self._told(), self._sender() as sender:
            send_all(sender, messages, sessions=self._address.sessions, shown=self.url)

    def dead_letters(self) -> ServiceBusQueue:
        """See `Queue.dead_letters`."""
        return ServiceBusQueue(self._address, dead=True)

    def close(self) -> None:
        """Disconnect."""
        for each in (self._receiver, self._client):
            if each is not None:
                each.close()
        self._receiver = self._client = None

    def _opened(self) -> Any:
        if self._receiver is None:
            receiver = self._receiver_of(**({"sub_queue": ServiceBusSubQueue.DEAD_LETTER} if self._dead else {}))
            receiver.__enter__()  # opens it: within `receive` that would count as waiting
            self._receiver = receiver
        return self._receiver

    def _receiver_of(self, **options: Any) -> Any:
        client, address = self._connected(), self._address
        if address.subscription is None:
            receiver = client.get_queue_receiver(address.entity, **options)
        else:
            receiver = client.get_subscription_receiver(address.entity, address.subscription, **options)
        return service_decides(receiver)

    def _sender(self) -> Any:
        client, entity = self._connected(), self._address.entity
        topic = self._address.subscription is not None
        return client.get_topic_sender(entity) if topic else client.get_queue_sender(entity)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self._address.client(0 if self._sessions else _RETRIES)
        return self._client

    def _announce(self, messages: Sequence[QueueMessage], outcome: Any) -> None:
        """Of several messages, send all outcomes at once, so that the answers come one upon the other."""
        if len(messages) > 1 and self._receiver is not None:
            announce(self._receiver, [each.driver for each in messages], outcome)

    def _settled(self, settle: Any, message: QueueMessage) -> bool:
        """Whether the message could be settled: a lock that was lost is no error."""
        if self._sessions and self._receiver is None:
            return False  # its session was lost, and all locks with it
        with self._linked():
            try:
                settle(message.driver)
            except MessageLockLostError:
                return False
            except SessionLockLostError:
                self._leave()
                return False
        return True

    @contextmanager
    def _linked(self) -> Iterator[None]:
        """As `_told`, for calls of the receiver. One that has failed is given up: the driver may have shut it down, and
        would raise another error than `ServiceBusError` from then on. The next one can settle its messages, too.
        """
        with self._told():
            try:
                yield
            except ServiceBusError:
                self._leave()
                raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn the driver's errors into ours, without what it quotes of a connection string: it quotes none."""
        try:
            yield
        except MessageSizeExceededError as error:
            raise QueueError(f"{self.url}: a message is larger than the queue takes") from error
        except _LASTING as error:
            check = "check its name and the credential"
            if isinstance(error, _UNAUTHORIZED):
                check += ", and the clock of this machine, by which tokens are made and end"
            raise QueueUnavailable(f"{self.url}: {error.message} ({check})", verdict=Verdict.MEND) from error
        except ServiceBusError as error:
            if NOT_ALLOWED in error.message:
                raise QueueUnavailable(f"{self.url}: {error.message} ({_SESSIONS})", verdict=Verdict.RESTART) from error
            raise QueueUnavailable(f"{self.url}: {error.message}") from error


def _message(received: Any) -> QueueMessage:
    until = received.locked_until_utc
    reason, description = (_mark(received, name) for name in _ANNOUNCED)
    properties = {_text(name): _text(value) for name, value in (received.application_properties or {}).items()}
    message_id = None if received.message_id is None else str(received.message_id)
    return QueueMessage(
        body=b"".join(received.body) if received.body_type is AmqpMessageBodyType.DATA else None,
        sequence_number=received.sequence_number,
        enqueued_time=received.enqueued_time_utc.timestamp(),
        message_id=properties.pop(FIRST_ID, message_id) or None,
        session_id=None if received.session_id is None else _text(received.session_id),
        partition_key=None if received.partition_key is None else _text(received.partition_key),
        properties=properties,
        delivery_count=received.delivery_count or 0,
        locked_until=until.timestamp() if until is not None else 0.0,
        dead_letter_reason=reason,
        dead_letter_description=description,
        driver=received,
    )


def _mark(received: Any, name: bytes) -> str | None:
    """Why a message is a dead letter. Any sender may set it too, to anything: the driver fails at what is not text."""
    value = (received.application_properties or {}).get(name)
    return _text(value) if isinstance(value, bytes | str) else None


def _copy(message: QueueMessage, queue: str) -> ServiceBusMessage:
    """The message as it was sent first, but for its id, and for a body that was mended.

    One without bytes, which the driver does not send, is refused. A queue that detects duplicates takes a copy under
    the first's id for sent, and drops it. The copy's own id is made of what names the first for good, in this queue or
    subscription, so that it is the same for each of its copies.
    """
    found = message.driver
    if found.body_type is not AmqpMessageBodyType.DATA:
        what = "an AMQP value, or AMQP that cannot be read, not bytes"
        raise QueueError(f"message {message.sequence_number} holds {what}: it can only be dropped")
    properties: Mapping[Any, Any] = found.application_properties or {}
    kept: dict[Any, Any] = {_text(name): value for name, value in properties.items() if name not in _ANNOUNCED}
    kept[FIRST_ID] = message.message_id or ""
    stated = {name: getattr(found, name) for name in _COPIED}
    said = {name: value for name, value in stated.items() if value is not None}
    name = hashlib.sha256(f"{queue} {message.identity}".encode()).hexdigest()
    return ServiceBusMessage(message.body, application_properties=kept, message_id=name, **said)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)
