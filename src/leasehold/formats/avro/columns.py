"""Many bodies in Avro to columns at once, by `pyruhvro`, as far as it certainly says what `rows` says.

Owns the knowledge of where the two differ, and the proof that they do not:

1. It takes numbers that are too large for their type, bytes behind a value, and blocks that lie about their size: the
   proof finds them (`typed.columns`).
2. It does not look whether text is UTF-8: Arrow does.
3. It ends the process's thread for types that it does not know, and items that take no bytes cost it as much as their
   count says: it is given no such schema. It sees none of the logical types; Arrow makes dates and times of numbers.

All bodies go one by one where a column is of another type than its field, or a MAP; where the schema has bytes,
decimals or unions of several types, holds itself, or has lists of items that take no bytes; and where fields are left
over for the rescue column.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.formats.avro.schemas import AvroSchema, Node
from leasehold.formats.schema_headers import without_start
from leasehold.formats.shapes import Vouched
from leasehold.formats.typed.columns import Convert, NotRead, cast, list_, micros, struct, vouched, within
from leasehold.formats.typed.values import DAYS

_TEXT = 2**31
"""As much text as one column holds: beyond it the library ends its thread."""
_NODES = 1_000
"""A schema of more types than these, each counted where it stands, is read one by one."""
_READ = frozenset({"boolean", "int", "long", "float", "double", "string", "enum"})
_DIRECT = {
    "boolean": (types.is_boolean,),
    "int": (types.is_int32, types.is_int64),
    "long": (types.is_int64,),
    "float": (types.is_float32, types.is_float64),
    "double": (types.is_float64,),
    "string": (types.is_string,),
    "enum": (types.is_string,),
}
_FACTORS = {"millis": 1_000, "micros": 1}


def avro_columns(schema: pa.Schema, writer: AvroSchema, *, rescue: bool) -> AvroColumns | None:
    """What reads many bodies by the schema `writer` into these columns; None where that is not possible."""
    if find_spec("pyruhvro") is None:  # there is no wheel for every machine
        return None
    if writer.counted or writer.root.kind != "record":
        return None
    try:
        row = pa.struct(list(schema))
        if rescue and _leaves_over(writer.root, row):
            return None
        return AvroColumns(schema, _Physical(), writer, _struct(writer.root, row))
    except NotRead:
        return None


class AvroColumns:
    """Reads bodies with or without the `header` of a single object."""

    def __init__(self, schema: pa.Schema, physical: _Physical, writer: AvroSchema, convert: Convert) -> None:
        import pyruhvro

        self._schema, self._header, self._convert, self._library = schema, writer.header, convert, pyruhvro
        self._written, self._widest = json.dumps(physical.of(writer.root)), physical.widest

    def read(self, bodies: pa.Array) -> list[Vouched]:
        """What is surely good among these, with the rows that it is of."""
        rows = pa.array(range(len(bodies)), pa.int32())
        there = bodies.is_valid()
        headed = pc.fill_null(pc.starts_with(bodies, self._header), False)
        read: list[Vouched] = []
        for mask, start in ((pc.and_not(there, headed), 0), (headed, len(self._header))):
            mine = rows.filter(mask)
            if len(mine):
                values = without_start(bodies.filter(mask), start) if start else bodies.filter(mask)
                read += vouched(values, mine, self._attempt, _TEXT // self._widest)
        return read

    def _attempt(self, bodies: pa.Array, rows: pa.Array) -> Vouched:
        """Those that come out as they came in. Raises `ValueError` where one cannot be read, or fits no column."""
        found = self._library.deserialize_array(bodies.to_pylist(), self._written)
        found.validate(full=True)
        (again,) = self._library.serialize_record_batch(found, self._written, 1)
        same = pc.equal(again, bodies)
        if not pc.all(same).as_py():
            found, rows = found.filter(same), rows.filter(same)
        columns = self._convert(found.to_struct_array()).flatten()
        return rows, pa.RecordBatch.from_arrays(columns, schema=self._schema)


class _Physical:
    """The schema without names and logical types: what says the same of each byte. Raises `NotRead`.

    `widest` is how many bytes of text come of a byte at most: the longest symbol of an enum.
    """

    def __init__(self) -> None:
        self._count = 0
        self.widest = 1

    def of(self, node: Node) -> Any:
        self._count += 1
        if self._count > _NODES:
            raise NotRead
        name = f"N{self._count}"
        if node.kind == "record":
            fields = [{"name": f"f{number}", "type": self.of(one)} for number, one in enumerate(node.fields.values())]
            return {"type": "record", "name": name, "fields": fields}
        if node.items is not None:
            return {"type": node.kind, "items" if node.kind == "array" else "values": self.of(node.items)}
        if node.kind == "enum":
            self.widest = max([self.widest, *(len(symbol.encode()) for symbol in node.symbols)])
            return {"type": "enum", "name": name, "symbols": node.symbols}
        if inner := _or_null(node):
            return [self.of(one) if one is inner else "null" for one in node.branches]
        if node.kind not in _READ:
            raise NotRead
        return node.kind


def _or_null(node: Node) -> Node | None:
    """The type that a union has beside null, if it has these two."""
    others = [one for one in node.branches if one.kind != "null"]
    return others[0] if len(node.branches) == 2 and len(others) == 1 else None


def _leaves_over(node: Node, type_: pa.DataType) -> bool:
    """Whether there are fields that no column takes."""
    if inner := _or_null(node):
        return _leaves_over(inner, type_)
    if node.items is not None and types.is_list(type_):
        return _leaves_over(node.items, type_.value_type)
    if node.kind != "record" or not types.is_struct(type_):
        return False
    known = {field.name: field.type for field in type_}
    return any(name not in known or _leaves_over(one, known[name]) for name, one in node.fields.items())


def _converter(node: Node, type_: pa.DataType) -> Convert:
    """Raises `NotRead` where the column is of another type than the field."""
    if inner := _or_null(node):
        return _converter(inner, type_)
    if node.kind == "record" and types.is_struct(type_):
        return _struct(node, type_)
    if node.kind == "array" and node.items is not None and types.is_list(type_):
        return list_(_converter(node.items, type_.value_type), type_)
    if not node.logical or (node.logical == "uuid" and types.is_string(type_)) or types.is_int64(type_):
        if not any(test(type_) for test in _DIRECT.get(node.kind, ())):
            raise NotRead
        return cast(type_)
    if node.logical == "date" and types.is_date(type_):
        return lambda values: within(values, DAYS).cast(type_)
    zone, _, unit = node.logical.rpartition("-")
    if unit in _FACTORS and types.is_timestamp(type_) and (zone == "local-timestamp" or (zone and type_.tz)):
        if not zone.endswith("timestamp"):
            raise NotRead
        return micros(_FACTORS[unit], type_)
    raise NotRead


def _struct(node: Node, type_: pa.DataType) -> Convert:
    names = list(node.fields)
    return struct(
        [
            (names.index(field.name), _converter(node.fields[field.name], field.type)) if field.name in names else None
            for field in type_
        ],
        type_,
    )
