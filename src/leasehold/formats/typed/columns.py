"""Many bodies at once to columns, by a library that is fast and is not taken at its word.

Owns what such readers share. What the library has read is written again, and only bodies that come out as they came in
are vouched for. One body that it cannot read fails all: they are halved until few are left, which are left out. A body
that is left out is not a bad one: the definition, which reads one body at a time, decides. And conversions from what
was read to what columns have, which fail rather than alter a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.formats.shapes import Vouched
from leasehold.formats.typed.values import MICROSECONDS

Convert = Callable[[pa.Array], pa.Array]
"""From the values that were read to those of a column. Raises `ArrowInvalid` where one of them may not fit."""
Attempt = Callable[[pa.Array, pa.Array], Vouched]
"""Those bodies, with their rows, that come out as they came in. Raises `ValueError` where one cannot be read."""

_FEW = 50
"""This many bodies, or fewer, are left out rather than halved again."""


class NotRead(Exception):
    """It takes the definition to read this."""


def vouched(bodies: pa.Array, rows: pa.Array, attempt: Attempt, most_bytes: int) -> list[Vouched]:
    """What is surely good among these bodies, of which an attempt is given less than `most_bytes`."""
    if bodies.nbytes < most_bytes:
        with suppress(ValueError, OverflowError):  # Arrow's are among them
            return [attempt(bodies, rows)]
    half = len(bodies) // 2
    if not half or len(bodies) <= _FEW:
        return []
    first = vouched(bodies[:half], rows[:half], attempt, most_bytes)
    return first + vouched(bodies[half:], rows[half:], attempt, most_bytes)


def struct(parts: Sequence[tuple[int, Convert] | None], type_: pa.StructType) -> Convert:
    """For each field of a column, the place of the one that was read and what converts it; None: it is null."""

    def convert(values: pa.Array) -> pa.Array:
        arrays = [
            pa.nulls(len(values), field.type) if part is None else part[1](values.field(part[0]))
            for part, field in zip(parts, type_, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=values.is_null())

    return convert


def list_(convert: Convert, type_: pa.DataType) -> Convert:
    """A list of what `convert` gives."""
    return lambda values: pa.ListArray.from_arrays(
        values.offsets, convert(values.values), type=type_, mask=values.is_null()
    )


def cast(type_: pa.DataType) -> Convert:
    """The same values as another type, none of them altered."""
    return lambda values: values.cast(type_)


def micros(factor: int, type_: pa.DataType) -> Convert:
    """Counts since 1970 as times; each is of `factor` microseconds."""
    return lambda values: within(pc.multiply_checked(values, factor), MICROSECONDS).cast(type_)


def within(values: pa.Array, range_: range) -> pa.Array:
    """The same values. Raises `ArrowInvalid` where one of them is not in the range."""
    found = pc.min_max(values).as_py()
    if any(value is not None and value not in range_ for value in found.values()):
        raise pa.ArrowInvalid("a date or a time that its column has not")
    return values
