"""What a frame says: the performatives of AMQP and those of SASL.

Owns their fields, in the order of OASIS AMQP 1.0, parts 2 and 5, with their types and defaults. Decoding
checks each field against its type and refuses a performative that lacks a mandatory one. Encoding writes every
field, null where there is nothing: the official clients look fields up by position and do not know that
trailing ones may be left out. Pure.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from leasehold_testkit.emulators.amqp.conditions import DECODE_ERROR, INVALID_FIELD, AmqpError
from leasehold_testkit.emulators.amqp.types import Array, Described, Symbol, UByte, UInt, ULong, UShort, decode, encode

Symbols = list[Symbol]
"""Written as an array; read from an array or from one symbol alone."""


class Performative:
    """One kind of frame. `TYPES` are the types of its fields; `object` stands for any."""

    CODE: ClassVar[int]
    TYPES: ClassVar[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(Performative):
    """The first frame of each side."""

    CODE = 0x10
    TYPES = (str, str, UInt, UShort, UInt, Symbols, Symbols, Symbols, Symbols, dict)
    container_id: str
    hostname: str | None = None
    max_frame_size: int = 0xFFFFFFFF
    channel_max: int = 0xFFFF
    idle_time_out: int | None = None
    outgoing_locales: list[str] | None = None
    incoming_locales: list[str] | None = None
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: dict[Any, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(Performative):
    """A session begins on a channel."""

    CODE = 0x11
    TYPES = (UShort, UInt, UInt, UInt, UInt, Symbols, Symbols, dict)
    remote_channel: int | None = None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = 0xFFFFFFFF
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: dict[Any, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach(Performative):
    """A link gets a handle in a session. `role`: whether the sender of this frame receives on the link."""

    CODE = 0x12
    TYPES = (*(str, UInt, bool, UByte, UByte, object, object, dict, bool, UInt, ULong, Symbols, Symbols, dict),)
    name: str
    handle: int
    role: bool
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: Any = None
    target: Any = None
    unsettled: dict[Any, Any] | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: dict[Any, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow(Performative):
    """How much a session, and a link if there is a handle, may send."""

    CODE = 0x13
    TYPES = (UInt, UInt, UInt, UInt, UInt, UInt, UInt, UInt, bool, bool, dict)
    next_incoming_id: int | None = None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: dict[Any, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Performative):
    """A message, or part of one; its bytes follow the performative."""

    CODE = 0x14
    TYPES = (UInt, UInt, bytes, UInt, bool, bool, UByte, object, bool, bool, bool)
    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposition(Performative):
    """What became of deliveries."""

    CODE = 0x15
    TYPES = (bool, UInt, UInt, bool, object, bool)
    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: Any = None
    batchable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach(Performative):
    """A link gives its handle up; `closed` for good."""

    CODE = 0x16
    TYPES = (UInt, bool, object)
    handle: int
    closed: bool = False
    error: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Performative):
    """A session ends."""

    CODE = 0x17
    TYPES = (object,)
    error: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(Performative):
    """The last frame of each side."""

    CODE = 0x18
    TYPES = (object,)
    error: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslMechanisms(Performative):
    """The ways to log in that the server offers."""

    CODE = 0x40
    TYPES = (Symbols,)
    mechanisms: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslInit(Performative):
    """The way to log in that the client chose."""

    CODE = 0x41
    TYPES = (Symbol, bytes, str)
    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslOutcome(Performative):
    """Whether the login was accepted: 0 is yes."""

    CODE = 0x44
    TYPES = (UByte, bytes)
    code: int
    additional_data: bytes | None = None


PERFORMATIVES: tuple[type[Performative], ...] = (
    *(Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close),
    *(SaslMechanisms, SaslInit, SaslOutcome),
)
_BY_CODE = {kind.CODE: kind for kind in PERFORMATIVES}
_BY_NAME = {
    f"amqp:{'sasl-' * (kind.CODE >= 0x40)}{kind.__name__.removeprefix('Sasl').lower()}:list": kind
    for kind in PERFORMATIVES
}
_FIELDS = {
    kind: tuple(
        (field.name, wanted, field.default)
        for field, wanted in zip(fields(kind), kind.TYPES, strict=True)  # type: ignore[arg-type]
    )
    for kind in PERFORMATIVES
}


def decode_performative(body: bytes) -> tuple[Performative, int]:
    """The performative at the begin of a frame's body, and where it ends. Raises `AmqpError`."""
    described, end = decode(body)
    if not isinstance(described, Described) or not isinstance(described.value, list):
        raise AmqpError(DECODE_ERROR, "a frame begins with a described list")
    name = described.descriptor
    kind = _BY_NAME.get(name) if isinstance(name, Symbol) else _BY_CODE.get(name) if type(name) is ULong else None
    if kind is None:
        raise AmqpError(DECODE_ERROR, f"there is no performative {name!r:.60}")
    values = described.value
    expected = _FIELDS[kind]
    if len(values) > len(expected):
        raise AmqpError(DECODE_ERROR, f"{kind.__name__} has {len(expected)} fields, not {len(values)}")
    found: dict[str, Any] = {}
    for (field, wanted, default), value in zip(expected, values, strict=False):
        if value is not None:
            found[field] = _checked(kind, field, wanted, value)
        elif default is MISSING:
            raise AmqpError(INVALID_FIELD, f"{kind.__name__} needs the field {field}")
    for field, _, default in expected[len(values) :]:
        if default is MISSING:
            raise AmqpError(INVALID_FIELD, f"{kind.__name__} needs the field {field}")
    return kind(**found), end


def encode_performative(performative: Performative) -> bytes:
    """The bytes of a performative, with all its fields."""
    values = [_typed(wanted, getattr(performative, field)) for field, wanted, _ in _FIELDS[type(performative)]]
    return encode(Described(ULong(performative.CODE), values))


def _checked(kind: type[Performative], field: str, type_: Any, value: Any) -> Any:
    if type_ is Symbols:
        if isinstance(value, Symbol):
            return [value]
        if isinstance(value, Array) and all(isinstance(item, Symbol) for item in value):
            return list(value)
    elif type_ is object or type(value) is type_:
        return value
    name = "symbol or array of symbols" if type_ is Symbols else type_.__name__
    raise AmqpError(INVALID_FIELD, f"{kind.__name__}.{field} is a {name}, not a {type(value).__name__}")


def _typed(type_: Any, value: Any) -> Any:
    if value is None or type_ is object:
        return value
    return Array(Symbol(item) for item in value) if type_ is Symbols else type_(value)
