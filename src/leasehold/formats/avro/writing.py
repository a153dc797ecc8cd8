"""JSON bodies to bodies in Avro, for who sends rows of files.

Owns which column each type of Avro is read into from JSON; `typed.writing` has the promise that nothing is altered.
Refuses schemas that hold themselves, unions of several types beside null, times of day and durations, by name.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
from fastavro import schemaless_writer

from leasehold.body_format import AVRO, BodyFormat
from leasehold.errors import ConfigError
from leasehold.formats.avro.schemas import Node, read_schema
from leasehold.formats.typed.writing import TypedWriter, is_map
from leasehold.registries.contract import AVRO as KIND

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_AT, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")


class AvroWriter(TypedWriter):
    """Writes JSON bodies by the schema of this text. Raises `ConfigError`, `MissingDependency`."""

    kind, header = KIND, b""

    def __init__(self, text: str) -> None:
        self.text = text
        schema = read_schema(text)
        if schema.counted or schema.root.kind != "record":
            raise _not_written("a record that does not hold itself")
        columns = pa.schema([(name, _type(one, name)) for name, one in schema.root.fields.items()])
        self._parsed = schema.parsed
        super().__init__(columns, BodyFormat(format=AVRO, writer_schema=text), self._in_avro)

    def _in_avro(self, row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        schemaless_writer(out, self._parsed, {name: _value(value) for name, value in row.items()})
        return out.getvalue()


def _value(value: Any) -> Any:
    """A value as `fastavro` takes it: maps as dicts."""
    if isinstance(value, list) and is_map(value):
        return {name: _value(inner) for name, inner in value}
    if isinstance(value, list):
        return [_value(inner) for inner in value]
    return {name: _value(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def _type(node: Node, path: str) -> pa.DataType:
    if node.kind == "union":
        others = [one for one in node.branches if one.kind != "null"]
        if len(others) != 1:
            raise _not_written(f"of one type beside null, which {path} is not")
        return _type(others[0], path)
    if node.kind == "record":
        return pa.struct([(name, _type(one, f"{path}.{name}")) for name, one in node.fields.items()])
    if node.items is not None:
        item = _type(node.items, path)
        return pa.list_(item) if node.kind == "array" else pa.map_(pa.string(), item)
    if node.logical == "decimal" and node.precision <= 38:
        return pa.decimal128(node.precision, node.scale)
    if node.logical == "date":
        return pa.date32()
    if node.logical.startswith(("timestamp-", "local-timestamp-")):
        return _AT if node.logical.startswith("timestamp-") else _LOCAL
    if node.kind == "null" or node.logical not in ("", "uuid"):
        raise _not_written(f"of types that JSON has a form of, and {path} is {node.logical or node.kind}")
    return pa.string() if node.logical == "uuid" else _TYPES[node.kind]


def _not_written(rule: str) -> ConfigError:
    return ConfigError(
        "writer_schema", None, f"rows are written by a schema {rule}", "Write them by a program of yours"
    )
