"""Keys as the rows of a query, for a join with a table that has them: as many at once as SQLite takes.

Owns how many keys a query is asked for, and the form in which the database has them. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types

from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.values import stored

_AT_ONCE = 400  # below SQLite's 500 terms of a VALUES


def stored_keys(schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, Key]:
    """These keys, whose columns `schema` has in their order, by the values that the database has for them."""
    if all(types.is_string(field.type) or types.is_integer(field.type) for field in schema) or not keys:
        return {key: key for key in keys}
    columns = zip(schema, zip(*keys, strict=True), strict=True)
    kept = [stored(pa.array(values, field.type)) for field, values in columns]
    return dict(zip(zip(*kept, strict=True), keys, strict=True))


def key_rows(keys: Sequence[Key]) -> Iterator[tuple[Sequence[Key], str, list[Any]]]:
    """Some keys after the others, each time with SQL for their rows, and the values to bind.

    The SQL goes behind FROM; its columns are column1, column2, … in the order of a key's values.
    """
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        one = f"({', '.join('?' * len(some[0]))})"
        yield some, f"(VALUES {', '.join([one] * len(some))})", [value for key in some for value in key]
