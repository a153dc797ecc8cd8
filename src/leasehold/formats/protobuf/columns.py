"""Many bodies in Protobuf to columns at once, by `ptars`, as far as it certainly says what `rows` says.

Owns the knowledge of where the two differ, and the proof that they do not (`typed.columns`). To the proof come the
differences that it does not see, because `ptars` writes again what it wrongly has read:

1. Of two fields of a `oneof` in one body it has both, where the last one counts: such bodies are left out.
2. It takes any number for a closed enum, both of two entries of a map with one key, and a group that is encoded as a
   message. It knows no defaults, and goes by the names of well-known types. Columns of such fields are read one by one,
   as are types that hold themselves there, have a field that is required, or a map of messages.
3. Its table of fields is as large as the largest number of a field, its columns as many as the ways through types
   within types, and groups that it does not know are a call of a function each: 200,000 of them end the process.
   So it is given no schema of large numbers or many ways, and no body of more bytes than a small stack holds calls.

All bodies go one by one where a column is of another type than its field, or a MAP, or a message that stands for one
value, but a time and a wrapper; and with a rescue column, unless the type has no field but those of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.formats.protobuf.fields import entry, may_lack, symbols
from leasehold.formats.protobuf.plain import has_known_name, plain_message
from leasehold.formats.shapes import Vouched
from leasehold.formats.typed.columns import Convert, NotRead, cast, list_, struct, vouched

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

Path = tuple[int, ...]
"""The places of a field and of those that it is in, from the outermost on."""

_LARGEST, _COLUMNS, _DEPTH = 4_096, 1_000, 32
"""The number of a field, how many fields there are, each counted wherever it stands, and types within each other."""
_BODY = 4_096
"""Bytes of a body; each may be a call of a function, and threads have stacks of half a megabyte on some systems."""
_BATCH = 1 << 30
"""Bytes of bodies at once."""
_PANIC = "PanicException"
"""What `ptars` raises where its code, in Rust, gives up: the class has no name that could be imported."""
_DIRECT = {
    "double": (types.is_float64,),
    "float": (types.is_float32, types.is_float64),
    "int32": (types.is_int32, types.is_int64),
    "int64": (types.is_int64,),
    "uint32": (types.is_int64,),
    "bool": (types.is_boolean,),
    "string": (types.is_string,),
    "binary": (types.is_binary,),
}
"""By the type that `ptars` gives: columns that take each value of it as it is."""
_NAMES = {1: "double", 2: "float", 3: "int64", 5: "int32", 7: "uint32", 8: "bool", 9: "string", 12: "binary"}
_NAMES |= {13: "uint32", 15: "int32", 16: "int64", 17: "int32", 18: "int64"}
_WRAPPERS = (
    "google.protobuf.Timestamp",
    *(
        f"google.protobuf.{name}Value"
        for name in ("Double", "Float", "Int64", "Int32", "UInt32", "Bool", "String", "Bytes")
    ),
)


def protobuf_columns(schema: pa.Schema, message: Descriptor, *, rescue: bool) -> ProtobufColumns | None:
    """What reads many messages of this type into these columns; None where that is not possible."""
    if find_spec("ptars") is None:  # there is no wheel for every machine
        return None
    try:
        if may_lack(message):
            raise NotRead
        _check_files(message.file)
        _count(message, [0], ())
        reading = _Reading()
        convert = reading.columns(message, pa.struct(list(schema)), (), leftover=not rescue)
        return ProtobufColumns(schema, message, convert, reading.choices)
    except NotRead:
        return None


class ProtobufColumns:
    """Reads bodies of one type of messages. In a body at most one of each of `choices` may be set."""

    def __init__(
        self, schema: pa.Schema, message: Descriptor, convert: Convert, choices: Sequence[tuple[Path, Sequence[int]]]
    ) -> None:
        import ptars
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        self._schema, self._convert, self._choices = schema, convert, choices
        self._class, self._undecodable = GetMessageClass(message), DecodeError
        try:
            pool = ptars.HandlerPool([message.file], ptars.PtarsConfig(timestamp_unit="ns", enum_repr="int32"))
            self._library = pool.get_for_message(message)
        except BaseException as error:  # noqa: BLE001 -- see `_PANIC`
            _refuse(error)
            raise NotRead from None

    def read(self, bodies: pa.Array) -> list[Vouched]:
        """What is surely good among these, with the rows that it is of."""
        rows = pa.array(range(len(bodies)), pa.int32())
        long = pc.greater(pc.binary_length(bodies), _BODY)
        return vouched(pc.if_else(pc.fill_null(long, True), None, bodies), rows, self._attempt, _BATCH)

    def _attempt(self, bodies: pa.Array, rows: pa.Array) -> Vouched:
        try:
            found, again = self._both_ways(bodies)
        except ValueError:  # one body fails all: those go that nobody can read
            found, again = self._both_ways(pa.array(map(self._decodable, bodies.to_pylist()), pa.binary()))
        same = pc.fill_null(pc.equal(again, bodies), False)
        values = found.to_struct_array()
        for path, places in self._choices:
            inner = values
            for place in path:
                inner = inner.field(place)
            count = reduce(pc.add, [pc.cast(inner.field(place).is_valid(), pa.int8()) for place in places])
            same = pc.and_(same, pc.less_equal(count, 1))
        if not pc.all(same).as_py():
            values, rows = values.filter(same), rows.filter(same)
        return rows, pa.RecordBatch.from_arrays(self._convert(values).flatten(), schema=self._schema)

    def _both_ways(self, bodies: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """What these bodies are, and that as bodies. Raises `ValueError` where one of them cannot be read."""
        try:
            found = self._library.array_to_record_batch(bodies)
            return found, self._library.record_batch_to_array(found)
        except BaseException as error:  # noqa: BLE001 -- see `_PANIC`
            _refuse(error)
            raise ValueError("not to be read") from None

    def _decodable(self, body: bytes | None) -> bytes | None:
        if body is not None:
            try:
                self._class.FromString(body)
            except self._undecodable:
                return None
        return body


def _refuse(error: BaseException) -> None:
    """Raise what is not an error of the library about what it was given."""
    if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
        raise error


class _Reading:
    """Finds what converts the fields of the columns, and which of them are members of a `oneof`. Raises `NotRead`."""

    def __init__(self) -> None:
        self.choices: list[tuple[Path, list[int]]] = []
        self._within: list[str] = []

    def columns(
        self, message: Descriptor, type_: pa.StructType, path: Path, *, leftover: bool, alone: bool = True
    ) -> Convert:
        """What converts a message; `path` is where it stands, `alone` that it is in no list."""
        known = {field.name: place for place, field in enumerate(_in_order(message))}
        names = {field.name for field in type_}
        if not leftover and known.keys() - names:
            raise NotRead
        for one in message.oneofs:
            if len(one.fields) > 1 and names & {field.name for field in one.fields}:
                if not alone:
                    raise NotRead
                self.choices.append((path, [known[field.name] for field in one.fields]))
        self._within.append(message.full_name)
        parts: list[tuple[int, Convert] | None] = []
        for column in type_:
            field, place = message.fields_by_name.get(column.name), known.get(column.name)
            if field is None or place is None:
                parts.append(None)
                continue
            inner = {"path": (*path, place), "leftover": leftover, "alone": alone and not field.is_repeated}
            parts.append((place, self._field(field, column.type, **inner)))
        self._within.pop()
        return struct(parts, type_)

    def _field(self, field: FieldDescriptor, type_: pa.DataType, **inner: Any) -> Convert:
        if field.has_default_value or field.type == field.TYPE_GROUP:
            raise NotRead
        if not field.is_repeated:
            return self._value(field, type_, **inner)
        if not types.is_list(type_):
            raise NotRead
        return list_(self._value(field, type_.value_type, **inner), type_)

    def _value(self, field: FieldDescriptor, type_: pa.DataType, **inner: Any) -> Convert:
        message = field.message_type
        if field.enum_type is not None:
            return _enum(field.enum_type, type_)
        if message is None:
            return _direct(_NAMES.get(field.type, ""), type_)
        if entry(field):
            raise NotRead
        if plain_message(message) is None:
            if not types.is_struct(type_) or has_known_name(message) or message.full_name in self._within:
                raise NotRead
            return self.columns(message, type_, **inner)
        if message.full_name not in _WRAPPERS:
            raise NotRead
        if message.full_name != _WRAPPERS[0]:
            return _direct(_NAMES[message.fields_by_name["value"].type], type_)
        if not types.is_timestamp(type_) or not type_.tz:
            raise NotRead
        return cast(type_)


def _direct(kind: str, type_: pa.DataType) -> Convert:
    if not any(test(type_) for test in _DIRECT.get(kind, ())):
        raise NotRead
    return cast(type_)


def _enum(enum: EnumDescriptor, type_: pa.DataType) -> Convert:
    if enum.is_closed:
        raise NotRead
    if types.is_int32(type_) or types.is_int64(type_):
        return cast(type_)
    if not types.is_string(type_):
        raise NotRead
    names = symbols(enum)

    def named(values: pa.Array) -> pa.Array:
        numbers = values.dictionary_encode()
        texts = [
            None if number is None else names.get(number) or str(number) for number in numbers.dictionary.to_pylist()
        ]
        return pa.array(texts, pa.string()).take(numbers.indices)

    return named


def _in_order(message: Descriptor) -> list[FieldDescriptor]:
    """The fields as `ptars` has them: by their numbers."""
    return sorted(message.fields, key=lambda field: field.number)


def _check_files(file: FileDescriptor) -> None:
    """Refuse editions, of which `ptars` knows none."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    left, seen = [file], {file.name}
    while left:
        one = left.pop()
        proto = FileDescriptorProto()
        one.CopyToProto(proto)
        if proto.syntax not in ("", "proto2", "proto3"):
            raise NotRead
        left.extend(each for each in one.dependencies if each.name not in seen)
        seen.update(each.name for each in one.dependencies)


def _count(message: Descriptor, count: list[int], within: tuple[str, ...]) -> None:
    """Refuse a type that is costly to read, whatever the columns."""
    if len(within) > _DEPTH or message.GetOptions().message_set_wire_format:
        raise NotRead
    for field in message.fields:
        count[0] += 1
        if count[0] > _COLUMNS or field.number > _LARGEST:
            raise NotRead
        inner = field.message_type
        if (parts := entry(field)) and parts[1].message_type is not None:  # it gives up where an entry has no value
            raise NotRead
        if inner is not None and inner.full_name not in within:
            _count(inner, count, (*within, message.full_name))
