"""A Service Bus queue, subscription, or the dead letters of either, through `azure-servicebus`.

Owns the receiver and the sender, each opened when it is first used, and the words of the driver in ours: a lock that
was lost is a value, what may pass is a transient `QueueUnavailable`, all else a lasting one. Nothing is prefetched:
what is locked is in the caller's hands, who knows how long it takes. No message or error shows a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
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
)

from leasehold.errors import QueueError, QueueUnavailable, lasting
from leasehold.queues.base import QueueMessage
from leasehold.queues.service_bus.url import Address, read_url

_LASTING = (
    *(MessagingEntityNotFoundError, MessagingEntityDisabledError),
    *(ServiceBusAuthenticationError, ServiceBusAuthorizationError),
)
_ANNOUNCED = (b"DeadLetterReason", b"DeadLetterErrorDescription")
_COPIED = (
    *("message_id", "session_id", "partition_key", "correlation_id", "content_type", "subject", "to", "reply_to"),
    *("reply_to_session_id", "time_to_live"),
)


def open_service_bus_queue(url: str, base: Path) -> ServiceBusQueue:
    """The queue or subscription at a `servicebus:` URL; `base` is not needed."""
    return ServiceBusQueue(read_url(url))


class ServiceBusQueue:
    """One queue or subscription; with `dead`, its dead letters."""

    def __init__(self, address: Address, *, dead: bool = False) -> None:
        self._address, self._dead = address, dead
        self._client: Any = None
        self._receiver: Any = None

    @property
    def url(self) -> str:
        """The URL that opens the queue, without secrets; dead letters have that of their queue."""
        return self._address.url

    @property
    def name(self) -> str:
        """Namespace and path."""
        behind = "/$deadletterqueue" if self._dead else ""
        return f"{self._address.namespace}/{self._address.path}{behind}".lower()

    def receive(self, most: int, wait: float) -> list[QueueMessage]:
        """See `Queue.receive`."""
        with self._told():
            try:
                found = self._opened().receive_messages(max_message_count=most, max_wait_time=wait)
            except OperationTimeoutError:
                return []  # the link was lost, and could not be opened again within the wait
            return [_message(each) for each in found]

    def complete(self, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        """See `Queue.complete`."""
        return [each for each in messages if not self._settled(self._opened().complete_message, each)]

    def abandon(self, messages: Sequence[QueueMessage]) -> None:
        """See `Queue.abandon`."""
        for each in messages:
            self._settled(self._opened().abandon_message, each)

    def dead_letter(self, message: QueueMessage, reason: str, description: str) -> bool:
        """See `Queue.dead_letter`."""
        return self._settled(
            lambda each: self._opened().dead_letter_message(each, reason=reason, error_description=description), message
        )

    def renew(self, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        """See `Queue.renew`."""
        held = []
        for each in messages:
            if self._settled(self._opened().renew_message_lock, each):
                held.append(replace(each, locked_until=each.driver.locked_until_utc.timestamp()))
        return held

    def peek(self, start: int, most: int) -> list[QueueMessage]:
        """See `Queue.peek`."""
        with self._told():
            found = self._opened().peek_messages(max_message_count=most, sequence_number=max(1, start))
            return [_message(each) for each in found]

    def resubmit(self, messages: Sequence[QueueMessage]) -> None:
        """See `Queue.resubmit`. Into a subscription nobody can send: copies go to its topic, and to all of it."""
        with self._told(), self._sender() as sender:
            for each in messages:
                sender.send_messages(_copy(each.driver))

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
            options: dict[str, Any] = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER} if self._dead else {}
            client, address = self._connected(), self._address
            receiver = (
                client.get_queue_receiver(address.entity, **options)
                if address.subscription is None
                else client.get_subscription_receiver(address.entity, address.subscription, **options)
            )
            receiver.__enter__()  # opens it: within `receive` that would count as waiting
            self._receiver = receiver
        return self._receiver

    def _sender(self) -> Any:
        client, entity = self._connected(), self._address.entity
        topic = self._address.subscription is not None
        return client.get_topic_sender(entity) if topic else client.get_queue_sender(entity)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self._address.client()
        return self._client

    def _settled(self, settle: Any, message: QueueMessage) -> bool:
        """Whether the message could be settled: a lock that was lost is no error."""
        with self._told():
            try:
                settle(message.driver)
            except MessageLockLostError:
                return False
        return True

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn the driver's errors into ours, without what it quotes of a connection string: it quotes none."""
        try:
            yield
        except MessageSizeExceededError as error:
            raise QueueError(f"{self.url}: a message is larger than the queue takes") from error
        except _LASTING as error:
            raise lasting(
                QueueUnavailable(f"{self.url}: {error.message} (check its name and the credential)")
            ) from error
        except ServiceBusError as error:
            raise QueueUnavailable(f"{self.url}: {error.message}") from error


def _message(found: Any) -> QueueMessage:
    until = found.locked_until_utc
    return QueueMessage(
        body=b"".join(found.body) if found.body_type is AmqpMessageBodyType.DATA else None,
        sequence_number=found.sequence_number,
        enqueued_time=found.enqueued_time_utc.timestamp(),
        message_id=None if found.message_id is None else str(found.message_id),
        session_id=found.session_id,
        partition_key=found.partition_key,
        properties={_text(name): _text(value) for name, value in (found.application_properties or {}).items()},
        delivery_count=found.delivery_count or 0,
        locked_until=until.timestamp() if until is not None else 0.0,
        dead_letter_reason=found.dead_letter_reason,
        dead_letter_description=found.dead_letter_error_description,
        driver=found,
    )


def _copy(found: Any) -> ServiceBusMessage:
    """The message as it was sent first. One without bytes, which the driver does not send, is refused."""
    if found.body_type is not AmqpMessageBodyType.DATA:
        raise QueueError(f"message {found.sequence_number} holds an AMQP value, not bytes: it can only be dropped")
    properties: Mapping[Any, Any] = found.application_properties or {}
    kept: dict[Any, Any] = {_text(name): value for name, value in properties.items() if name not in _ANNOUNCED}
    stated = {name: getattr(found, name) for name in _COPIED}
    said = {name: value for name, value in stated.items() if value is not None}
    return ServiceBusMessage(b"".join(found.body), application_properties=kept, **said)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)
