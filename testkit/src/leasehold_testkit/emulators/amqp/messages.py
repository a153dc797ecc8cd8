"""Messages: the sections that one is made of.

Owns the reading of what producers send, alone or as a batch, and the making of what receivers get. A stored
message keeps the sections that are the application's (properties, application properties and body) byte for
byte as they came; what is the transport's (header, annotations) is dropped but for the partition key. Raises
`AmqpError` (`amqp:decode-error`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leasehold_testkit.emulators.amqp.conditions import DECODE_ERROR, AmqpError
from leasehold_testkit.emulators.amqp.types import Described, Symbol, Timestamp, ULong, decode, encode

BATCH_FORMAT = 0x80013700
"""The message format of a message whose data sections are messages themselves."""

_HEADER, _DELIVERY, _ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA, _SEQUENCE, _VALUE, _FOOTER = range(0x70, 0x79)
_BARE = range(_PROPERTIES, _FOOTER)
_PARTITION_KEY = Symbol("x-opt-partition-key")


@dataclass(frozen=True, slots=True)
class Message:
    """What the application put into a message, encoded, and its partition key."""

    bare: bytes
    partition_key: str | None = None


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with what the hub has given it. `enqueued` is in milliseconds since the epoch."""

    sequence_number: int
    offset: str
    enqueued: int
    message: Message


@dataclass(frozen=True, slots=True)
class Sections:
    """The decoded sections of a message, as far as somebody looks at them."""

    header: Sequence[Any] = ()
    properties: Sequence[Any] = ()
    application: dict[Any, Any] = field(default_factory=dict)
    annotations: dict[Any, Any] = field(default_factory=dict)
    data: tuple[bytes, ...] = ()
    value: Any = None
    bare: tuple[int, int] = (0, 0)
    """Where the application's sections begin and end."""
    properties_end: int = 0
    """Where the properties end; where there are none, where the application's sections begin."""
    application_at: tuple[int, int] = (0, 0)
    """Where the application properties begin and end; twice 0 where there are none."""


def sections(data: bytes) -> Sections:
    """Take a message apart: sections in their order, none but data and sequences twice."""
    found: dict[int, Any] = {}
    bodies: list[Any] = []
    bare = None
    places: dict[int, tuple[int, int]] = {}
    at, last = 0, 0
    while at < len(data):
        section, end = decode(data, at)
        code = section.descriptor if isinstance(section, Described) else None
        if type(code) is not ULong or not _HEADER <= code <= _FOOTER:
            raise AmqpError(DECODE_ERROR, f"a message has sections, and none is {code!r:.60}")
        if code < last or (code == last and code not in (_DATA, _SEQUENCE)):
            raise AmqpError(DECODE_ERROR, f"a section {code:#x} after a section {last:#x}")
        value: Any = section.value
        if not isinstance(value, _KINDS.get(code, object)):
            raise AmqpError(DECODE_ERROR, f"a section {code:#x} that holds a {type(value).__name__}")
        if code == _DATA:
            bodies.append(value)
        else:
            found[code] = value
        if code in _BARE:
            bare = (at if bare is None else bare[0], end)
        places[code] = (at, end)
        at, last = end, int(code)
    return Sections(
        header=found.get(_HEADER, ()),
        properties=found.get(_PROPERTIES, ()),
        application=found.get(_APPLICATION, {}),
        annotations=found.get(_ANNOTATIONS) or {},
        data=tuple(bodies),
        value=found.get(_VALUE),
        bare=bare or (0, 0),
        properties_end=places[_PROPERTIES][1] if _PROPERTIES in places else (bare or (0, 0))[0],
        application_at=places.get(_APPLICATION, (0, 0)),
    )


_KINDS: dict[int, type] = {
    _HEADER: list,
    _DELIVERY: dict,
    _ANNOTATIONS: dict,
    _PROPERTIES: list,
    _APPLICATION: dict,
    _DATA: bytes,
    _SEQUENCE: list,
    _FOOTER: dict,
}


def sent_messages(message_format: int, payload: bytes) -> list[Message]:
    """The messages in what a producer sent."""
    envelope = sections(payload)
    key = _key(envelope)
    if message_format != BATCH_FORMAT:
        return [_message(payload, envelope, key)]
    messages = []
    for data in envelope.data:
        inner = sections(data)
        messages.append(_message(data, inner, _key(inner) or key))
    return messages


def received(stored: StoredMessage) -> bytes:
    """A stored message as a receiver gets it."""
    annotations: dict[object, object] = {
        Symbol("x-opt-sequence-number"): stored.sequence_number,
        Symbol("x-opt-offset"): stored.offset,
        Symbol("x-opt-enqueued-time"): Timestamp(stored.enqueued),
    }
    if stored.message.partition_key is not None:
        annotations[_PARTITION_KEY] = stored.message.partition_key
    return encode(Described(ULong(_ANNOTATIONS), annotations)) + stored.message.bare


def data_message(body: bytes, application: Mapping[str, object], properties: Sequence[Any] = ()) -> bytes:
    """The sections of a message with a body of bytes."""
    stated = encode(Described(ULong(_PROPERTIES), list(properties))) if properties else b""
    described = encode(Described(ULong(_APPLICATION), dict(application))) if application else b""
    return stated + described + encode(Described(ULong(_DATA), body))


def value_message(correlation_id: object, application: dict[str, object], value: object) -> bytes:
    """The sections of an answer to a request."""
    properties = [None] * 5 + [correlation_id] + [None] * 7
    return b"".join(
        encode(Described(ULong(code), section))
        for code, section in ((_PROPERTIES, properties), (_APPLICATION, application), (_VALUE, value))
    )


def _message(data: bytes, sections: Sections, key: str | None) -> Message:
    begin, end = sections.bare
    if begin == end:
        raise AmqpError(DECODE_ERROR, "a message without a body")
    return Message(data[begin:end], key)


def _key(sections: Sections) -> str | None:
    key = sections.annotations.get(_PARTITION_KEY)
    return key if type(key) is str else None
