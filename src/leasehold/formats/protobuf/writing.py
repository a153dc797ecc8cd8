"""JSON bodies to messages of Protobuf, for who sends rows of files.

Owns which column each type of Protobuf is read into from JSON, and how its values are set. `typed.writing` has the
promise that nothing is altered: so null is refused in a field that has no presence, since 0, "" or false would come
back. Refuses by name messages that hold themselves, and those that stand for JSON, a time of day or a list of paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from leasehold.body_format import PROTOBUF, BodyFormat
from leasehold.errors import ConfigError
from leasehold.formats.protobuf.fields import entry
from leasehold.formats.protobuf.plain import plain_message
from leasehold.formats.protobuf.schemas import message_type, read_file
from leasehold.formats.protobuf.typed_bodies import type_header
from leasehold.formats.typed.writing import TypedWriter
from leasehold.registries.contract import PROTOBUF as KIND

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

Make = Callable[[Any], Any]
"""From a value of a column to one that the runtime takes. It raises `ValueError`, also by `_Refused`."""
Put = Callable[[Any, Any], None]
"""Sets something of a message, which comes first, to a value of a column."""

_LONG, _UNSIGNED = pa.int64(), pa.decimal128(20, 0)
# What `FieldDescriptor.type` may be, but for enums, messages and groups.
_TYPES = {
    1: pa.float64(),
    2: pa.float32(),
    3: _LONG,
    4: _UNSIGNED,
    5: pa.int32(),
    6: _UNSIGNED,
    7: _LONG,
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: _LONG,
    15: pa.int32(),
    16: _LONG,
    17: pa.int32(),
    18: _LONG,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400  # seconds
_BOOLEANS = {"true": True, "false": False}
_WRAPPER = "google.protobuf.{}Value"


class _Refused(ValueError):
    """A value that no message has, told with its field."""


class ProtobufWriter(TypedWriter):
    """Writes JSON bodies as messages of a type of the schema of this text; without a name, of its only one.

    `header` tells the type behind the number of a schema. Raises `ConfigError`, `MissingDependency`.
    """

    kind = KIND

    def __init__(self, text: str, name: str | None = None) -> None:
        message = message_type(read_file(text), name)
        if not message.fields:
            raise _not_written("of a message that has fields")
        self.text, self.header = text, type_header(message)
        columns, make = _message(message, "", ())

        def encoded(row: dict[str, Any]) -> bytes:
            body: bytes = make(row).SerializeToString(deterministic=True)
            return body

        how = BodyFormat(format=PROTOBUF, writer_schema=text, message=message.full_name)
        super().__init__(pa.schema(columns), how, encoded)


def _message(message: Descriptor, path: str, within: tuple[str, ...]) -> tuple[list[pa.Field], Make]:
    """The columns of a message's fields, and what makes one of their values."""
    from google.protobuf.message_factory import GetMessageClass

    if message.full_name in within:
        raise _not_written(f"that does not hold itself, and {path.rstrip('.')} does")
    kind, inner = GetMessageClass(message), (*within, message.full_name)
    fields = [(field.name, *_field(field, f"{path}{field.name}", inner)) for field in message.fields]

    def make(row: dict[str, Any]) -> Any:
        made = kind()
        for name, _, put in fields:
            try:
                put(made, row[name])
            except _Refused:
                raise
            except (ValueError, TypeError, OverflowError) as error:
                raise _Refused(f"the field {path}{name} is none of its type ({error})") from None
        return made

    return [pa.field(name, type_) for name, type_, _ in fields], make


def _field(field: FieldDescriptor, path: str, within: tuple[str, ...]) -> tuple[pa.DataType, Put]:
    """The type of a field's column, and what sets the field."""
    name = field.name
    if parts := entry(field):
        item, make = _value(parts[1], path, within)
        return pa.map_(pa.string(), item), _map(name, parts, make, path)
    type_, make = _value(field, path, within)
    if field.is_repeated:
        return pa.list_(type_), lambda message, held: getattr(message, name).extend(_each(held, make, path))
    if field.message_type is not None:

        def put_message(message: Any, held: Any) -> None:
            if held is not None:
                into = getattr(message, name)
                into.SetInParent()  # one of which nothing is set is there, too
                into.CopyFrom(make(held))

        return type_, put_message

    def put(message: Any, held: Any) -> None:
        if held is not None:
            setattr(message, name, make(held))
        elif not field.has_presence:
            raise _Refused(f"the field {path} is null, which the schema does not tell from {_nothing(field)}")

    return type_, put


def _map(name: str, parts: tuple[FieldDescriptor, FieldDescriptor], make: Make, path: str) -> Put:
    key, is_message = _key(parts[0], path), parts[1].message_type is not None

    def put(message: Any, held: Any) -> None:
        into, entries = getattr(message, name), held or ()
        values = list(_each((one for _, one in entries), make, path))
        for (text, _), value in zip(entries, values, strict=True):
            if is_message:
                into[key(text)].CopyFrom(value)
            else:
                into[key(text)] = value

    return put


def _each(held: Iterable[Any] | None, make: Make, path: str) -> Iterable[Any]:
    """The values of a list or a map, neither of which has nulls."""
    for one in held or ():
        if one is None:
            raise _Refused(f"the field {path} has a null in it, which Protobuf does not have")
        yield make(one)


def _value(field: FieldDescriptor, path: str, within: tuple[str, ...]) -> tuple[pa.DataType, Make]:
    message = field.message_type
    if field.enum_type is not None:
        return pa.string(), _symbol(field.enum_type, path)
    if message is None:
        type_ = _TYPES[field.type]
        return type_, int if type_ is _UNSIGNED else _same
    if plain_message(message) is None:
        if not message.fields:
            raise _not_written(f"of messages that have fields, and {path} has none")
        columns, make = _message(message, f"{path}.", within)
        return pa.struct(columns), make
    if message.full_name not in _PLAIN:
        raise _not_written(f"of types that rows have a value of, and {path} is {message.full_name}")
    return _plain(message)


def _plain(message: Descriptor) -> tuple[pa.DataType, Make]:
    """Of a message that stands for one value."""
    from google.protobuf.message_factory import GetMessageClass

    type_, fill = _PLAIN[message.full_name]
    kind = GetMessageClass(message)

    def make(value: Any) -> Any:
        made = kind()
        fill(made, value)
        return made

    return type_, make


def _symbol(enum: EnumDescriptor, path: str) -> Make:
    numbers = {value.name: value.number for value in enum.values}

    def number(text: str) -> int:
        try:
            return numbers[text] if text in numbers else int(text)
        except ValueError:
            raise _Refused(f"the field {path} is {text}, which is no symbol of {enum.full_name}") from None

    return number


def _key(field: FieldDescriptor, path: str) -> Make:
    """From the name of a member to a key of a map."""
    if field.type == field.TYPE_STRING:
        return _same

    def key(text: str) -> int | bool:
        try:
            return _BOOLEANS[text] if field.type == field.TYPE_BOOL else int(text)
        except (KeyError, ValueError):
            raise _Refused(f"the field {path} has the key {text}, which is not of its type") from None

    return key


def _nothing(field: FieldDescriptor) -> str:
    """What an unset field without presence is, as people write it."""
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[0].name)
    return {field.TYPE_STRING: '""', field.TYPE_BYTES: '""', field.TYPE_BOOL: "false"}.get(field.type, "0")


def _same(value: Any) -> Any:
    return value


def _timestamp(message: Any, value: datetime) -> None:
    since = value - _EPOCH
    message.seconds, message.nanos = since.days * _DAY + since.seconds, since.microseconds * 1000


def _date(message: Any, value: date) -> None:
    message.year, message.month, message.day = value.year, value.month, value.day


def _duration(message: Any, value: str) -> None:
    message.FromJsonString(value)


def _wrapped(message: Any, value: Any) -> None:
    message.value = value


def _unsigned(message: Any, value: Decimal) -> None:
    message.value = int(value)


def _confluents_decimal(message: Any, value: str) -> None:
    try:
        number = Decimal(value)
        sign, digits, exponent = number.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        message.scale, message.precision = -int(exponent), len(digits)
    except (ArithmeticError, ValueError):
        raise ValueError(f"{value} is not a decimal") from None
    message.value = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)


_PLAIN: dict[str, tuple[pa.DataType, Put]] = {
    "google.protobuf.Timestamp": (pa.timestamp("us", "UTC"), _timestamp),
    "google.protobuf.Duration": (pa.string(), _duration),
    "google.type.Date": (pa.date32(), _date),
    "google.type.Decimal": (pa.string(), _wrapped),
    "confluent.type.Decimal": (pa.string(), _confluents_decimal),
    _WRAPPER.format("Double"): (pa.float64(), _wrapped),
    _WRAPPER.format("Float"): (pa.float32(), _wrapped),
    _WRAPPER.format("Int64"): (_LONG, _wrapped),
    _WRAPPER.format("UInt64"): (_UNSIGNED, _unsigned),
    _WRAPPER.format("Int32"): (pa.int32(), _wrapped),
    _WRAPPER.format("UInt32"): (_LONG, _wrapped),
    _WRAPPER.format("Bool"): (pa.bool_(), _wrapped),
    _WRAPPER.format("String"): (pa.string(), _wrapped),
    _WRAPPER.format("Bytes"): (pa.binary(), _wrapped),
}
"""By full name, of messages that stand for one value: the column, and what sets one."""


def _not_written(rule: str) -> ConfigError:
    rule = f"rows are written by a schema {rule}"
    return ConfigError("writer_schema", None, rule, "Write them by a program of yours")
