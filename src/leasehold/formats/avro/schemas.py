"""A schema of Avro, as somebody else wrote it: from its JSON text to what a decoder is made of.

Owns what of a schema counts: its types, its logical types, and the fewest bytes that a value of each takes. `fastavro`
reads the text, finds the names and refuses other texts; a logical type that Avro does not know, or that does not go
with its type, is passed over, as the specification has it. Layout: Apache Avro 1.12, "Schema Declaration".

A schema may come from anybody. So one is refused by which a short body could cost much: nested deeper than `DEPTH`,
with many parts that take no bytes, with long symbols, or with decimals of more digits than any number has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leasehold.errors import ConfigError, MissingDependency
from leasehold.formats.connect.types import BITS, LOGICAL, VARIABLE_DECIMAL, number_of
from leasehold.formats.typed.types import ValueType
from leasehold.printable import printable, shortened
from leasehold.registries.contract import Files

DEPTH = 64
"""How many types may be within each other; also how often records of a type that holds itself may be, in a body."""

_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
"""The fewest bytes of a value; arrays and maps have one for their end, unions one for the branch."""
_LOGICAL = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
    "decimal": ("bytes", "fixed"),
}
_SIZES = {"uuid": 16, "duration": 12}  # of a fixed that is one
_MOST_DIGITS = 1_000  # of a decimal
_MOST_IDLE = 100
"""How many parts of a value may take no bytes."""
_LONGEST = 255  # characters of a symbol
_LARGEST = 1 << 20  # bytes of a fixed
_SINGLE_OBJECT = b"\xc3\x01"
_SHOWN = 200


@dataclass(slots=True, eq=False)
class Node(ValueType):
    """A type of a schema. Named types that hold themselves make circles of nodes, and are `recursive`.

    `size` is a fixed's. `least` is the fewest bytes that a value takes, `idle` how many of its parts take none.
    """

    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: dict[str, Node] = field(default_factory=dict)
    items: Node | None = None
    branches: tuple[Node, ...] = ()
    recursive: bool = False
    least: int = 0
    idle: int = 0


WITH_SCALE = "decimal-with-scale"
"""The logical type of a record that Debezium writes for a decimal: with the fields `scale` and `value`."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema that was read: its type, its fingerprint, as single objects carry it, and what `fastavro` writes by.

    `counted`: a type holds itself, or there are lists of items that take no bytes: a short body may ask for much.
    """

    root: Node
    counted: bool
    fingerprint: bytes
    parsed: Any

    @property
    def header(self) -> bytes:
        """What stands before a value that is a single object."""
        return _SINGLE_OBJECT + self.fingerprint


def read_schema(text: str, files: Files = ()) -> AvroSchema:
    """The schema of this JSON text, which may refer to types of `files`.

    Raises `ConfigError` for another text, `MissingDependency` without `fastavro`.
    """
    try:
        from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
    except ImportError as error:
        raise MissingDependency("reading Avro", "avro") from error
    try:
        named: dict[str, Any] = {}
        nodes = _Nodes()
        for _, one in files:
            nodes.of(parse_schema(json.loads(one), named_schemas=named), 0)
        parsed: Any = parse_schema(json.loads(text), named_schemas=named)
        canonical = to_parsing_canonical_form(parsed)
        root = nodes.of(parsed, 0)
        nodes.weigh()
        if root.kind != "record" and not any(one.kind == "record" for one in root.branches):
            raise ValueError("a body is a record, whose fields are columns")
        return AvroSchema(root, nodes.counted, bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO")), parsed)
    except Exception as error:  # noqa: BLE001 -- of a parser that raises what it will, on what others wrote
        said = printable(shortened(f"{type(error).__name__}: {error}", _SHOWN))
        shown = printable(shortened(text, _SHOWN))
        remedy = "Give the schema that the bodies are written by, as its .avsc file has it"
        raise ConfigError("writer_schema", shown, f"not a schema of Avro that can be read ({said})", remedy) from None


class _Nodes:
    """Makes nodes of what `fastavro` has parsed: a named type stands whole where it is first met, by name elsewhere."""

    def __init__(self) -> None:
        self._all: list[Node] = []
        self._named: dict[str, Node] = {}
        self._open: list[Node] = []

    def of(self, parsed: Any, depth: int) -> Node:
        if depth > DEPTH:
            raise ValueError(f"types are nested more than {DEPTH} deep")
        if isinstance(parsed, list):
            return self._union([self.of(one, depth + 1) for one in parsed])
        kind = parsed if isinstance(parsed, str) else parsed["type"]
        if kind in self._named:
            found = self._named[kind]
            if found in self._open:
                for one in self._open[self._open.index(found) :]:
                    one.recursive = True
            return found
        if kind in ("record", "error", "enum", "fixed"):
            return self._of_name(kind, parsed, depth)
        if kind in ("array", "map"):
            return self._new(Node(kind, items=self.of(parsed["items" if kind == "array" else "values"], depth + 1)))
        node = self._new(Node(kind, least=_LEAST[kind]))
        return node if isinstance(parsed, str) else _with_logical_type(node, parsed)

    @property
    def counted(self) -> bool:
        """As it is there."""
        return any(one.recursive or (one.items is not None and not one.items.least) for one in self._all)

    def weigh(self) -> None:
        """Find the fewest bytes of each type, and its parts without any: of types in circles that takes turns."""
        for _ in range(DEPTH):
            for one in self._all:
                _weigh(one)
                if one.idle > _MOST_IDLE:
                    raise ValueError(f"a value has more than {_MOST_IDLE} parts that take no bytes")

    def _new(self, node: Node) -> Node:
        self._all.append(node)
        return node

    def _union(self, branches: list[Node]) -> Node:
        kinds = [one.kind for one in branches if one.kind not in ("record", "enum", "fixed")]
        if not branches or "union" in kinds or len(kinds) != len(set(kinds)):
            raise ValueError("a union without branches, with another union, or with a type twice")
        return self._new(Node("union", branches=tuple(branches)))

    def _of_name(self, kind: str, parsed: Mapping[str, Any], depth: int) -> Node:
        node = self._named[parsed["name"]] = self._new(Node("record" if kind == "error" else kind))
        if kind == "enum":
            node.symbols, node.least = tuple(parsed["symbols"]), 1
            if any(len(symbol) > _LONGEST for symbol in node.symbols):
                raise ValueError(f"a symbol of {parsed['name']} is longer than {_LONGEST} characters")
        elif kind == "fixed":
            node.size = node.least = parsed["size"]
            if type(node.size) is not int or not 0 <= node.size <= _LARGEST:
                raise ValueError(f"{parsed['name']} is a fixed of {parsed['size']} bytes")
            _with_logical_type(node, parsed)
        else:
            self._open.append(node)
            node.fields = {one["name"]: self.of(one["type"], depth + 1) for one in parsed["fields"]}
            self._open.pop()
            if len(node.fields) != len(parsed["fields"]):
                raise ValueError(f"the record {parsed['name']} has a field twice")
            kinds = [node.fields[name].kind if name in node.fields else "" for name in ("scale", "value")]
            if parsed.get("connect.name") == VARIABLE_DECIMAL and kinds == ["int", "bytes"]:
                node.logical = WITH_SCALE
        return node


def _weigh(node: Node) -> None:
    if node.kind == "record":
        node.least = min(_LARGEST, sum(one.least for one in node.fields.values()))
        node.idle = min(_LARGEST, int(not node.least) + sum(one.idle for one in node.fields.values()))
    elif node.branches:
        node.least = 1 + min(one.least for one in node.branches)
        node.idle = max(one.idle for one in node.branches)
    elif node.items is not None:
        node.least = 1
    else:
        node.idle = int(not node.least)


def _with_logical_type(node: Node, parsed: Mapping[str, Any]) -> Node:
    """The node with the logical type that is stated of it, where the two go together.

    Kafka Connect's converter states times and bits of Debezium by its own names for them, and not by Avro's.
    """
    stated = parsed.get("logicalType")
    kind, logical = LOGICAL.get(str(parsed.get("connect.name")), ("", ""))
    if stated is None and kind == node.kind:
        node.logical = logical
    if parsed.get("connect.name") == BITS and node.kind == "bytes":
        node.logical, node.precision = "bits", number_of(parsed.get("connect.parameters"), "length") or 0
    if not isinstance(stated, str) or node.kind not in _LOGICAL.get(stated, ()):
        return node
    if node.kind == "fixed" and node.size != _SIZES.get(stated, node.size):
        return node
    if stated == "decimal":
        precision, scale = parsed.get("precision"), parsed.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
            return node
        if precision > _MOST_DIGITS:
            raise ValueError(f"a decimal of {shortened(str(precision), 20)} digits")
        node.precision, node.scale = precision, scale
    node.logical = stated
    return node
