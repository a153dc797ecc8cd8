"""Between events of azure-eventhub and those of Leasehold.

Owns what each column is made of. Bodies that are not bytes (AMQP values and sequences) become their text;
properties and annotations become text. A key that Event Hubs does not take together with a partition, or does
not take at all (the empty one), travels as an application property of ours and comes back as the partition
key. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from azure.eventhub import EventData

from leasehold.errors import SchemaMismatch
from leasehold.hubs.arrow import event_schema
from leasehold.model import Event

KEY_PROPERTY = "leasehold-partition-key"
_WITH_COLUMNS = ("x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time", "x-opt-partition-key")
_PUBLISHER = "x-opt-publisher"


def to_send(event: Event, *, carry_key: bool) -> EventData:
    """An event for the official producer; `carry_key` if the producer is not told the key."""
    if event.publisher is not None:
        raise SchemaMismatch("an event for Event Hubs has no publisher: the service sets it. Leave it None")
    try:
        made = EventData(bytes(event.body))
        made.properties = {str(name): str(value) for name, value in event.properties.items()}
    except TypeError as error:
        raise SchemaMismatch(f"an event's body is bytes: {error}") from error
    if carry_key and event.partition_key is not None:
        made.properties[KEY_PROPERTY] = event.partition_key
    return made


def batch_of(events: Sequence[EventData], columns: Sequence[str], partition: str, hub: str) -> pa.RecordBatch:
    """Events as an Arrow batch with these columns."""
    schema = event_schema(columns)
    constants = {"partition": partition, "hub": hub}
    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(pa.repeat(pa.scalar(constants[field.name], field.type), len(events)))
        else:
            arrays.append(pa.array([_VALUES[field.name](event) for event in events], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def text(value: object) -> str:
    """A value of AMQP as text: bytes as UTF-8 where they are."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return "" if value is None else str(value)


def _body(event: EventData) -> bytes:
    body: Any = event.body
    if isinstance(body, bytes):
        return body
    try:
        return b"".join(body)
    except TypeError:
        return str(event.body_as_str()).encode()


def _properties(event: EventData) -> list[tuple[str, str]]:
    stated: Mapping[Any, Any] = event.properties or {}
    return [(text(name), text(value)) for name, value in stated.items() if text(name) != KEY_PROPERTY]


def _key(event: EventData) -> str | None:
    if event.partition_key is not None:
        return text(event.partition_key)
    stated: Mapping[Any, Any] = event.properties or {}
    return next((text(value) for name, value in stated.items() if text(name) == KEY_PROPERTY), None)


def _annotations(event: EventData) -> Mapping[Any, Any]:
    return event.raw_amqp_message.annotations or {}


def _publisher(event: EventData) -> str | None:
    return next((text(value) for name, value in _annotations(event).items() if text(name) == _PUBLISHER), None)


def _system(event: EventData) -> list[tuple[str, str]]:
    hidden = (*_WITH_COLUMNS, _PUBLISHER)
    found = {text(name): text(value) for name, value in _annotations(event).items() if text(name) not in hidden}
    for name in ("content_type", "correlation_id", "message_id"):
        if (value := getattr(event, name)) is not None:
            found[name.replace("_", "-")] = text(value)
    return sorted(found.items())


_VALUES: dict[str, Callable[[EventData], Any]] = {
    "body": _body,
    "offset": lambda event: text(event.offset),
    "sequenceNumber": lambda event: event.sequence_number,
    "enqueuedTime": lambda event: event.enqueued_time,
    "publisher": _publisher,
    "partitionKey": _key,
    "properties": _properties,
    "systemProperties": _system,
}
