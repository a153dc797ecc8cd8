"""Messages on their way into the sink's database, where they wait, and back. Pure.

Owns what is kept of a message beside its name and body (`about`, a JSON object): all that names its entity, and what it
was sent as. What lies there outlives a release: what cannot be read raises nothing, and is a message that says less.
"""

from __future__ import annotations

import json
from typing import Any

from leasehold.queues.base import QueueMessage
from leasehold.sinks.beside.messages.contract import MessageName
from leasehold.sinks.beside.messages.parking import ParkedMessage

_STATED = ("message_id", "session_id", "partition_key")


def parked_of(message: QueueMessage, name: MessageName, key: tuple[Any, ...]) -> ParkedMessage:
    """The message, to be parked."""
    said: dict[str, Any] = {field: value for field in _STATED if (value := getattr(message, field)) is not None}
    if message.properties:
        said["properties"] = dict(message.properties)
    assert message.body is not None  # its content has been read
    return ParkedMessage(name, key, message.body, json.dumps(said))


def message_of(parked: ParkedMessage) -> QueueMessage:
    """The message that was parked, without a lock."""
    try:
        said = json.loads(parked.about)
    except (ValueError, RecursionError):
        said = None
    said = said if isinstance(said, dict) else {}
    texts = {field: value for field in _STATED if isinstance(value := said.get(field), str)}
    properties = said.get("properties")
    kept = properties.items() if isinstance(properties, dict) else ()
    return QueueMessage(
        parked.body,
        parked.name.sequence_number,
        parked.name.enqueued_time,
        message_id=texts.get("message_id"),
        session_id=texts.get("session_id"),
        partition_key=texts.get("partition_key"),
        properties={each: value for each, value in kept if isinstance(value, str)},
        delivery_count=parked.deliveries,
    )
