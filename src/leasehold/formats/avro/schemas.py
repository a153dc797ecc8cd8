"""A schema of Avro, as somebody else wrote it: from its JSON text to what a decoder is made of.

Owns what of a schema counts: its types, its logical types, and the fewest bytes that a value of each takes. `fastavro`
reads the text, finds the names and refuses other texts; a logical type that Avro does not know, or that does not
go with its type, is passed over, as the specification has it. Layout: Apache Avro 1.12, "Schema Declaration".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leasehold.errors import ConfigError, MissingDependency
from leasehold.printable import printable, shortened

_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1, "enum": 1}
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
_SHOWN = 200
_SINGLE_OBJECT = b"\xc3\x01"


@dataclass(slots=True, eq=False)
class Node:
    """A type of a schema. Named types that hold themselves make circles of nodes.

    `logical` is its logical type, `""` without one; `precision` and `scale` are a decimal's, `size` is a fixed's.
    `least` is the fewest bytes that a value takes.
    """

    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: dict[str, Node] = field(default_factory=dict)
    items: Node | None = None
    branches: tuple[Node, ...] = ()
    least: int = 0


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


def read_schema(text: str) -> AvroSchema:
    """The schema of this JSON text. Raises `ConfigError` for another text, `MissingDependency` without `fastavro`."""
    try:
        from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
    except ImportError as error:
        raise MissingDependency("reading Avro", "avro") from error
    try:
        parsed: Any = parse_schema(json.loads(text))
        canonical = to_parsing_canonical_form(parsed)
        nodes = _Nodes()
        root = nodes.of(parsed)
        return AvroSchema(root, nodes.counted, bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO")), parsed)
    except Exception as error:  # noqa: BLE001 -- of a parser that raises what it will, on what others wrote
        said = printable(shortened(f"{type(error).__name__}: {error}", _SHOWN))
        shown = printable(shortened(text, _SHOWN))
        remedy = "Give the schema that the bodies are written by, as its .avsc file has it"
        raise ConfigError("avro_schema", shown, f"not a schema of Avro ({said})", remedy) from None


class _Nodes:
    """Makes nodes of what `fastavro` has parsed: a named type stands whole where it is first met, by name elsewhere."""

    def __init__(self) -> None:
        self.counted = False
        self._named: dict[str, Node] = {}
        self._open: set[str] = set()

    def of(self, parsed: Any) -> Node:
        if isinstance(parsed, list):
            branches = tuple(map(self.of, parsed))
            if not branches:
                raise ValueError("a union without branches")
            return Node("union", branches=branches, least=1 + min(one.least for one in branches))
        if isinstance(parsed, str):
            if parsed not in self._named:
                return Node(parsed, least=_LEAST[parsed])
            self.counted |= parsed in self._open
            return self._named[parsed]
        kind = parsed["type"]
        if not isinstance(kind, str):  # a type within a type
            return self.of(kind)
        if kind not in ("array", "map", "record", "error", "enum", "fixed"):
            return self._logical(self.of(kind), parsed) if kind not in self._named else self.of(kind)
        if kind in ("array", "map"):
            items = self.of(parsed["items" if kind == "array" else "values"])
            self.counted |= not items.least
            return Node(kind, items=items, least=1)
        return self._of_name(kind, parsed)

    def _of_name(self, kind: str, parsed: Mapping[str, Any]) -> Node:
        node = self._named[parsed["name"]] = Node("record" if kind == "error" else kind)
        if kind == "enum":
            node.symbols, node.least = tuple(parsed["symbols"]), _LEAST["enum"]
        elif kind == "fixed":
            node.size = node.least = int(parsed["size"])
            if node.size < 0:
                raise ValueError(f"a fixed of {node.size} bytes")
            self._logical(node, parsed)
        else:
            self._open.add(parsed["name"])
            node.fields = {one["name"]: self.of(one["type"]) for one in parsed["fields"]}
            self._open.discard(parsed["name"])
            if len(node.fields) != len(parsed["fields"]):
                raise ValueError(f"the record {parsed['name']} has a field twice")
            node.least = sum(one.least for one in node.fields.values())
        return node

    def _logical(self, node: Node, parsed: Mapping[str, Any]) -> Node:
        """The node with the logical type that is stated of it, where the two go together."""
        stated = parsed.get("logicalType")
        if not isinstance(stated, str) or node.kind not in _LOGICAL.get(stated, ()):
            return node
        if node.kind == "fixed" and node.size != _SIZES.get(stated, node.size):
            return node
        if stated == "decimal":
            precision, scale = parsed.get("precision"), parsed.get("scale", 0)
            if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
                return node
            node.precision, node.scale = precision, scale
        node.logical = stated
        return node
