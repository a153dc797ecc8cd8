"""Messages of Protobuf as JSON text: for columns of type STRING, and for what no column takes.

Owns the text of a message: its fields by their names, those that are not set left out; its extensions, by their full
names in brackets; and what its schema does not know, by its number: whole numbers, and bytes in base64.

Each type of messages has one function for all that it is in, which is made when the first message is met. So a type may
hold itself, and one that no body has costs nothing. Two threads may make one at the same time: they make the same.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types

from leasehold.formats.protobuf.fields import Take, entry, got, in_order, key_text, leaf, of, raw, then
from leasehold.formats.protobuf.plain import plain_message
from leasehold.formats.typed.texts import array_text, json_text, map_text, object_text

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Members = list[tuple[str, str | None]]
"""Names and texts of a JSON object; None is left out."""


class MessageTexts:
    """Values as JSON text, null as None."""

    def __init__(self) -> None:
        self._fields: dict[str, list[tuple[str, Take]]] = {}

    def field(self, field: FieldDescriptor) -> Take:
        """The text of what a field holds: a value, a list or a map."""
        if parts := entry(field):
            key, item = key_text(parts[0]), self.value(parts[1])
            return lambda held: map_text([(name, item(held[one])) for name, one in in_order(held, key)])
        value = self.value(field)
        return (lambda held: array_text(map(value, held))) if field.is_repeated else value

    def value(self, field: FieldDescriptor) -> Take:
        """The text of one value of a field."""
        if field.message_type is None:
            return then(raw(field), json_text(leaf(field)))
        if plain := plain_message(field.message_type):
            return then(plain.value, json_text(plain.type))
        return self.message(field.message_type)

    def message(self, message: Descriptor) -> Take:
        """The text of a message."""

        def text(held: Any) -> str:
            if message.full_name not in self._fields:
                fields = [(field.name, got(field, self.field(field))) for field in message.fields]
                self._fields[message.full_name] = fields
            stated: Members = [(name, of(name, take, held)) for name, take in self._fields[message.full_name]]
            return object_text([*stated, *self.undeclared(held)]) or "{}"

        return text

    def undeclared(self, message: Any) -> Members:
        """What a message has beside the fields of its type: extensions, and fields that its schema does not know."""
        from google.protobuf.unknown_fields import UnknownFieldSet

        listed = type(message).ListFields(message) if message.DESCRIPTOR.is_extendable else []
        known = [(f"[{one.full_name}]", self.field(one)(held)) for one, held in listed if one.is_extension]
        return [*known, *_unknown_texts(UnknownFieldSet(message))]


class Leftovers:
    """What a message has and no column takes, as JSON text; None if there is nothing."""

    def __init__(self) -> None:
        self._texts = MessageTexts()

    def message(self, message: Descriptor, row: pa.StructType) -> Take:
        """What is left over of a message whose fields go to these columns."""
        columns = {column.name: column.type for column in row}
        takes = {field.number: self._field(field, columns.get(field.name)) for field in message.fields}

        def left_over(held: Any) -> str | None:
            listed = [(one, value) for one, value in type(held).ListFields(held) if not one.is_extension]
            left = [(one.name, take(value)) for one, value in listed if (take := takes[one.number]) is not None]
            return object_text([*left, *self._texts.undeclared(held)])

        return left_over

    def _field(self, field: FieldDescriptor, type_: pa.DataType | None) -> Take | None:
        """What finds what is left over of what a field holds; None where a column takes all of it."""
        if type_ is None:
            return self._texts.field(field)
        if parts := entry(field):
            item = self._field(parts[1], type_.item_type) if types.is_map(type_) else None
            key = key_text(parts[0])
            return None if item is None else partial(_members_text, item, key)
        if field.is_repeated:
            item = self._value(field, type_.value_type) if types.is_list(type_) else None
            return None if item is None else partial(_items_text, item)
        return self._value(field, type_)

    def _value(self, field: FieldDescriptor, type_: pa.DataType) -> Take | None:
        if field.message_type is None or not types.is_struct(type_):
            return None
        return self.message(field.message_type, type_)


def _members_text(item: Take, key: Take, held: Any) -> str | None:
    return object_text([(name, item(held[one])) for name, one in in_order(held, key)])


def _items_text(item: Take, held: Any) -> str | None:
    items = list(map(item, held))
    return array_text(items) if any(items) else None


def _unknown_texts(fields: Iterable[Any]) -> Members:
    """Fields of a message that its schema does not know: a number, or bytes in base64; a group as an object."""
    texts: dict[int, list[str]] = {}
    for one in fields:
        texts.setdefault(one.field_number, []).append(_unknown_text(one.data))
    return [(str(number), every[0] if len(every) == 1 else array_text(every)) for number, every in texts.items()]


def _unknown_text(data: Any) -> str:
    if isinstance(data, bytes):
        return f'"{base64.b64encode(data).decode()}"'
    return str(data) if isinstance(data, int) else object_text(_unknown_texts(data)) or "{}"
