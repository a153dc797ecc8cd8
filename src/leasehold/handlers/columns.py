"""What becomes of a value that a handler gives for a column: whether it is refused, and as what it comes back.

Owns that a handler is given the same state whether it was made in the same batch or read from the table, and that a
value which its column cannot have is told to who made it, and not to all of a batch. `formats.python_values` has the
rules of types; texts and whole numbers that are plainly right are not looked at further.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from leasehold.formats.python_values import taken
from leasehold.handlers.contract import Columns


def columns_of(schema: pa.Schema) -> Columns:
    """The flat columns of a table, for `compute`."""
    return {field.name: _stored(field.type) for field in schema}


def _stored(type_: pa.DataType) -> Callable[[Any], Any]:
    checked = taken(type_)
    if pa.types.is_string(type_):
        return lambda value: value if type(value) is str and value.isascii() else checked(value)
    if pa.types.is_signed_integer(type_):
        least = -(2 ** (type_.bit_width - 1))
        return lambda value: value if type(value) is int and least <= value < -least else checked(value)
    return checked
