"""Bodies in Protobuf to rows, one at a time: every rule of the reader, and every reason of a reject.

Owns what a body must be: one message of the type, as Protobuf's own runtime parses it. Fields go to the columns of
their names. A field with presence that is not set is null, or what its schema states as its default; one without
presence, as most of proto3, is never null: 0, "" and false are what an absent one means. A message that stands for one
value (`plain`) is that value. A field that a body has and no column takes is dropped, or kept as JSON text for the
rescue column; so is one that the schema does not know, by its number.

What reads a body is made once, of the type and the columns: a function for each field. Protobuf says little of itself:
a body that was cut between two fields, or is of another type, often is a message of this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types

from leasehold.formats.misfits import NO_BODY, Misfit, type_name
from leasehold.formats.protobuf.fields import (
    INT,
    Take,
    entry,
    got,
    in_order,
    is_record,
    key_text,
    leaf,
    may_lack,
    of,
    raw,
    same,
    then,
)
from leasehold.formats.protobuf.plain import plain_message
from leasehold.formats.protobuf.texts import Leftovers, MessageTexts
from leasehold.formats.typed.types import ValueType
from leasehold.formats.typed.values import refusal, taken
from leasehold.printable import printable, shortened

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_RECORD, _ARRAY, _MAP = ValueType("record"), ValueType("array"), ValueType("map")
_SHOWN = 200


class ProtobufRows:
    """Reads messages of one type into the columns of `schema`."""

    def __init__(self, schema: pa.Schema, message: Descriptor, *, rescue: bool, cut: bool) -> None:
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        self._nothing = [None] * len(schema)
        self._class, self._undecodable = GetMessageClass(message), DecodeError
        self._wrong = f"the body is not a message of the type {printable(shortened(message.full_name, _SHOWN))}"
        self._checked = may_lack(message)
        row = pa.struct(list(schema))
        self._take = _Columns(cut).of_message(message, row)
        self._left_over = Leftovers().message(message, row) if rescue else None

    def read(self, body: bytes | None) -> tuple[Sequence[Any], str | None, str | None]:
        """The values of the columns, what the rescue column keeps, and the reason if the body is rejected."""
        if body is None:
            return self._nothing, None, NO_BODY
        try:
            message = self._class.FromString(body)
            if self._checked and (lacking := self._class.FindInitializationErrors(message)):
                raise Misfit(f"lacks the field {printable(shortened(lacking[0], _SHOWN))}, which its schema requires")
            return self._take(message), self._left_over(message) if self._left_over else None, None
        except self._undecodable as error:
            text = ": a text in it is not valid UTF-8" if "UTF-8" in str(error) else ""
            return self._nothing, None, f"{self._wrong}{text}"
        except Misfit as error:
            return self._nothing, None, error.reason
        except RecursionError:
            return self._nothing, None, "the body is nested too deep to be read"


class _Columns:
    """Values to columns."""

    def __init__(self, cut: bool) -> None:
        self._cut = cut
        self._texts = MessageTexts()

    def of_message(self, message: Descriptor, row: pa.StructType) -> Take:
        """The columns of these fields, as a list."""
        known = message.fields_by_name
        fields = [(one.name, self._field(known[one.name], one.type) if one.name in known else _nothing) for one in row]
        return lambda held: [of(name, take, held) for name, take in fields]

    def _field(self, field: FieldDescriptor, type_: pa.DataType) -> Take:
        if (field.is_repeated or is_record(field)) and types.is_string(type_):
            return got(field, self._texts.field(field))
        if parts := entry(field):
            return got(field, self._map(*parts, type_))
        if not field.is_repeated:
            return got(field, self._value(field, type_))
        if not types.is_list(type_):
            return got(field, refusal(_ARRAY, type_name(type_)))
        value = self._value(field, type_.value_type)
        return got(field, lambda held: [of(place, value, one) for place, one in enumerate(held)])

    def _map(self, key: FieldDescriptor, value: FieldDescriptor, type_: pa.DataType) -> Take:
        if not types.is_map(type_):
            return refusal(_MAP, type_name(type_))
        text, item = key_text(key), self._value(value, type_.item_type)
        return lambda held: [(name, of(name, item, held[one])) for name, one in in_order(held, text)]

    def _value(self, field: FieldDescriptor, type_: pa.DataType) -> Take:
        message = field.message_type
        if message is not None and types.is_struct(type_):
            names = [one.name for one in type_]
            inner = self.of_message(message, type_)
            return lambda held: dict(zip(names, inner(held), strict=True))
        if is_record(field):
            return self._texts.message(message) if types.is_string(type_) else refusal(_RECORD, type_name(type_))
        if message is not None and (plain := plain_message(message)):
            return then(plain.value, taken(plain.type, type_, cut=self._cut))
        if field.enum_type is not None and types.is_integer(type_):
            return taken(INT, type_, cut=self._cut) or same
        return then(raw(field), taken(leaf(field), type_, cut=self._cut))


def _nothing(message: Any) -> None:
    """A column without a field is null."""
