"""What the schema that Kafka Connect writes beside a value says of its types: JSON text to types.

Owns the names by which Connect and Debezium say what a number, a text or bytes stand for ("semantic types" in
Debezium's documentation), and the form of a schema in JSON, which is that of Connect's `JsonConverter`. A schema may
come from anybody: what is not understood of it counts as a type without a name, and never raises. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leasehold.formats.typed.types import MOST_SCALE, ValueType

BITS = "io.debezium.data.Bits"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
LOGICAL = {
    "org.apache.kafka.connect.data.Date": ("int", "date"),
    "org.apache.kafka.connect.data.Time": ("int", "time-millis"),
    "org.apache.kafka.connect.data.Timestamp": ("long", "local-timestamp-millis"),
    "io.debezium.time.Date": ("int", "date"),
    "io.debezium.time.Time": ("int", "time-millis"),
    "io.debezium.time.MicroTime": ("long", "time-micros"),
    "io.debezium.time.NanoTime": ("long", "time-nanos"),
    "io.debezium.time.Timestamp": ("long", "local-timestamp-millis"),
    "io.debezium.time.MicroTimestamp": ("long", "local-timestamp-micros"),
    "io.debezium.time.NanoTimestamp": ("long", "local-timestamp-nanos"),
}
"""The whole numbers that are a date or a time, as Avro calls these: their kind and their logical type. None of them
says a zone: Debezium writes a time with one as text."""
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_KINDS = {
    **dict.fromkeys(("int8", "int16", "int32"), "int"),
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
    "array": "array",
    "map": "map",
    "struct": "record",
}
_LONGEST = 10  # characters of a parameter that is a number
_DEPTH = 64
_LARGEST = 1 << 20
"""Characters of a schema: those that were read are kept."""


@dataclass(slots=True, eq=False)
class ConnectType(ValueType):
    """A type of a schema of Connect.

    name    what it stands for, `""` without one
    fields  of a record
    items   of an array or a map
    """

    name: str = ""
    fields: Mapping[str, ConnectType] = field(default_factory=dict)
    items: ConnectType | None = None


OPAQUE = ConnectType("")
"""A type of which nothing is said that can be understood."""


def read_type(text: str | bytes) -> ConnectType | None:
    """The type that this JSON text states; None where it is no schema of Connect."""
    if len(text) > _LARGEST:
        return None
    try:
        stated = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _type(stated, 0) if isinstance(stated, dict) else None


def _type(stated: Any, depth: int) -> ConnectType:
    if not isinstance(stated, dict) or depth > _DEPTH:
        return OPAQUE
    kind, name = _KINDS.get(_text(stated, "type"), ""), _text(stated, "name")
    made = ConnectType(kind, name=name)
    if kind == "record" and isinstance(stated.get("fields"), list):
        parts = [one for one in stated["fields"] if isinstance(one, dict)]
        made.fields = {_text(one, "field"): _type(one, depth + 1) for one in parts}
    elif kind in ("array", "map"):
        made.items = _type(stated.get("items" if kind == "array" else "values"), depth + 1)
    elif name == _DECIMAL and kind == "bytes":
        scale = _parameter(stated, "scale")
        if scale is not None and -MOST_SCALE <= scale <= MOST_SCALE:
            made.scale, made.logical = scale, "decimal"
    elif name == BITS and kind == "bytes":
        made.precision, made.logical = _parameter(stated, "length") or 0, "bits"
    elif kind and LOGICAL.get(name, ("", ""))[0] == kind:
        made.logical = LOGICAL[name][1]
    return made


def _text(stated: Mapping[str, Any], name: str) -> str:
    value = stated.get(name)
    return value if isinstance(value, str) else ""


def _parameter(stated: Mapping[str, Any], name: str) -> int | None:
    """A parameter that is a number, which Connect writes as text."""
    return number_of(stated.get("parameters"), name)


def number_of(parameters: Any, name: str) -> int | None:
    """A number among these parameters; None where there is none."""
    value = parameters.get(name) if isinstance(parameters, dict) else None
    try:
        return int(value) if isinstance(value, str) and len(value) < _LONGEST else None
    except ValueError:
        return None
