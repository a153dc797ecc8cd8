"""The own values of rows in SQLite: what an event is compared with whose key has a row, and is not remembered.

Owns the way from what a column has to a value that `values.order_values` could give, for rule 6 of `remembered_order`.
SQLite has no types of its own for dates and times, so a row that somebody else has written may have any text: what is
not in the form of `values` is refused, by name. Every function here runs inside a transaction of the caller's, which
locks the database from its first statement.
"""

from __future__ import annotations

import re
import reprlib
import sqlite3
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from pyarrow import types

from leasehold.database.statements import quoted
from leasehold.sinks.rules.batch import OrderValue
from leasehold.sinks.rules.ordering import Claim, Key
from leasehold.sinks.rules.remembered_order import OwnValue, no_order
from leasehold.sinks.rules.table_spec import TableSpec, ordered_keys
from leasehold.sinks.rules.values import ColumnKind, kind_of
from leasehold.sinks.sqlite.key_rows import key_rows

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z?)", re.ASCII)
_FIRST, _FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
_BEFORE_ALL = ("", "", -1)
"""Partition, hub and sequence number of no event: of equal values an event's is the later one."""


def claims(connection: sqlite3.Connection, spec: TableSpec, own: OwnValue, keys: Sequence[Key]) -> dict[Key, Claim]:
    """What rows of these keys are compared by: those that are there and have a value. Raises `SchemaMismatch`."""
    match = " AND ".join(f"t.{quoted(name)} = w.column{place}" for place, name in enumerate(ordered_keys(spec), 1))
    found: dict[Key, Claim] = {}
    for _, rows, values in key_rows(keys):
        query = (
            f"SELECT w.*, t.{quoted(own.column)} FROM {rows} w "
            f"CROSS JOIN {quoted(spec.name)} t ON {match} WHERE t.{quoted(own.column)} IS NOT NULL"
        )
        for *key, value in connection.execute(query, values):
            found[tuple(key)] = (_value(spec, own, value), *_BEFORE_ALL)
    return found


def check(connection: sqlite3.Connection, spec: TableSpec, own: OwnValue) -> None:
    """Refuse a table one of whose rows has a value that cannot be compared. Raises `SchemaMismatch`."""
    column = quoted(own.column)
    for (value,) in connection.execute(f"SELECT {column} FROM {quoted(spec.name)} WHERE {column} IS NOT NULL"):
        _value(spec, own, value)


def _value(spec: TableSpec, own: OwnValue, stored: object) -> OrderValue:
    value = _read(own.type, stored)
    if value is None:
        raise no_order(spec, own, reprlib.repr(stored))
    return value


def _read(type_: pa.DataType, stored: object) -> OrderValue | None:
    """What a stored value is compared as, None for one that has no place in the order of this type."""
    kind = kind_of(type_)
    if kind in (ColumnKind.INTEGER, ColumnKind.REAL):
        return stored if isinstance(stored, (int, float)) else None
    if not isinstance(stored, str):
        return None
    if kind is ColumnKind.TEXT:
        return stored
    form = _DATE if kind is ColumnKind.DATE else _TIME
    if (read := form.fullmatch(stored)) is None:
        return None
    try:
        if kind is ColumnKind.DATE:
            return (date.fromisoformat(stored) - _FIRST_DAY).days
        zoned = types.is_timestamp(type_) and type_.tz is not None
        at = datetime.fromisoformat(stored.removesuffix("Z") + "+00:00")
    except ValueError:
        return None
    return (at - _FIRST) // timedelta(microseconds=1) if bool(read[1]) == zoned else None
