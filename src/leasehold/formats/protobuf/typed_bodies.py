"""Bodies that tell the type of their message, as Confluent's serializers write it.

Owns the "message indexes" of Confluent's wire format, which stand behind the schema's number: how many there are, and
the place of the type among those of the file, then among those within that type, and so on. Each is a zigzag varint; a
count of 0 stands for the first type of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.formats.misfits import NO_BODY
from leasehold.formats.protobuf.columns import ProtobufColumns, protobuf_columns
from leasehold.formats.protobuf.rows import ProtobufRows
from leasehold.formats.protobuf.schemas import message_type, type_at
from leasehold.formats.schema_headers import without_start
from leasehold.formats.shapes import Vouched
from leasehold.printable import shortened

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor

Places = tuple[int, ...]

NO_TYPE = "the body does not tell the type of its message behind the number of its schema"

_DEEPEST = 100  # types within each other
_SHOWN = 40
_TYPES = 8  # that are read many at once
_VARINT = 5  # bytes of a number of 32 bits, at most


class TypedBodies:
    """Reads messages of any type of a file; with `name` those of this type, and rejects the others.

    Raises `ConfigError` for a name that is not one of the file.
    """

    def __init__(self, schema: pa.Schema, file: FileDescriptor, name: str | None, *, rescue: bool, cut: bool) -> None:
        self._schema, self._file, self._how = schema, file, {"rescue": rescue, "cut": cut}
        self._only: Descriptor | None = None if name is None else message_type(file, name)
        self._nothing = [None] * len(schema)
        self._readers: dict[Places, ProtobufRows] = {}

    def read(self, body: bytes | None) -> tuple[Sequence[Any], str | None, str | None]:
        """The values of the columns, what the rescue column keeps, and the reason if the body is rejected."""
        if body is None:
            return self._nothing, None, NO_BODY
        try:
            places, start = message_places(body)
        except (IndexError, ValueError):
            return self._nothing, None, NO_TYPE
        found = type_at(self._file, places)
        if found is None:
            place = shortened(".".join(map(str, places)), _SHOWN)
            return self._nothing, None, f"its schema has no type of messages at the place {place}, which the body names"
        if self._only is not None and found.full_name != self._only.full_name:
            reason = f"it is a message of the type {found.full_name}, and those of {self._only.full_name} are read"
            return self._nothing, None, reason
        if places not in self._readers:
            self._readers[places] = ProtobufRows(self._schema, found, **self._how)
        return self._readers[places].read(body[start:])


class TypedColumns:
    """Reads many of these bodies at once, the types that the first of them have; of which it may leave out any."""

    def __init__(self, schema: pa.Schema, file: FileDescriptor, name: str | None, *, rescue: bool) -> None:
        self._schema, self._file, self._rescue = schema, file, rescue
        self._only: Descriptor | None = None if name is None else message_type(file, name)
        self._readers: dict[Places, ProtobufColumns | None] = {}

    def read(self, bodies: pa.Array) -> list[Vouched]:
        """What is surely good among these, with the rows that it is of."""
        left = pa.array(range(len(bodies)), pa.int32()).filter(bodies.is_valid())
        read: list[Vouched] = []
        for _ in range(_TYPES):
            if not len(left):
                break
            body = bodies[left[0].as_py()].as_py()
            with suppress(IndexError, ValueError):
                places, start = message_places(body)
                mine = pc.starts_with(bodies.take(left), body[:start])
                rows, left = left.filter(mine), left.filter(pc.invert(mine))
                if reader := self._reader(places):
                    read += [
                        (rows.take(at), columns) for at, columns in reader.read(without_start(bodies.take(rows), start))
                    ]
                continue
            left = left[1:]
        return read

    def _reader(self, places: Places) -> ProtobufColumns | None:
        found = type_at(self._file, places)
        if found is None or (self._only is not None and found.full_name != self._only.full_name):
            return None
        if places not in self._readers:
            self._readers[places] = protobuf_columns(self._schema, found, rescue=self._rescue)
        return self._readers[places]


def message_places(body: bytes) -> tuple[Places, int]:
    """The place of a body's type, and where its message begins. Raises `IndexError`, `ValueError` where none stands."""
    count, at = _number(body, 0)
    if not count:
        return (0,), at
    if not 0 < count <= _DEEPEST:
        raise ValueError(count)
    places = []
    for _ in range(count):
        place, at = _number(body, at)
        places.append(place)
    return tuple(places), at


def type_header(message: Descriptor) -> bytes:
    """What tells this type behind the number of a schema."""
    places: list[int] = []
    one: Descriptor | None = message
    while one is not None:
        around = one.containing_type
        beside = one.file.message_types_by_name.values() if around is None else around.nested_types
        places.insert(0, [each.full_name for each in beside].index(one.full_name))
        one = around
    if places == [0]:
        return b"\0"
    return b"".join(_varint(2 * number) for number in (len(places), *places))  # zigzag, of what is never negative


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


def _number(body: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 7 * _VARINT, 7):
        byte = body[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
    raise ValueError(number)
