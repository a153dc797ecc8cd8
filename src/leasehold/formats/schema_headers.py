"""Which schema a body was written by, as Confluent's serializers say it.

Owns the header, which is the "wire format" of Confluent's schema registry: a byte 0, and the schema's number in four
bytes, the highest first. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.formats.misfits import NO_BODY

NO_HEADER = "the body does not begin with the number of a schema: a byte 0, and four more"

_SIZE = 5
_END = 2**31 - 1
"""Behind the last byte of any body: without an end, Arrow reckons with a negative one, and fails."""


@dataclass(frozen=True, slots=True)
class NamedBodies:
    """Bodies that name the same schema: their rows, and the values that were written by it.

    Those that name none have the number None, no values, and the reason why each is rejected.
    """

    number: int | None
    rows: pa.Array
    values: pa.Array | None = None
    reasons: Sequence[str] = ()


def by_schema(bodies: pa.Array) -> Iterator[NamedBodies]:
    """These bodies by the schemas that they name."""
    heads = pc.binary_slice(bodies, 0, _SIZE).dictionary_encode()
    rows = pc.cast(pc.sort_indices(heads.indices), pa.int32())  # those without a body are last
    counts = pc.value_counts(heads.indices.take(rows))
    unnamed, begin = [], 0
    for place, count in zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True):
        mine, begin = rows[begin : begin + count], begin + count
        number = None if place is None else _number(heads.dictionary[place].as_py())
        if number is None:
            unnamed.append(mine)
        else:
            yield NamedBodies(number, mine, without_start(bodies.take(mine), _SIZE))
    if unnamed:
        mine = pc.take(pa.concat_arrays(unnamed), pc.sort_indices(pa.concat_arrays(unnamed)))
        reasons = [NO_BODY if body is None else NO_HEADER for body in bodies.take(mine).to_pylist()]
        yield NamedBodies(None, mine, reasons=reasons)


def with_header(bodies: pa.Array, number: int, more: bytes = b"") -> pa.Array:
    """The same bodies behind the header that names the schema of this number, and what `more` its format has there."""
    return pc.binary_join_element_wise(pa.scalar(b"\0" + number.to_bytes(_SIZE - 1, "big") + more), bodies, b"")


def without_number(bodies: pa.Array) -> pa.Array:
    """The same bodies of JSON, without the number of a schema where one stands before an object.

    In UTF-16 and UTF-32 an object may begin with a byte 0 as well, and has another behind the brace.
    """
    headed = pc.fill_null(pc.starts_with(bodies, b"\0"), False)
    if not pc.any(headed).as_py():
        return bodies
    brace = pc.equal(pc.binary_slice(bodies, _SIZE, _SIZE + 1), b"{")
    other = pc.not_equal(pc.binary_slice(bodies, _SIZE + 1, _SIZE + 2), b"\0")
    return pc.if_else(pc.and_(headed, pc.and_(brace, other)), without_start(bodies, _SIZE), bodies)


def without_start(bodies: pa.Array, size: int) -> pa.Array:
    """What is behind the first `size` bytes."""
    return pc.binary_slice(bodies, size, _END)


def _number(head: bytes) -> int | None:
    return int.from_bytes(head[1:], "big") if len(head) == _SIZE and head[0] == 0 else None
