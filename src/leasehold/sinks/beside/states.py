"""States of entities as rows of a table: what every sink says of them, and how it writes one. Pure.

A handler's state is written as one row of several events, which no constraint may set aside in place of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from leasehold.errors import ConfigError, UsageError
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.table_spec import FENCE_COLUMNS, OWNER_LEVEL, SEQUENCE_NUMBER, TableSpec, ordered_keys

_FENCE = [
    pa.field(name, pa.int64() if name in (SEQUENCE_NUMBER, OWNER_LEVEL) else pa.string()) for name in FENCE_COLUMNS
]


def fenced(schema: pa.Schema) -> pa.Schema:
    """The schema with the columns by which a hub's events are fenced, which every table is asked about."""
    return pa.schema([*schema, *_FENCE])


def ordered(spec: TableSpec, key: Key) -> Sequence[Any]:
    """The key's values in the order of the statements, however the spec writes its columns."""
    values = dict(zip(spec.keys, key, strict=True))
    return [values[name] for name in ordered_keys(spec)]


def row_of(spec: TableSpec, schema: pa.Schema, key: Key, state: Mapping[str, Any]) -> pa.Table:
    """The new state as a table of one row. Raises `UsageError`."""
    try:
        return pa.Table.from_pylist([dict(state)], schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise misfit(spec, key, error) from error


def misfit(spec: TableSpec, key: Key, why: object) -> UsageError:
    """The table cannot hold the new state."""
    return UsageError(f"the state of {key} does not fit the table {spec.called}: {why}")


def refuse_constraints(spec: TableSpec, constraints: Sequence[str]) -> None:
    """Refuse a table that may refuse a row for more than its types. Raises `ConfigError`."""
    if constraints:
        raise ConfigError(
            "table",
            spec.name,
            f"it has {', '.join(constraints)}, which may refuse what a handler has made of several events",
            "Check it in the handler, which can raise Reject, and drop the constraint",
        )
