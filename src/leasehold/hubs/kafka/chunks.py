"""From Kafka's messages to events: as the record batches of `Hub.read`, or as objects without that detour.

Owns the mapping: key → `partitionKey`, headers → `properties`, timestamp → `enqueuedTime` (null where the message
has none, or one that is no date), offset → `sequenceNumber` and `offset`. A message without a value (a tombstone) has
a null body. Whatever a producer has put into a message is delivered, and what the columns of text cannot hold as it is
has a place in `systemProperties` beside them:

- A key that is no UTF-8 is written with backslashes (`\\xff`), and is `keyBase64`, exactly.
- Of headers with one name the last counts, and a value that is no UTF-8 is written with backslashes. Where that says
  less than the message does, `headersBase64` has all headers in their order, as JSON:
  `[["name", "dmFsdWU="], ["none", null]]`.
- The client gives no headers at all of a message in which a header's name is no UTF-8: `properties` is empty, and
  `headersUnreadable` says so.
- `timestampType` is `CreateTime` or `LogAppendTime`, if the option `timestamp_type` asks for it.

Pure; a chunk never changes.

A chunk holds columns, not messages: thousands of objects for which the garbage collector has no eyes, where as many
messages that wait for their handlers would have it go through the whole heap again and again, a fifth of all time.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from leasehold.hubs.arrow import TEXT_MAP, empty_maps, event_schema
from leasehold.hubs.arrow_events import events_from
from leasehold.hubs.base import EVENT_COLUMNS
from leasehold.model import Event

_SCHEMA = event_schema()
_KINDS = {
    TIMESTAMP_CREATE_TIME: {"timestampType": "CreateTime"},
    TIMESTAMP_LOG_APPEND_TIME: {"timestampType": "LogAppendTime"},
}
_YEARS = (-62_135_596_800_000, 253_402_300_799_999)
"""The first and the last millisecond of the years 1 to 9999. Some producers take nanoseconds for milliseconds."""


@dataclass(frozen=True, slots=True)
class MessageChunk:
    """Messages of one partition as an `EventChunk`.

    keys     None where no message has one, or none was asked for
    headers  None where no message has any, or none was asked for; a text in place of those that cannot be read
    kinds    what the times are, as the client numbers it; None where that was not asked for
    times    milliseconds since the Unix epoch; None where there is none, or one that is no date
    """

    hub: str
    partition: str
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Any] | None
    offsets: Sequence[int]
    times: Sequence[int | None]
    kinds: Sequence[int] | None = None

    @classmethod
    def of(
        cls,
        messages: Sequence[Message],
        hub: str,
        partition: str,
        columns: Collection[str] = EVENT_COLUMNS,
        *,
        timestamp_type: bool = False,
    ) -> MessageChunk:
        """What is in these messages, none of which is an error, as far as these columns need it."""
        with_keys = "partitionKey" in columns or "systemProperties" in columns
        keys = cast(list[bytes | None], [*map(Message.key, messages)]) if with_keys else []
        with_headers = "properties" in columns or "systemProperties" in columns
        headers = _headers(messages) if with_headers else []
        with_kinds = timestamp_type and "systemProperties" in columns
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
            [message.timestamp()[0] for message in messages] if with_kinds else None,
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

    @property
    def last_enqueued(self) -> float:
        """See `EventChunk`."""
        return (self.times[-1] or 0) / 1000

    @property
    def nbytes(self) -> int:
        """See `EventChunk`; of values and keys alone."""
        return sum(map(len, filter(None, self.values))) + sum(map(len, filter(None, self.keys or ())))

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
            self.kinds and self.kinds[these],
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
            self._exact(),
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
                return self._maps(self._exact())
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
        return [
            {} if isinstance(one, str) else {name: _text(value) for name, value in one or ()} for one in self.headers
        ]

    def _exact(self) -> list[dict[str, str]] | None:
        """What the other columns cannot hold as it is; `None` where there is nothing of that."""
        kinds = None if self.kinds is None else [_KINDS.get(kind, {}) for kind in self.kinds]
        found = [maps for maps in (self._exact_keys(), self._exact_headers(), kinds) if maps is not None]
        if not found:
            return None
        return [{key: text for one in maps for key, text in one.items()} for maps in zip(*found, strict=True)]

    def _exact_headers(self) -> list[dict[str, str]] | None:
        """All headers of messages of which the map of texts says less; `None` where it always says as much."""
        if self.headers is None or not any(map(_says_less, self.headers)):
            return None
        return [_exact_headers(one) if _says_less(one) else {} for one in self.headers]

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


def _headers(messages: Sequence[Message]) -> list[Any]:
    """The headers of each message; of one in which a name is no UTF-8, a text that says so.

    Each message is asked once: after a failure the client (2.16) hands out a list with holes in it, and whoever looks
    into one of them ends the process.
    """
    found: list[Any] = []
    asked = map(Message.headers, messages)
    while True:
        try:
            found.extend(asked)
        except (SystemError, UnicodeDecodeError) as error:
            if not isinstance(error.__cause__ or error, UnicodeDecodeError):
                raise
            found.append("the name of a header is not UTF-8")
        else:
            return found


def _says_less(headers: Any) -> bool:
    """Whether a map of texts cannot hold these headers as they are."""
    if not headers:
        return False
    if isinstance(headers, str) or len({name for name, _ in headers}) < len(headers):
        return True
    try:
        for _, value in headers:
            if isinstance(value, bytes):
                value.decode()
    except UnicodeDecodeError:
        return True
    return False


def _exact_headers(headers: Any) -> dict[str, str]:
    if isinstance(headers, str):
        return {"headersUnreadable": headers}
    pairs = [[name, None if value is None else b64encode(value).decode()] for name, value in headers]
    return {"headersBase64": json.dumps(pairs, ensure_ascii=False)}


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
