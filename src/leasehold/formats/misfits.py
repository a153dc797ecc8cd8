"""Words for what is wrong with a body or another value, and for the types it does not fit.

Owns every reason of a reject. Promises that a reason is short and printable whatever the body holds, names the
field by its path, and calls types what Spark's DDL calls them.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from leasehold.printable import printable, shortened

NO_BODY = "the event has no body"
NOT_UTF8 = "the body is not valid UTF-8"
NOT_AN_OBJECT = "the body is not a JSON object"
MORE_THAN_ONE = "the body is more than one JSON object"

_SHOWN = 40  # characters of a value or a name
_PATH = 200  # characters of a path
_NAMES = (
    (types.is_string, "STRING"),
    (types.is_binary, "BINARY"),
    (types.is_boolean, "BOOLEAN"),
    (types.is_int8, "TINYINT"),
    (types.is_int16, "SMALLINT"),
    (types.is_int32, "INT"),
    (types.is_int64, "BIGINT"),
    (types.is_float32, "FLOAT"),
    (types.is_float64, "DOUBLE"),
    (types.is_date32, "DATE"),
    (types.is_list, "ARRAY"),
    (types.is_struct, "STRUCT"),
    (types.is_map, "MAP"),
)


class Misfit(ValueError):
    """A value that its column cannot have. `what` tells of it; its path in a body grows on the way out of that."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path = ""

    def within(self, name: str | int) -> Misfit:
        """The same, seen from the object or array that holds the value."""
        step = f"[{name}]" if isinstance(name, int) else _cut(name)
        self.path = step + (self.path if not self.path or self.path.startswith("[") else f".{self.path}")
        return self

    @property
    def reason(self) -> str:
        """The reason of the reject."""
        path = shortened(self.path, _PATH)
        return f"the field {path} {self.what}" if path else f"the body {self.what}"


def type_name(type_: pa.DataType) -> str:
    """What Spark's DDL calls a type, without what is in it."""
    if types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if types.is_timestamp(type_):
        return "TIMESTAMP" if type_.tz else "TIMESTAMP_NTZ"
    return next((name for test, name in _NAMES if test(type_)), str(type_))


def shown(value: object) -> str:
    """A value of a body as a reason shows it: short, and printable."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f'"{_cut(value)}"' if type(value) is str else _cut(str(value))


def _cut(text: str) -> str:
    return printable(shortened(text, _SHOWN))
