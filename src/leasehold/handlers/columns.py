"""What becomes of a value in a column: which are refused, and as what the others come back.

Owns that a handler is given the same state whether it was made in the same batch or read from the table (`sinks`, where
NaN is null), and that a value which its column cannot have is told to who made it, and not to all of a batch. Arrow is
asked, which takes 3 us, but for texts and whole numbers that are plainly right.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from leasehold.handlers.contract import Columns

_LONGEST = 200  # characters of Arrow's own words


def columns_of(schema: pa.Schema) -> Columns:
    """The flat columns of a table, for `compute`."""
    return {field.name: _stored(field.type) for field in schema}


def _stored(type_: pa.DataType) -> Callable[[Any], Any]:
    exact = pa.types.is_integer(type_) or pa.types.is_date(type_)
    checked = partial(_checked, type_, exact)
    if pa.types.is_string(type_):
        return lambda value: value if type(value) is str and value.isascii() else checked(value)
    if pa.types.is_signed_integer(type_):
        least = -(2 ** (type_.bit_width - 1))
        return lambda value: value if type(value) is int and least <= value < -least else checked(value)
    return checked


def _checked(type_: pa.DataType, exact: bool, value: Any) -> Any:
    if value is None:
        return None
    try:
        stored = pa.scalar(value, type_).as_py()
        if exact and stored != value:
            raise ValueError(f"it would be cut to {stored}")  # Arrow does so without a word
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        said = str(error)[:_LONGEST]
        raise ValueError(f"{reprlib.repr(value)}, which is no value of type {type_}: {said}") from error
    return None if stored != stored else stored
