"""Between events of azure-eventhub and those of Leasehold.

Owns what each column is made of. Bodies that are values or sequences of AMQP come as JSON text (`decoding`). A message
without a body, or with the value null, has none, as a tombstone of Kafka has none; an empty body is empty. Properties
and annotations become text, as in JSON where they are neither text nor bytes. A key that Event Hubs does not take
together with a partition, or does not take at all (the empty one), travels as an application property of ours and
comes back as the partition key. Reads the client's decoded messages rather than its `EventData`, whose making costs as
much as all that comes before it. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from azure.eventhub import EventData

from leasehold.errors import SchemaMismatch
from leasehold.hubs.arrow import TEXT_MAP, empty_maps, event_schema
from leasehold.model import Event

KEY_PROPERTY = "leasehold-partition-key"
LONGEST_KEY = 128
"""Characters of a partition key as the service counts them: one beyond the 16 bits of most counts twice."""
_NUMBER, _OFFSET, _TIME, _KEY, _PUBLISHER = _WITH_COLUMNS = (
    b"x-opt-sequence-number",
    b"x-opt-offset",
    b"x-opt-enqueued-time",
    b"x-opt-partition-key",
    b"x-opt-publisher",
)


class Message(NamedTuple):
    """A received message as `decoding` makes it. Text is UTF-8, and what is not there is None.

    A `value` is bytes, and the items of a `sequence` are JSON texts.
    """

    message_annotations: Mapping[bytes, Any] | None = None
    application_properties: Mapping[Any, Any] | None = None
    properties: Any = None
    data: Sequence[bytes | None] | None = None
    sequence: Sequence[Sequence[str]] | None = None
    value: bytes | None = None


def to_send(event: Event, *, carry_key: bool) -> EventData:
    """An event for the official producer; `carry_key` if the producer is not told the key.

    Raises `SchemaMismatch` for what the service takes in no form, before anything of it is sent.
    """
    if event.publisher is not None:
        raise SchemaMismatch("an event for Event Hubs has no publisher: the service sets it. Leave it None")
    key = event.partition_key
    if key is not None and not isinstance(key, str):
        raise SchemaMismatch(f"an event's partition key is text or None, and this is {type(key).__name__}")
    try:
        made = EventData(bytes(event.body))
        properties: dict[str | bytes, Any] = {str(name): str(value) for name, value in event.properties.items()}
        "".join((key or "", *map(str, properties), *properties.values())).encode()
        made.properties = properties
    except TypeError as error:
        raise SchemaMismatch(f"an event's body is bytes: {error}") from error
    except UnicodeEncodeError as error:
        raise SchemaMismatch(
            f"an event's partition key and properties are text in UTF-8, and one holds half a surrogate pair: {error}"
        ) from error
    if carry_key and key is not None:
        made.properties[KEY_PROPERTY] = key
    elif key is not None and (length := len(key.encode("utf-16-le")) // 2) > LONGEST_KEY:
        raise SchemaMismatch(
            f"an event's partition key has {length:,} characters, and Event Hubs takes {LONGEST_KEY}. Send a shorter "
            "one, or the event to a partition, where its key is a property"
        )
    return made


def number_of(message: Message) -> int:
    """The sequence number of a message, which every one from Event Hubs has."""
    number: int = (message.message_annotations or {})[_NUMBER]
    return number


def without_gaps(messages: list[Message]) -> Iterator[list[Message]]:
    """The messages in runs of numbers that follow each other: one, unless some were removed between two of them."""
    while number_of(messages[-1]) - number_of(messages[0]) >= len(messages):
        first = number_of(messages[0])
        count = next(place for place, message in enumerate(messages) if number_of(message) != first + place)
        yield messages[:count]
        messages = messages[count:]
    yield messages


def offset_in(message: Message) -> str | None:
    """The offset of a message, which every one from Event Hubs has."""
    return text((message.message_annotations or {}).get(_OFFSET))


def time_of(message: Message) -> float:
    """When a message was enqueued, in seconds since the epoch; every one from Event Hubs says so."""
    milliseconds: int = (message.message_annotations or {})[_TIME]
    return milliseconds / 1_000


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as one."""
    if len(batches) == 1:
        return batches[0]
    (one,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return one


def batch_of(messages: Sequence[Message], columns: Sequence[str], partition: str, hub: str) -> pa.RecordBatch:
    """Messages as an Arrow batch with these columns."""
    schema = event_schema(columns)
    constants = {"partition": partition, "hub": hub}
    annotations = [message.message_annotations or {} for message in messages]
    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(pa.repeat(pa.scalar(constants[field.name], field.type), len(messages)))
        elif field.name in _OF_ANNOTATIONS:
            arrays.append(_OF_ANNOTATIONS[field.name](annotations, field.type))
        else:
            values = [_VALUES[field.name](message) for message in messages]
            nothing = field.type == TEXT_MAP and not any(values)
            arrays.append(empty_maps(len(messages)) if nothing else pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def text(value: object) -> str:
    """A value of AMQP, as the client has it, as text: bytes as UTF-8 where they are, other values as in JSON."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, bool | dict | list):
        return json.dumps(_readable(value), ensure_ascii=False, default=str)
    return "" if value is None else str(value)


def _readable(value: Any) -> Any:
    """A value of AMQP with all bytes in it as text."""
    if isinstance(value, dict):
        return {text(name): _readable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_readable(one) for one in value]
    return text(value) if isinstance(value, bytes) else value


def _texts(annotations: Sequence[Mapping[bytes, Any]], name: bytes) -> list[str | None]:
    return [None if (value := of.get(name)) is None else text(value) for of in annotations]


def _body(message: Message) -> bytes | None:
    data = message.data
    if data is not None:
        return data[0] or b"" if len(data) == 1 else b"".join(part or b"" for part in data)
    if message.sequence is not None:
        return f"[{','.join(item for section in message.sequence for item in section)}]".encode()
    return message.value


def _properties(message: Message) -> list[tuple[str, str]]:
    stated = message.application_properties
    if not stated:
        return []
    return [(text(name), text(value)) for name, value in stated.items() if text(name) != KEY_PROPERTY]


def _key(message: Message) -> str | None:
    if (key := (message.message_annotations or {}).get(_KEY)) is not None:
        return text(key)
    stated = message.application_properties
    if not stated:
        return None
    return next((text(value) for name, value in stated.items() if text(name) == KEY_PROPERTY), None)


def _system(message: Message) -> list[tuple[str, str]]:
    annotations, stated = message.message_annotations or {}, message.properties
    if stated is None and len(annotations) <= 4 and not any(name not in _WITH_COLUMNS for name in annotations):
        return []
    found = {text(name): text(value) for name, value in annotations.items() if name not in _WITH_COLUMNS}
    for name in ("content_type", "correlation_id", "message_id"):
        if (value := getattr(stated, name, None)) is not None:
            found[name.replace("_", "-")] = text(value)
    return sorted(found.items())


_OF_ANNOTATIONS: dict[str, Callable[[Sequence[Mapping[bytes, Any]], pa.DataType], pa.Array]] = {
    "sequenceNumber": lambda found, kind: pa.array([of[_NUMBER] for of in found], kind),
    "offset": lambda found, kind: pa.array([text(of.get(_OFFSET)) for of in found], kind),
    "enqueuedTime": lambda found, kind: pa.array([of.get(_TIME) for of in found], pa.timestamp("ms", tz="UTC")).cast(
        kind
    ),
    "publisher": lambda found, kind: pa.array(_texts(found, _PUBLISHER), kind),
}
_VALUES: dict[str, Callable[[Message], Any]] = {
    "body": _body,
    "partitionKey": _key,
    "properties": _properties,
    "systemProperties": _system,
}
