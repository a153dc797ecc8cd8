"""Random schemas of Protobuf, the columns of their types, and messages of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

from tests.formats.protobuf_schemas import message_class, proto

AT = pa.timestamp("us", "UTC")
KINDS = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int32": pa.int32(),
    "sint64": pa.int64(),
    "uint32": pa.int64(),
    "fixed32": pa.int64(),
    "sfixed64": pa.int64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "Status": pa.string(),
    "google.protobuf.Timestamp": AT,
    "google.protobuf.Int64Value": pa.int64(),
    "google.protobuf.StringValue": pa.string(),
}
"""Columns that are of the type of the field."""


class Drawn:
    """A schema of random fields, the columns of their types, and values."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        inner = [self._field(f"i{number}", deep=True) for number in range(dice.randrange(1, 4))]
        self._inner = {name: kind for name, kind, _, _ in inner}
        self._leg = pa.struct([(name, type_) for name, _, _, type_ in inner])
        self._legs: list[str] = []
        fields = [self._field(f"f{number}") for number in range(dice.randrange(1, 7))]
        choice = "oneof o { int32 a = 21; string b = 22; Inner c = 23; }" if dice.random() < 0.4 else ""
        self._fields = {name: kind for name, kind, _, _ in fields} | ({"a": "int32", "b": "string"} if choice else {})
        more = "message Inner {" + "".join(f"{stated} = {n};" for n, (_, _, stated, _) in enumerate(inner, 1)) + "}"
        self.text = proto(*(stated for _, _, stated, _ in fields), *([choice] if choice else []), more=more)
        self.columns = pa.schema([(name, type_) for name, _, _, type_ in fields])
        if choice:
            self.columns = self.columns.append(pa.field("b", pa.string()))

    def _field(self, name: str, *, deep: bool = False) -> tuple[str, str, str, pa.DataType]:
        """Its name, its kind, how it is stated, and the type of its column."""
        kind = self._dice.choice([*KINDS, *([] if deep else ["Inner", "Inner"])])
        type_ = self._leg if kind == "Inner" else KINDS[kind]
        how = self._dice.choice(("", "", "optional ", "repeated "))
        return name, f"{how}{kind}", f"{how}{kind} {name}", pa.list_(type_) if how == "repeated " else type_

    def body(self) -> bytes:
        message = message_class(self.text)()
        for name, kind in self._fields.items():
            if self._dice.random() < 0.7:
                self._set(message, name, kind)
        body: bytes = message.SerializeToString()
        return body

    def _set(self, message: Any, name: str, kind: str) -> None:
        if kind.startswith("repeated "):
            for _ in range(self._dice.randrange(3)):
                self._append(getattr(message, name), kind.removeprefix("repeated "))
            return
        kind = kind.removeprefix("optional ")
        if kind == "Inner" or "." in kind:
            self._fill(getattr(message, name), kind)
        else:
            setattr(message, name, self._value(kind))

    def _append(self, into: Any, kind: str) -> None:
        if kind == "Inner" or "." in kind:
            self._fill(into.add(), kind)
        else:
            into.append(self._value(kind))

    def _fill(self, message: Any, kind: str) -> None:
        message.SetInParent()
        if kind == "Inner":
            for name, inner in self._inner.items():
                if self._dice.random() < 0.7:
                    self._set(message, name, inner)
        elif kind.endswith("Timestamp"):
            message.seconds, message.nanos = self._dice.randrange(-(10**10), 10**10), self._dice.choice((0, 5000, 7))
        else:
            message.value = self._value("string" if kind.endswith("StringValue") else "sint64")

    def _value(self, kind: str) -> Any:
        dice = self._dice
        match kind:
            case "double" | "float":
                return dice.choice((0.0, -0.0, 1.5, float("inf"), 0.1))
            case "bool":
                return dice.random() < 0.5
            case "string":
                return dice.choice(("", "abc", "é" * 50))
            case "bytes":
                return dice.randbytes(dice.randrange(4))
            case "Status":
                return dice.choice((0, 1, 2, 7, -1))
            case "int32":
                return dice.choice((0, 1, -1, 2**31 - 1, -(2**31)))
            case "uint32" | "fixed32":
                return dice.choice((0, 1, 2**32 - 1))
        return dice.choice((0, 1, -1, 2**63 - 1, -(2**63)))
