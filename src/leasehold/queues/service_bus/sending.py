"""Messages that are sent into a queue, in batches up to the size that the service takes.

Owns which batch a message goes into: one of its own key, since the service takes no other where a queue is partitioned
or requires sessions. So messages of one key keep their order. And owns which refusals are of what was sent: the service
refuses a batch as a whole, though each of its messages may pass alone, and no waiting mends it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from leasehold.errors import SchemaMismatch
from leasehold.queues.base import NewMessage
from leasehold.queues.service_bus.prompt import PromptQueueTransport

_LONGEST_ID = 128
_CONTENT = (
    *("com.microsoft:argument-error", "com.microsoft:argument-out-of-range", "amqp:decode-error", "amqp:invalid-field"),
    *("amqp:not-implemented", "amqp:precondition-failed"),
)
"""Conditions by which the service refuses messages for what they are. A message of the driver names them."""
NOT_ALLOWED = "amqp:not-allowed"
"""This one too, of a batch. Else it says that the queue is of another kind than its URL says."""


def send_all(sender: Any, messages: Sequence[NewMessage], *, sessions: bool, shown: str) -> None:
    """Send messages by a sender of the driver. Raises `SchemaMismatch`, and what the driver raises."""
    by_key: dict[str | None, list[ServiceBusMessage]] = {}
    for one in messages:
        by_key.setdefault(one.key, []).append(_made(one, sessions=sessions, shown=shown))
    for own in by_key.values():
        batch = sender.create_message_batch()
        for message in own:
            if _fits(batch, message):
                continue
            if len(batch):
                _send(sender, batch, len(batch), shown)
                batch = sender.create_message_batch()
            if not _fits(batch, message):
                _check_size(sender, message, shown)
                _send(sender, message, 1, shown)
        if len(batch):
            _send(sender, batch, len(batch), shown)


def _check_size(sender: Any, message: ServiceBusMessage, shown: str) -> None:
    """Refuse what is too large for the queue, too: the client would send it, and be cut off."""
    most, coded = (
        sender._max_message_size_on_link,
        PromptQueueTransport.to_outgoing_amqp_message(message.raw_amqp_message),
    )
    if most <= sender._max_batch_size_on_link or PromptQueueTransport.get_message_encoded_size(coded) > most:
        raise SchemaMismatch(f"{shown}: a message is larger than the {most:,} bytes it takes")


def _send(sender: Any, what: Any, count: int, shown: str) -> None:
    """Send a batch of `count` messages, or a message: a queue may take one that is larger than a batch."""
    named = "a message" if count == 1 else f"a batch of {count:,} messages"
    try:
        sender.send_messages(what)
    except MessageSizeExceededError as error:
        raise SchemaMismatch(f"{shown}: {named} is larger than the queue takes: {error.message}") from error
    except ServiceBusError as error:
        if any(each in error.message for each in _CONTENT) or (count > 1 and NOT_ALLOWED in error.message):
            raise SchemaMismatch(f"{shown}: {named} is refused: {error.message}") from error
        raise


def _made(message: NewMessage, *, sessions: bool, shown: str) -> ServiceBusMessage:
    if sessions and not message.key:
        raise SchemaMismatch(f"{shown}: a message without a key, and the queue requires sessions, which are by key")
    name = message.message_id
    place = {"session_id": message.key} if sessions else {"partition_key": message.key} if message.key else {}
    properties: dict[Any, Any] = dict(message.properties)
    try:
        "".join((message.key or "", name or "", *map(str, properties), *map(str, properties.values()))).encode()
        if name is not None and len(name) > _LONGEST_ID:
            name = hashlib.sha256(name.encode()).hexdigest()
        return ServiceBusMessage(message.body, application_properties=properties, message_id=name, **place)
    except (TypeError, ValueError) as error:
        raise SchemaMismatch(f"{shown}: a message that it does not take: {error}") from error


def _fits(batch: Any, message: ServiceBusMessage) -> bool:
    """Put a message into a batch, if it has room for it."""
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    return True
