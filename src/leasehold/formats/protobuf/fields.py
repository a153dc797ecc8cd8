"""What descriptors of Protobuf say of a field: the type of its values, its symbols, whether it is a map.

Owns the way from a value as Google's runtime has it to one of its type (`typed.types`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigError
from leasehold.formats.misfits import Misfit
from leasehold.formats.protobuf.plain import checked_text, plain_message
from leasehold.formats.typed.texts import plain_text
from leasehold.formats.typed.types import ValueType

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

Take = Callable[[Any], Any]
"""From a value as the runtime has it to another. It raises `Misfit`."""

INT = ValueType("int")
_LONG, _UNSIGNED, _ENUM = ValueType("long"), ValueType("unsigned"), ValueType("enum")
_KEY, _VALUE = 1, 2  # numbers of the fields of an entry of a map

# What `FieldDescriptor.type` may be, but for enums, messages and groups.
_TYPES = {
    1: ValueType("double"),
    2: ValueType("float"),
    3: _LONG,
    4: _UNSIGNED,
    5: INT,
    6: _UNSIGNED,
    7: _LONG,
    8: ValueType("boolean"),
    9: ValueType("string"),
    12: ValueType("bytes"),
    13: _LONG,
    15: INT,
    16: _LONG,
    17: INT,
    18: _LONG,
}


def leaf(field: FieldDescriptor) -> ValueType:
    """The type of the values of a field that holds no messages."""
    return _ENUM if field.enum_type is not None else _TYPES[field.type]


def raw(field: FieldDescriptor) -> Take | None:
    """From a value as the runtime has it to one of its type; None where it is that."""
    if field.enum_type is not None:
        names = symbols(field.enum_type)
        return lambda number: names.get(number) or str(number)
    return checked_text if field.type == field.TYPE_STRING else None


def symbols(enum: EnumDescriptor) -> dict[int, str]:
    """The symbols of an enum by their numbers: of two with one number the first, as Protobuf's JSON has it."""
    return {value.number: value.name for value in reversed(enum.values)}


def entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """The fields of the key and of the value, of a field that is a map. Raises `ConfigError` for a map without them."""
    message = field.message_type
    if message is None or not message.GetOptions().map_entry:
        return None
    numbers = message.fields_by_number
    if set(numbers) != {_KEY, _VALUE}:
        remedy = "Have the descriptors written by protoc"
        raise ConfigError("writer_schema", None, f"the map {field.full_name} has not a key and a value", remedy)
    return numbers[_KEY], numbers[_VALUE]


def key_text(field: FieldDescriptor) -> Take:
    """The text of the key of an entry of a map."""
    return then(raw(field), plain_text(leaf(field)))


def in_order(keys: Iterable[Any], text: Take) -> list[tuple[str, Any]]:
    """The keys of a map with their texts, in the order of the keys. Raises `Misfit`."""
    return [(name, key) for key, name in sorted((key, text(key)) for key in keys)]


def is_record(field: FieldDescriptor) -> bool:
    """Whether the field holds messages that do not stand for one value."""
    return field.message_type is not None and plain_message(field.message_type) is None


def got(field: FieldDescriptor, take: Take) -> Take:
    """From a message to what `take` makes of its field; None where nothing says what an unset one means."""
    name = field.name
    if field.is_repeated or not field.has_presence:
        return lambda message: take(getattr(message, name))
    if not field.has_default_value:
        return lambda message: take(getattr(message, name)) if type(message).HasField(message, name) else None
    return lambda message: take(getattr(message, name))  # which is the default where none is set


def of(name: str | int, take: Take, value: Any) -> Any:
    """What `take` makes of this; what is wrong with it is told with the name."""
    try:
        return take(value)
    except Misfit as error:
        raise error.within(name) from None


def then(first: Take | None, second: Take | None) -> Take:
    """The one after the other; either may be None."""
    if first is None or second is None:
        return first or second or same
    return lambda value: second(first(value))


def same(value: Any) -> Any:
    """The value as it is."""
    return value


def may_lack(message: Descriptor) -> bool:
    """Whether a message of this type, or one within it, may lack a field that its schema requires."""
    left, entered = [message], {message.full_name}
    while left:
        one = left.pop()
        if one.is_extendable:  # an extension may require fields
            return True
        for field in one.fields:
            if field.is_required:
                return True
            if field.message_type is not None and field.message_type.full_name not in entered:
                entered.add(field.message_type.full_name)
                left.append(field.message_type)
    return False
