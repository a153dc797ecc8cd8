"""What a column of booleans says of another: the places at which it is true, and the other with nulls there.

Both stand for functions of `pyarrow.compute` that cannot be used in all PyArrows that are allowed. `indices_nonzero`
ends the process by a segmentation fault for a column without chunks, up to PyArrow 24: a column of no rows has none,
and so may have what a filter leaves of one. `if_else` with a null for a slice of a column of text or bytes reads
outside of it, up to PyArrow 23: what comes back is other text, or an array that no other function takes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def true_places(mask: pa.Array | pa.ChunkedArray) -> list[int]:
    """The indices at which `mask`, a column of booleans, is true, in ascending order. A null counts as false."""
    if len(mask) == 0:
        return []
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found


def nulled(column: Any, mask: pa.Array | pa.ChunkedArray) -> Any:
    """The column, an array or a chunked one, of numbers, text or bytes, with null where `mask` is true or null."""
    if isinstance(mask, pa.ChunkedArray):
        mask = mask.combine_chunks()
    return pc.replace_with_mask(column, mask, pa.scalar(None, column.type))
