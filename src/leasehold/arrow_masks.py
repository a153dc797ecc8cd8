"""The places at which an Arrow column of booleans is true.

The one function here stands for `pyarrow.compute.indices_nonzero`, which ends the process by a segmentation fault for a
column without chunks in PyArrow 18 to 22. A column of no rows has none, and so may have what a filter leaves of one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def true_places(mask: pa.Array | pa.ChunkedArray) -> list[int]:
    """The indices at which `mask`, a column of booleans, is true, in ascending order. A null counts as false."""
    if len(mask) == 0:
        return []
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found
