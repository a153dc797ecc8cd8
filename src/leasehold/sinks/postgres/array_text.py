"""Arrays of one dimension as the text that Postgres reads: `{"a",NULL,"b"}`. Pure.

Owns that text, of a whole Arrow column and of one list of Python. Every element stands in quotes, which any type may,
but for NULL, which is the null only without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_NULL, _TEXT = "NULL", pa.large_string()


def texts(lengths: pa.Array, elements: pa.Array) -> Any:
    """The texts of arrays: `lengths` has the number of elements of each, null for none; `elements` those of all."""
    inner = elements.cast(_TEXT)
    for character in ("\\", '"'):
        inner = pc.replace_substring(inner, character, f"\\{character}")
    inner = pc.fill_null(_between('"', inner, '"'), _NULL)
    starts = pa.array(accumulate((length or 0 for length in lengths.to_pylist()), initial=0), pa.int64())
    joined = pc.binary_join(pa.LargeListArray.from_arrays(starts, inner), pa.scalar(",", _TEXT))
    text = _between("{", joined, "}")
    return pc.if_else(pc.is_valid(lengths), text, pa.scalar(None, _TEXT))


def _between(before: str, text: Any, behind: str) -> Any:
    return pc.binary_join_element_wise(
        *(pa.scalar(before, _TEXT), text, pa.scalar(behind, _TEXT)), pa.scalar("", _TEXT)
    )


def literal(elements: Iterable[Any]) -> str:
    """The text of one array, of these values of Python."""
    return f"{{{','.join(map(_element, elements))}}}"


def list_of(value: Any) -> list[Any] | None:
    """The list that a text is as JSON, which is what a handler's row makes of one; None for anything else."""
    if not isinstance(value, str) or not value.startswith("["):
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, list) else None


def _element(value: Any) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bytes):
        value = f"\\x{value.hex()}"
    elif isinstance(value, date | datetime):
        value = value.isoformat()
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
