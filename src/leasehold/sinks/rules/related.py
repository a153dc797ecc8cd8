"""What a handler says of rows of related tables, as values. What a sink does with them is in `sinks.beside.related`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from leasehold.errors import UsageError
from leasehold.formats.python_values import without_numpy
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.values import dumps, text_in_json

if TYPE_CHECKING:
    import pyarrow as pa


_PLAIN = (bool, int, float, Decimal, str, bytes, date, datetime)


@dataclass(frozen=True, slots=True, init=False)
class Row:
    """A row of a related table, which is inserted, or updated where one of these keys is there.

    `table` is its name as the handler's `related` has it. `values` are by column; columns that are left out keep what
    they have, and take their defaults in a new row. `keys` are those of `values` that name the row. Dicts and lists
    become JSON; a list in a column of arrays, the array. Raises `UsageError`.
    """

    table: str
    values: Mapping[str, Any]
    keys: tuple[str, ...]

    def __init__(self, table: str, values: Mapping[str, Any], *, keys: Sequence[str]) -> None:
        _check(table, values)
        if isinstance(keys, str) or not keys:
            raise UsageError(f'Row("{table}", keys={keys!r}): keys is a list of at least one column')
        given = {name: _value(table, name, value) for name, value in values.items()}
        for name in keys:
            if given.get(name) is None:
                raise UsageError(f'Row("{table}"): the key {name} is missing or None, and names the row')
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "values", given)
        object.__setattr__(self, "keys", tuple(keys))


@dataclass(frozen=True, slots=True, init=False)
class Gone:
    """The rows of a related table that have these values are deleted, if there are any. Raises `UsageError`."""

    table: str
    values: Mapping[str, Any]

    def __init__(self, table: str, values: Mapping[str, Any]) -> None:
        _check(table, values)
        given = {name: _value(table, name, value) for name, value in values.items()}
        for name, value in given.items():
            if value is None:
                raise UsageError(f'Gone("{table}"): {name} is None, and nothing equals that')
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "values", given)


@dataclass(frozen=True, slots=True)
class EntityStep:
    """What one event makes of its entity: its new state if it `changes`, None for none, and related rows."""

    number: int
    key: Key
    rows: Sequence[Row | Gone] = ()
    changes: bool = False
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Related:
    """What the events of a batch make of their entities, in order; all steps of each entity that has related rows.

    `schema` is that of the states.
    """

    schema: pa.Schema
    steps: Sequence[EntityStep]


def _check(table: str, values: Mapping[str, Any]) -> None:
    if not isinstance(table, str) or not table.strip():
        raise UsageError(f"a related row of the table {table!r}: name the table")
    if not isinstance(values, Mapping) or not values:
        raise UsageError(f"a related row of {table}: {type(values).__name__} {values!r} is no dict with a column in it")


def _value(table: str, name: str, value: Any) -> Any:
    value = without_numpy(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict | list):
        try:
            return dumps(value, text_in_json)
        except (TypeError, ValueError) as error:
            raise UsageError(f"a related row of {table}: {name} is no JSON: {error}") from error
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if value is not None and not isinstance(value, _PLAIN):
        raise UsageError(f"a related row of {table}: {name} is a {type(value).__name__}, which no column takes")
    if isinstance(value, float | date) and value != value:  # NaN, and pandas' NaT
        return None
    return value
