"""JSON bodies to bodies in Avro, for who sends rows of files.

Owns which column each type of Avro is read into from JSON, and the promise that nothing is altered: what `fastavro` has
written is read back, and a row that comes out otherwise is refused. Refuses schemas that hold themselves, unions of
several types beside null, times of day and durations, by name.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
from fastavro import schemaless_writer

from leasehold.body_format import AVRO, BodyFormat
from leasehold.errors import ConfigError
from leasehold.formats.avro.schemas import Node, read_schema
from leasehold.formats.bodies import BodyReader
from leasehold.printable import printable, shortened

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
_SHOWN = 200  # characters of what `fastavro` says


class AvroWriter:
    """Writes JSON bodies by the schema of this text. Raises `ConfigError`, `MissingDependency`."""

    def __init__(self, text: str) -> None:
        self.text = text
        schema = read_schema(text)
        if schema.counted or schema.root.kind != "record":
            raise _not_written("a record that does not hold itself")
        columns = pa.schema([(name, _type(one, name)) for name, one in schema.root.fields.items()])
        self._parsed = schema.parsed
        self._json = BodyReader(columns)
        self._avro = BodyReader(columns, BodyFormat(format=AVRO, writer_schema=text))

    def write(self, bodies: pa.Array) -> tuple[pa.Array, int | None, str]:
        """The same bodies in Avro; or of the first that cannot be one, its place and the reason."""
        read = self._json.read(bodies)
        if read.reasons is not None:
            place = read.reasons.is_valid().index(True).as_py()
            return bodies, place, read.reasons[place].as_py()
        written: list[bytes] = []
        for row in read.columns.to_pylist():
            try:
                written.append(self._encoded(row))
            except Exception as error:  # noqa: BLE001 -- of a library that raises what it will, on a row of a file
                return bodies, len(written), printable(shortened(str(error), _SHOWN))
        found = pa.array(written, pa.binary())
        back = self._avro.read(found).columns
        for place, (row, other) in enumerate(zip(read.columns.to_pylist(), back.to_pylist(), strict=True)):
            if repr(row) != repr(other):
                name = next(name for name in row if repr(row[name]) != repr(other[name]))
                return bodies, place, f"the field {name} is {row[name]}, which the schema cannot hold as it is"
        return found, None, ""

    def _encoded(self, row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        schemaless_writer(out, self._parsed, {name: _value(value) for name, value in row.items()})
        return out.getvalue()


def _value(value: Any) -> Any:
    """A value as `fastavro` takes it: maps as dicts."""
    if isinstance(value, list) and value and all(isinstance(one, tuple) for one in value):
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
