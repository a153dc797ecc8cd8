"""Bodies in Avro to rows, one at a time: every rule of the reader, and every reason of a reject.

Owns what a body must be: one value by the schema that wrote it, and nothing behind it. The header of a single object
may stand before it: two bytes, and the fingerprint of the schema, as Avro's specification has it. Fields go to the
columns of their names. One that no column takes is dropped, or kept as JSON text for the rescue column, unless it is
null: null and missing are one. A column without a field is null.

What reads a body is made once, of the schema and the columns: a function for each type (`decoding`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types

from leasehold.formats.avro import decoding
from leasehold.formats.avro.decoding import Build, CountedBody, Read
from leasehold.formats.avro.schemas import WITH_SCALE, AvroSchema, Node
from leasehold.formats.misfits import NO_BODY, Misfit, type_name
from leasehold.formats.typed.texts import array_text, json_text, map_text, object_text
from leasehold.formats.typed.values import decimal_with_scale, refusal, taken

_RAW: dict[str, Read] = {
    "null": decoding.read_null,
    "boolean": decoding.read_boolean,
    "int": decoding.read_int,
    "long": decoding.read_long,
    "float": decoding.read_float,
    "double": decoding.read_double,
    "bytes": decoding.read_bytes,
    "string": decoding.read_string,
}


class AvroRows:
    """Reads bodies that `writer` has written into the columns of `schema`."""

    def __init__(self, schema: pa.Schema, writer: AvroSchema, *, rescue: bool, cut: bool) -> None:
        self._nothing = [None] * len(schema)
        self._counted = writer.counted
        self._header = writer.header
        self._read = _Values(cut).of_columns(writer.root, schema)
        self._unknown = _Rescued().of(writer.root, pa.struct(list(schema))) if rescue else None

    def read(self, body: bytes | None) -> tuple[Sequence[Any], str | None, str | None]:
        """The values of the columns, what the rescue column keeps, and the reason if the body is rejected."""
        if body is None:
            return self._nothing, None, NO_BODY
        start = len(self._header) if body.startswith(self._header) else 0
        try:
            row, end = self._read(CountedBody(body) if self._counted else body, start)
            if end != len(body):
                raise Misfit(f"has {len(body) - end} more bytes than a value of its schema")
            unknown = self._unknown(CountedBody(body) if self._counted else body, start)[0] if self._unknown else None
        except Misfit as error:
            return self._nothing, None, error.reason
        except IndexError:
            return self._nothing, None, decoding.ended().reason
        except RecursionError:
            return self._nothing, None, "the body is nested too deep to be read"
        return row, unknown, None


class _Texts:
    """Reads values as JSON text, null as None; or reads over them, where `kept` is false.

    Each record has one function: a type that holds itself is read by the one that is being made.
    """

    def __init__(self, *, kept: bool) -> None:
        self._kept = kept
        self._records: dict[int, Read] = {}

    def of(self, node: Node) -> Read:
        if node.kind == "record":
            if id(node) not in self._records:
                self._records[id(node)] = lambda body, at: self._records[id(node)](body, at)
                self._records[id(node)] = self._record(node)
            return self._records[id(node)]
        if node.kind == "union":
            return decoding.union([self.of(one) for one in node.branches])
        if node.items is not None:
            item, least = self.of(node.items), node.items.least
            if node.kind == "array":
                return decoding.array(item, least, self._made_by(array_text))
            return decoding.map_(item, least, map_text) if self._kept else decoding.pairs(item, least, _nothing)
        raw = _leaf(node)
        return _then(raw, json_text(node)) if self._kept and node.kind != "null" else raw

    def _record(self, node: Node) -> Read:
        names = list(node.fields)
        fields = [(name, self.of(one)) for name, one in node.fields.items()]
        return _record(node, fields, self._made_by(lambda texts: object_text(zip(names, texts, strict=True)) or "{}"))

    def _made_by(self, text: Build) -> Build:
        return text if self._kept else lambda values: None


class _Values:
    """Reads values into columns."""

    def __init__(self, cut: bool) -> None:
        self._cut = cut
        self._over, self._text = _Texts(kept=False), _Texts(kept=True)

    def of_columns(self, node: Node, schema: pa.Schema) -> Read:
        """Reads the columns of a schema, as a list. Another type than a record is refused."""
        row = pa.struct(list(schema))
        if node.kind == "union":
            return decoding.union([self.of_columns(one, schema) for one in node.branches])
        if node.kind != "record":
            return _then(self._over.of(node), refusal(node, "STRUCT"))
        return self._record(node, row, _picked([_place(node, field.name) for field in row]))

    def of(self, node: Node, type_: pa.DataType) -> Read:
        if node.kind == "union":
            return decoding.union([self.of(one, type_) for one in node.branches])
        if node.kind == "null":
            return decoding.read_null
        if node.logical == WITH_SCALE and not types.is_nested(type_):
            return self._with_scale(node, type_)
        if types.is_string(type_) and (node.items is not None or node.kind == "record"):
            return self._text.of(node)
        if node.kind == "record" and types.is_struct(type_):
            names = [field.name for field in type_]
            picked = _picked([_place(node, name) for name in names])
            return self._record(node, type_, lambda values: dict(zip(names, picked(values), strict=True)))
        if node.items is not None:
            return self._of_items(node, node.items, type_)
        if node.kind == "record":
            return _then(self._over.of(node), refusal(node, type_name(type_)))
        convert = taken(node, type_, cut=self._cut)
        return _leaf(node) if convert is None else _then(_leaf(node), convert)

    def _with_scale(self, node: Node, type_: pa.DataType) -> Read:
        """Of a record that is a decimal."""
        parts = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
        picked = _picked([_place(node, field.name) for field in parts])

        def number(values: list[Any]) -> Any:
            scale, raw = picked(values)
            return decimal_with_scale(scale, raw, type_, cut=self._cut)

        return self._record(node, parts, number)

    def _record(self, node: Node, type_: pa.DataType, build: Build) -> Read:
        known = {field.name: field.type for field in type_}
        fields = [
            (name, self.of(one, known[name]) if name in known else self._over.of(one))
            for name, one in node.fields.items()
        ]
        return _record(node, fields, build)

    def _of_items(self, node: Node, items: Node, type_: pa.DataType) -> Read:
        if node.kind == "array" and types.is_list(type_):
            return decoding.array(self.of(items, type_.value_type), items.least, list)
        if node.kind == "map" and types.is_map(type_):
            return decoding.map_(self.of(items, type_.item_type), items.least, list)
        return _then(self._over.of(node), refusal(node, type_name(type_)))


class _Rescued:
    """Reads what no column takes of a value, as JSON text; None if there is nothing."""

    def __init__(self) -> None:
        self._over, self._text = _Texts(kept=False), _Texts(kept=True)

    def of(self, node: Node, type_: pa.DataType) -> Read:
        if node.kind == "union":
            return decoding.union([self.of(one, type_) for one in node.branches])
        if node.kind == "record" and types.is_struct(type_):
            return self._record(node, {field.name: field.type for field in type_})
        if node.kind == "array" and types.is_list(type_):
            assert node.items is not None
            return decoding.array(self.of(node.items, type_.value_type), node.items.least, _rescued_items)
        if node.kind == "map" and types.is_map(type_):
            assert node.items is not None
            return decoding.map_(self.of(node.items, type_.item_type), node.items.least, object_text)
        return _then(self._over.of(node), _nothing)

    def _record(self, node: Node, columns: dict[str, pa.DataType]) -> Read:
        fields = [
            (name, self.of(one, columns[name]) if name in columns else self._text.of(one))
            for name, one in node.fields.items()
        ]
        names = list(node.fields)
        return _record(node, fields, lambda texts: object_text(zip(names, texts, strict=True)))


def _record(node: Node, fields: Sequence[tuple[str, Read]], build: Build) -> Read:
    read = decoding.record(fields, build)
    return decoding.nested(read) if node.recursive else read


def _leaf(node: Node) -> Read:
    """Reads a value of a type that holds no others: its number, its text or its bytes."""
    if node.kind == "enum":
        return decoding.enum(node.symbols)
    return decoding.fixed(node.size) if node.kind == "fixed" else _RAW[node.kind]


def _then(read: Read, convert: Callable[[Any], Any]) -> Read:
    def converted(body: bytes, at: int) -> tuple[Any, int]:
        value, at = read(body, at)
        return convert(value), at

    return converted


def _nothing(value: Any) -> None:
    """Nothing is left over of a value that a column has."""


def _place(node: Node, name: str) -> int | None:
    """Which of the fields has this name."""
    return list(node.fields).index(name) if name in node.fields else None


def _picked(places: Sequence[int | None]) -> Build:
    return lambda values: [None if place is None else values[place] for place in places]


def _rescued_items(items: list[str | None]) -> str | None:
    return array_text(items) if any(items) else None
