"""Messages of Protobuf that stand for one value: times, decimals, wrappers, JSON.

Owns which types these are, and their value. They are Google's well-known types, of `google.type` a date, a time of day
and a decimal, and Confluent's decimal, which Kafka Connect writes. A type of the name with other fields is a message
like any other.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any

from leasehold.formats.misfits import Misfit
from leasehold.formats.typed.texts import array_text, decimal_of, json_text, map_text
from leasehold.formats.typed.types import ValueType

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

Value = Callable[[Any], Any]

_NANOS = 1_000_000_000
_LONGEST_DURATION = 315_576_000_000  # seconds: 10,000 years
_MOST_DIGITS = 1_000  # behind the point of a decimal
_EPOCH = date(1970, 1, 1).toordinal()
_EXACT = 2**53  # below it every whole number is a double


@dataclass(frozen=True, slots=True)
class Plain:
    """The type of the one value, and what finds it in a message: it raises `Misfit` for a message that has none."""

    type: ValueType
    value: Value


def plain_message(message: Descriptor) -> Plain | None:
    """What a message of this type stands for, if it is one value."""
    if message.full_name in _JSON:
        pool = message.file.pool
        try:
            alike = all(_shape(pool.FindMessageTypeByName(name)) == shape for name, (shape, _) in _JSON.items())
        except KeyError:
            return None
        return _JSON[message.full_name][1] if alike else None
    shape, plain = _KNOWN.get(message.full_name, ("", None))
    return plain if plain is not None and shape == _shape(message) else None


def has_known_name(message: Descriptor) -> bool:
    """Whether a type is called like one of these, whatever its fields are."""
    return message.full_name in _KNOWN or message.full_name in _JSON


def checked_text(value: str | bytes) -> str:
    """A text as the runtime has it; proto2 lets it be any bytes. Raises `Misfit` for those."""
    if isinstance(value, bytes):
        raise Misfit("is not valid UTF-8")
    return value


def _timestamp(message: Any) -> int:
    if not 0 <= message.nanos < _NANOS:
        raise Misfit(f"is a time with {message.nanos} nanoseconds in a second")
    return int(message.seconds) * _NANOS + int(message.nanos)


def _duration(message: Any) -> str:
    seconds, nanos = int(message.seconds), int(message.nanos)
    if abs(seconds) > _LONGEST_DURATION or abs(nanos) >= _NANOS or seconds * nanos < 0:
        raise Misfit(f"is a duration of {seconds} seconds and {nanos} nanoseconds, which Protobuf does not have")
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_fraction(abs(nanos))}s"


def _date(message: Any) -> int:
    try:
        return date(message.year, message.month, message.day).toordinal() - _EPOCH
    except (ValueError, OverflowError):
        text = f"{message.year}-{message.month}-{message.day}"
        raise Misfit(f"is {text}, which is not a date of the years 1 to 9999") from None


def _time_of_day(message: Any) -> str:
    hours, minutes, seconds, nanos = message.hours, message.minutes, message.seconds, message.nanos
    if not (0 <= hours <= 24 and 0 <= minutes < 60 and 0 <= seconds <= 60 and 0 <= nanos < _NANOS):
        raise Misfit(f"is {hours}:{minutes}:{seconds} and {nanos} nanoseconds, which is not a time of day")
    return f"{hours:02}:{minutes:02}:{seconds:02}{_fraction(nanos)}"


def _fraction(nanos: int) -> str:
    return f".{nanos:09}".rstrip("0") if nanos else ""


def _confluents_decimal(message: Any) -> str:
    if abs(message.scale) > _MOST_DIGITS:
        raise Misfit(f"is a decimal of scale {message.scale}, which no number has")
    return f"{decimal_of(message.value, message.scale):f}"


def _struct(message: Any) -> str:
    return map_text((name, _value(message.fields[name])) for name in sorted(map(checked_text, message.fields)))


def _list(message: Any) -> str:
    return array_text(_value(one) for one in message.values)


def _value(message: Any) -> str:
    """The text of a `google.protobuf.Value`."""
    match message.WhichOneof("kind"):
        case "struct_value":
            return _struct(message.struct_value)
        case "list_value":
            return _list(message.list_value)
        case "string_value":
            return quoted(checked_text(message.string_value))
        case "bool_value":
            return "true" if message.bool_value else "false"
        case "number_value":
            number = message.number_value
            return str(int(number)) if number and number.is_integer() and abs(number) < _EXACT else _number(number)
    return "null"


_number = json_text(ValueType("double"))


def _any(message: Any) -> str:
    held = base64.b64encode(message.value).decode()
    return f'{{"@type":{quoted(checked_text(message.type_url))},"value":"{held}"}}'


def _mask(message: Any) -> str:
    return ",".join(map(checked_text, message.paths))


def _wrapped(message: Any) -> Any:
    return message.value


def _wrapped_text(message: Any) -> str:
    return checked_text(message.value)


def _plain(kind: str, value: Value, logical: str = "") -> Plain:
    return Plain(ValueType(kind, logical), value)


_KNOWN: dict[str, tuple[str, Plain]] = {
    "google.protobuf.Timestamp": ("1 seconds 3, 2 nanos 5", _plain("moment", _timestamp, "timestamp-nanos")),
    "google.protobuf.Duration": ("1 seconds 3, 2 nanos 5", _plain("string", _duration)),
    "google.protobuf.Any": ("1 type_url 9, 2 value 12", _plain("json", _any)),
    "google.protobuf.FieldMask": ("1 paths 9*", _plain("string", _mask)),
    "google.type.Date": ("1 year 5, 2 month 5, 3 day 5", _plain("moment", _date, "date")),
    "google.type.TimeOfDay": ("1 hours 5, 2 minutes 5, 3 seconds 5, 4 nanos 5", _plain("string", _time_of_day)),
    "google.type.Decimal": ("1 value 9", _plain("string", _wrapped_text)),
    "confluent.type.Decimal": ("1 value 12, 2 precision 13, 3 scale 5", _plain("string", _confluents_decimal)),
    "google.protobuf.DoubleValue": ("1 value 1", _plain("double", _wrapped)),
    "google.protobuf.FloatValue": ("1 value 2", _plain("float", _wrapped)),
    "google.protobuf.Int64Value": ("1 value 3", _plain("long", _wrapped)),
    "google.protobuf.UInt64Value": ("1 value 4", _plain("unsigned", _wrapped)),
    "google.protobuf.Int32Value": ("1 value 5", _plain("int", _wrapped)),
    "google.protobuf.UInt32Value": ("1 value 13", _plain("long", _wrapped)),
    "google.protobuf.BoolValue": ("1 value 8", _plain("boolean", _wrapped)),
    "google.protobuf.StringValue": ("1 value 9", _plain("string", _wrapped_text)),
    "google.protobuf.BytesValue": ("1 value 12", _plain("bytes", _wrapped)),
}
"""By full name: the fields, each with its number, its name, its type in a descriptor and `*` if it is repeated; and
what the message stands for."""
_JSON = {
    "google.protobuf.Struct": ("1 fields 11* google.protobuf.Struct.FieldsEntry", _plain("json", _struct)),
    "google.protobuf.Struct.FieldsEntry": ("1 key 9, 2 value 11 google.protobuf.Value", None),
    "google.protobuf.ListValue": ("1 values 11* google.protobuf.Value", _plain("json", _list)),
    "google.protobuf.Value": (
        "1 null_value 14, 2 number_value 1, 3 string_value 9, 4 bool_value 8, "
        "5 struct_value 11 google.protobuf.Struct, 6 list_value 11 google.protobuf.ListValue",
        _plain("json", _value),
    ),
}
"""The same of types that hold each other, and count together."""


def _shape(message: Descriptor) -> str:
    return ", ".join(
        f"{one.number} {one.name} {one.type}{'*' * one.is_repeated}"
        + (f" {one.message_type.full_name}" if one.message_type is not None else "")
        for one in sorted(message.fields, key=lambda one: one.number)
    )
