"""Where a column of booleans is true, also where it has no rows, no chunks, or nulls."""

from __future__ import annotations

import pyarrow as pa
import pytest

from leasehold.arrow_masks import true_places

CHUNKS: tuple[list[list[bool | None]], ...] = ([], [[]], [[True, False], [], [None, True]], [[None]], [[False], [True]])


@pytest.mark.parametrize("chunks", CHUNKS, ids=repr)
def test_the_places_are_counted_through_all_chunks(chunks: list[list[bool | None]]) -> None:
    """Without chunks, PyArrow 18 to 22 end the process in `indices_nonzero`."""
    column = pa.chunked_array(chunks, pa.bool_())
    flat = [value for chunk in chunks for value in chunk]
    expected = [place for place, value in enumerate(flat) if value]
    assert true_places(column) == expected
    assert true_places(pa.array(flat, pa.bool_())) == expected
