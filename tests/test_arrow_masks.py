"""Where a column of booleans is true, and what is null by it: with slices, chunks, no rows, and nulls."""

from __future__ import annotations

import pyarrow as pa
import pytest

from leasehold.arrow_masks import nulled, true_places

CHUNKS: tuple[list[list[bool | None]], ...] = ([], [[]], [[True, False], [], [None, True]], [[None]], [[False], [True]])
KINDS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.float64())


@pytest.mark.parametrize("chunks", CHUNKS, ids=repr)
def test_the_places_are_counted_through_all_chunks(chunks: list[list[bool | None]]) -> None:
    column = pa.chunked_array(chunks, pa.bool_())
    flat = [value for chunk in chunks for value in chunk]
    expected = [place for place, value in enumerate(flat) if value]
    assert true_places(column) == expected
    assert true_places(pa.array(flat, pa.bool_())) == expected


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("start", "length"), [(0, 3_000), (1_000, 1_000), (2_999, 1), (2_000, 0)])
def test_a_slice_of_a_column_gets_nulls_and_keeps_the_rest(kind: pa.DataType, start: int, length: int) -> None:
    values = [None if n % 7 == 0 else n / 8 if kind == pa.float64() else f"text {n}" * (n % 3) for n in range(3_000)]
    masks = [None if n % 11 == 0 else n % 5 == 0 for n in range(3_000)]
    column, mask = (pa.array(each, of).slice(start, length) for each, of in ((values, kind), (masks, pa.bool_())))
    inside = slice(start, start + length)
    pairs = zip(values[inside], masks[inside], strict=True)
    kept = [None if hidden is None or hidden else value for value, hidden in pairs]
    expected = pa.array(kept, kind)
    found = nulled(column, mask)
    found.validate(full=True)
    assert found.equals(expected)
    chunked = pa.chunked_array([column.slice(0, length // 3), column.slice(length // 3)], kind)
    for each in (mask, pa.chunked_array([mask.slice(0, length // 2), mask.slice(length // 2)], pa.bool_())):
        found = nulled(chunked, each)
        found.validate(full=True)
        assert found.combine_chunks().equals(expected)
