"""From Kafka's messages to events: as the record batches of `Hub.read`, or as objects without that detour.

Owns the mapping: key → `partitionKey`, headers → `properties`, timestamp → `enqueuedTime` (null where the message
has none, or one that is no date), offset → `sequenceNumber` and `offset`. A message without a value (a tombstone) has
a null body. Kafka's keys and headers are bytes and these columns are text: bytes that are no UTF-8 are written with
backslashes (`\\xff`), and such a key is in `systemProperties` as `keyBase64` as well, exactly. Of headers with one name
the last counts. Pure; a chunk never changes.

A chunk holds columns, not messages: thousands of objects for which the garbage collector has no eyes, where as many
messages that wait for their handlers would have it go through the whole heap again and again, a fifth of all time.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from leasehold.hubs.arrow import TEXT_MAP, empty_maps, event_schema
from leasehold.hubs.arrow_events import events_from
from leasehold.hubs.base import EVENT_COLUMNS
from leasehold.model import Event

_SCHEMA = event_schema()
_YEARS = (-62_135_596_800_000, 253_402_300_799_999)
"""The first and the last millisecond of the years 1 to 9999. Some producers take nanoseconds for milliseconds."""


@dataclass(frozen=True, slots=True)
class MessageChunk:
    """Messages of one partition as an `EventChunk`.

    keys     None where no message has one, or none was asked for
    headers  None where no message has any, or none was asked for
    times    milliseconds since the Unix epoch; None where there is none, or one that is no date
    """

    hub: str
    partition: str
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Any] | None
    offsets: Sequence[int]
    times: Sequence[int | None]

    @classmethod
    def of(
        cls, messages: Sequence[Message], hub: str, partition: str, columns: Collection[str] = EVENT_COLUMNS
    ) -> MessageChunk:
        """What is in these messages, none of which is an error, as far as these columns need it."""
        with_keys = "partitionKey" in columns or "systemProperties" in columns
        keys = cast(list[bytes | None], [*map(Message.key, messages)]) if with_keys else []
        headers = [*map(Message.headers, messages)] if "properties" in columns else []
        return cls(
            hub,
            partition,
            cast(list[bytes | None], [*map(Message.value, messages)]),
            None if keys.count(None) == len(keys) else keys,
            None if headers.count(None) == len(headers) else headers,
            cast(list[int], [*map(Message.offset, messages)]),
            [
                None if kind == TIMESTAMP_NOT_AVAILABLE or not _YEARS[0] <= at <= _YEARS[1] else at
                for kind, at in map(Message.timestamp, messages)
            ],
        )

    @property
    def first(self) -> int:
        """See `EventChunk`."""
        return self.offsets[0]

    @property
    def last(self) -> int:
        """See `EventChunk`."""
        return self.offsets[-1]

    @property
    def last_offset(self) -> str:
        """See `EventChunk`."""
        return str(self.last)

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, stop: int) -> MessageChunk:
        """See `EventChunk`."""
        these = slice(start, stop)
        return MessageChunk(
            self.hub,
            self.partition,
            self.values[these],
            self.keys and self.keys[these],
            self.headers and self.headers[these],
            self.offsets[these],
            self.times[these],
        )

    def events(self) -> list[Event]:
        """See `EventChunk`."""
        return events_from(
            len(self),
            self.values,
            repeat(None) if self.keys is None else map(_text, self.keys),
            self._properties(),
            repeat(None),
            repeat(self.partition),
            self.offsets,
            map(str, self.offsets),
            [0.0 if at is None else at / 1000 for at in self.times],
            self._exact_keys(),
        )

    def arrow(self, schema: pa.Schema = _SCHEMA) -> pa.RecordBatch:
        """See `EventChunk`; of the columns of this schema."""
        return pa.RecordBatch.from_arrays([self._column(field) for field in schema], schema=schema)

    def _column(self, field: pa.Field) -> pa.Array:
        match field.name:
            case "body":
                return pa.array(self.values, field.type)
            case "offset":
                return pa.array(self.offsets, pa.int64()).cast(field.type)
            case "sequenceNumber":
                return pa.array(self.offsets, field.type)
            case "enqueuedTime":
                return pa.array(self.times, pa.timestamp("ms", tz="UTC")).cast(field.type)
            case "partitionKey":
                return self._keys_as_text()
            case "properties":
                return self._maps(self._properties())
            case "systemProperties":
                return self._maps(self._exact_keys())
            case _:
                known = {"partition": self.partition, "hub": self.hub}
                return pa.repeat(pa.scalar(known.get(field.name), field.type), len(self))

    def _keys_as_text(self) -> pa.Array:
        if self.keys is None:
            return pa.nulls(len(self), pa.string())
        try:
            return pa.array(self.keys, pa.binary()).cast(pa.string())  # all at once, if all are
        except pa.ArrowInvalid:
            return pa.array(map(_text, self.keys), pa.string())

    def _properties(self) -> list[dict[str, Any]] | None:
        if self.headers is None:
            return None
        return [{name: _text(value) for name, value in one or ()} for one in self.headers]

    def _exact_keys(self) -> list[dict[str, str]] | None:
        """What a key is that is no text; `None` where all are."""
        if self.keys is None:
            return None
        try:
            pa.array(self.keys, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return [_exact_key(key) for key in self.keys]
        return None

    def _maps(self, maps: Iterable[dict[str, str]] | None) -> pa.Array:
        return empty_maps(len(self)) if maps is None else pa.array([[*one.items()] for one in maps], TEXT_MAP)


def _text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _exact_key(key: bytes | None) -> dict[str, str]:
    try:
        if key is not None:
            key.decode()
    except UnicodeDecodeError:
        assert key is not None
        return {"keyBase64": b64encode(key).decode()}
    return {}
