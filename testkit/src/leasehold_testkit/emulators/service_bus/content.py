"""What a sender put into a message, and how a receiver gets it.

Owns the reading of what is sent, alone or as a batch, and the making of what receivers get. The sections that are the
application's (properties, application properties and body) are kept byte for byte; of header and annotations it keeps
what the service keeps. A content that was read and encoded is the same when it is read again: that is the form on
disk. Raises `AmqpError` (`amqp:decode-error`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from leasehold_testkit.emulators.amqp.messages import BATCH_FORMAT, Sections, sections
from leasehold_testkit.emulators.amqp.types import Described, Symbol, Timestamp, UByte, UInt, ULong, encode

_HEADER, _DELIVERY, _ANNOTATIONS, _APPLICATION = 0x70, 0x71, 0x72, 0x74
_DURABLE, _PRIORITY, _TTL, _FIRST, _COUNT = range(5)
_MESSAGE_ID, _GROUP_ID = 0, 10
_SCHEDULED, _PARTITION_KEY = Symbol("x-opt-scheduled-enqueue-time"), Symbol("x-opt-partition-key")
_OURS = frozenset(
    {
        *("x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until", "x-opt-lock-token"),
        *("x-opt-message-state", "x-opt-deadletter-source", "x-opt-enqueue-sequence-number", "x-opt-partition-id"),
    }
)
LONGEST_ID = 128


@dataclass(frozen=True, slots=True)
class Content:
    """What a sender put into a message. Times are in milliseconds, `scheduled_for` since the epoch."""

    bare: bytes
    """Properties, application properties and body, encoded."""
    annotations: Mapping[Any, Any]
    """The sender's own, and those that go on to the receiver."""
    durable: bool = False
    priority: int | None = None
    time_to_live: int | None = None
    message_id: str | None = None
    session_id: str | None = None
    scheduled_for: int | None = None

    def encoded(self) -> bytes:
        """The message as its sender could have sent it."""
        return _header(self, 0) + _annotations(self.annotations) + self.bare

    def with_properties(self, changed: Mapping[Any, Any]) -> Content:
        """The same with application properties set, beside those it has."""
        if not changed:
            return self
        found = sections(self.bare)
        begin, end = found.application_at
        if begin == end:
            begin = end = found.properties_end
        stated = encode(Described(ULong(_APPLICATION), {**found.application, **changed}))
        return replace(self, bare=self.bare[:begin] + stated + self.bare[end:])


def sent_contents(message_format: int, payload: bytes) -> list[Content]:
    """The messages in what a sender sent."""
    if message_format != BATCH_FORMAT:
        return [content_of(payload)]
    return [content_of(data) for data in sections(payload).data]


def content_of(payload: bytes) -> Content:
    """One message."""
    found = sections(payload)
    begin, end = found.bare
    stated = {key: value for key, value in found.annotations.items() if key not in _OURS}
    at = stated.get(_SCHEDULED)
    ttl = _item(found.header, _TTL)
    priority = _item(found.header, _PRIORITY)
    return Content(
        bare=payload[begin:end],
        annotations=stated,
        durable=_item(found.header, _DURABLE) is True,
        priority=int(priority) if type(priority) is UByte else None,
        time_to_live=int(ttl) if type(ttl) is UInt else None,
        message_id=_id(_item(found.properties, _MESSAGE_ID)),
        session_id=_text(found),
        scheduled_for=int(at) if type(at) is Timestamp else None,
    )


def delivered(
    content: Content, delivery_count: int, values: Mapping[str, object], of_delivery: Mapping[str, object] | None = None
) -> bytes:
    """A message as a receiver gets it: with the `values` of the service, and this delivery, as annotations."""
    annotations = {**content.annotations, **{Symbol(name): value for name, value in values.items()}}
    delivery = {Symbol(name): value for name, value in (of_delivery or {}).items()}
    first = encode(Described(ULong(_DELIVERY), delivery)) if delivery else b""
    return _header(content, delivery_count) + first + _annotations(annotations) + content.bare


def _header(content: Content, delivery_count: int) -> bytes:
    values: list[object] = [None] * 5
    values[_DURABLE] = content.durable
    values[_PRIORITY] = None if content.priority is None else UByte(content.priority)
    values[_TTL] = None if content.time_to_live is None else UInt(content.time_to_live)
    values[_FIRST] = delivery_count == 0
    values[_COUNT] = UInt(delivery_count)
    return encode(Described(ULong(_HEADER), values))


def _annotations(values: Mapping[Any, Any]) -> bytes:
    return encode(Described(ULong(_ANNOTATIONS), dict(values))) if values else b""


def _item(values: Any, at: int) -> Any:
    return values[at] if len(values) > at else None


def _id(value: object) -> str | None:
    """A message id as text: what is not text says so, since 1 and "1" are two ids."""
    return value if value is None or type(value) is str else f"{type(value).__name__}:{value}"


def _text(sections: Sections) -> str | None:
    group = _item(sections.properties, _GROUP_ID)
    return group if type(group) is str else None
