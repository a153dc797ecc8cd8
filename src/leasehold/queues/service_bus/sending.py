"""Messages that are sent into a queue, in batches up to the size that the service takes.

Owns which batch a message goes into: one of its own key, since the service takes no other where a queue is partitioned
or requires sessions. So messages of one key keep their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from leasehold.errors import SchemaMismatch
from leasehold.queues.base import NewMessage

_LONGEST_ID = 128


def send_all(sender: Any, messages: Sequence[NewMessage], *, sessions: bool, shown: str) -> None:
    """Send messages by a sender of the driver. Raises `SchemaMismatch`, and what the driver raises."""
    by_key: dict[str | None, list[ServiceBusMessage]] = {}
    for one in messages:
        by_key.setdefault(one.key, []).append(_made(one, sessions=sessions, shown=shown))
    for own in by_key.values():
        batch = sender.create_message_batch()
        for message in own:
            if not _fits(batch, message):
                if len(batch):
                    sender.send_messages(batch)
                    batch = sender.create_message_batch()
                    if _fits(batch, message):
                        continue
                raise SchemaMismatch(
                    f"{shown}: a message is larger than the {batch.max_size_in_bytes:,} bytes it takes"
                )
        sender.send_messages(batch)


def _made(one: NewMessage, *, sessions: bool, shown: str) -> ServiceBusMessage:
    if sessions and not one.key:
        raise SchemaMismatch(f"{shown}: a message without a key, and the queue requires sessions, which are by key")
    name = one.message_id
    place = {"session_id": one.key} if sessions else {"partition_key": one.key} if one.key else {}
    properties: dict[Any, Any] = dict(one.properties)
    try:
        "".join((one.key or "", name or "", *map(str, properties), *map(str, properties.values()))).encode()
        if name is not None and len(name) > _LONGEST_ID:
            name = hashlib.sha256(name.encode()).hexdigest()
        return ServiceBusMessage(one.body, application_properties=properties, message_id=name, **place)
    except (TypeError, ValueError) as error:
        raise SchemaMismatch(f"{shown}: a message that it does not take: {error}") from error


def _fits(batch: Any, message: ServiceBusMessage) -> bool:
    """Put a message into a batch, if it has room for it."""
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    return True
