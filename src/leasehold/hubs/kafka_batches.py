"""From Kafka's messages to the record batches of `Hub.read`.

Owns the mapping: key → `partitionKey`, headers → `properties`, timestamp → `enqueuedTime` (null where the message
has none), offset → `sequenceNumber` and `offset`. A message without a value (a tombstone) has a null body. Kafka's
keys and headers are bytes and these columns are text: bytes that are no UTF-8 are written with backslashes
(`\\xff`), and such a key is in `systemProperties` as `keyBase64` as well, exactly. Of headers with one name the
last counts. Pure; an object serves one read.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from leasehold.hubs.arrow import TEXT_MAP, empty_maps, event_schema


class MessageBatches:
    """Builds record batches of the given columns for one partition of a hub."""

    def __init__(self, columns: Sequence[str], partition: str, hub: str) -> None:
        self._schema = event_schema(columns)
        self._fixed = {"partition": partition, "hub": hub}
        makers: dict[str, Callable[[Sequence[Message]], Sequence[object] | pa.Array | None]] = {
            "body": lambda messages: [message.value() for message in messages],
            "offset": lambda messages: _offsets(messages).cast(pa.string()),
            "sequenceNumber": _offsets,
            "enqueuedTime": lambda messages: [_microseconds(message) for message in messages],
            "partitionKey": _keys,
            "properties": _properties,
            "systemProperties": _system_properties,
        }
        self._makers = [(makers.get(field.name), field) for field in self._schema]

    def batch(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """One batch with a row for each message."""
        arrays = []
        for make, field in self._makers:
            values = None if make is None else make(messages)
            if values is None and field.type == TEXT_MAP:
                arrays.append(empty_maps(len(messages)))
            elif values is None:
                arrays.append(pa.repeat(pa.scalar(self._fixed.get(field.name), field.type), len(messages)))
            else:
                arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _offsets(messages: Sequence[Message]) -> pa.Array:
    return pa.array([message.offset() for message in messages], pa.int64())


def _keys(messages: Sequence[Message]) -> Sequence[object] | pa.Array:
    """The keys as text: all at once, if all are."""
    keys = [message.key() for message in messages]
    try:
        return pa.array(keys, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return [_text(key) for key in keys]


def _microseconds(message: Message) -> int | None:
    kind, milliseconds = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds * 1000


def _text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _properties(messages: Sequence[Message]) -> Sequence[object] | None:
    """The headers of each message; `None` where none has any."""
    headers: list[Any] = [message.headers() for message in messages]
    if not any(headers):
        return None
    return [list({name: _text(value) for name, value in one}.items()) if one else [] for one in headers]


def _system_properties(messages: Sequence[Message]) -> Sequence[object] | None:
    """The exact key of each message whose key is no text; `None` where all are."""
    keys = [message.key() for message in messages]
    try:
        pa.array(keys, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return [_exact_key(key) for key in keys]
    return None


def _exact_key(key: bytes | None) -> list[tuple[str, str]]:
    try:
        if key is not None:
            key.decode()
    except UnicodeDecodeError:
        assert key is not None
        return [("keyBase64", b64encode(key).decode())]
    return []
