"""Which schema a body was written by, as Confluent's serializers say it.

Owns the header, which is the "wire format" of Confluent's schema registry: a byte 0, and the schema's number in four
bytes, the highest first. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

NO_HEADER = "the body does not begin with the number of a schema: a byte 0, and four more"

_SIZE = 5
_END = 2**31 - 1
"""Behind the last byte of any body: without an end, Arrow reckons with a negative one, and fails."""


def by_schema(bodies: pa.Array) -> Iterator[tuple[int | None, pa.Array]]:
    """Each number of a schema that these bodies name, with the rows of its bodies; None for those that name none."""
    heads = pc.binary_slice(bodies, 0, _SIZE).dictionary_encode()
    numbers = [_number(head) for head in heads.dictionary.to_pylist()]
    rows = pa.array(range(len(bodies)), pa.int32())
    unnamed = heads.indices.is_null()
    for place, number in enumerate(numbers):
        mask = pc.fill_null(pc.equal(heads.indices, place), False)
        if number is None:
            unnamed = pc.or_(unnamed, mask)
        else:
            yield number, rows.filter(mask)
    if pc.any(unnamed).as_py():
        yield None, rows.filter(unnamed)


def schema_numbers(bodies: pa.Array) -> set[int]:
    """The numbers of schemas that these bodies name."""
    return {number for number, _ in by_schema(bodies) if number is not None}


def without_header(bodies: pa.Array) -> pa.Array:
    """What is behind the headers of bodies that have one."""
    return without_start(bodies, _SIZE)


def without_start(bodies: pa.Array, size: int) -> pa.Array:
    """What is behind the first `size` bytes."""
    return pc.binary_slice(bodies, size, _END)


def _number(head: bytes) -> int | None:
    return int.from_bytes(head[1:], "big") if len(head) == _SIZE and head[0] == 0 else None
