"""The own values of rows in Postgres: what an event is compared with whose key has a row, and is not remembered.

Owns the SQL from a column to what the memory of keys would have of it, for rule 6 of `remembered_order`: numbers with
all their digits, text by its bytes, days and microseconds since 1970. `infinity` of dates and times is beyond every
event's value. Rows are looked at once their keys are locked (`memory`), so that no other batch writes them meanwhile.
Refuses columns whose values have another order than the events' (a UUID, which Postgres respells), once there is a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leasehold.sinks.postgres.layout import Layout
from leasehold.sinks.postgres.names import quoted
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.staging import FRESH, KEYS, KNOWN, split
from leasehold.sinks.rules.remembered_order import OwnValue, no_order

_BEYOND = 10**18
"""More microseconds than there are until the year 9999."""
_NO_LANE, _NO_NUMBER = 0, -1
"""The partition and the sequence number of no event."""


@dataclass(frozen=True, slots=True)
class OwnColumn:
    """The column with the own values of the table's row `t`: its name, and SQL for what a value is compared as.

    `value` is None where values of the column's type have another order than those of events.
    """

    own: OwnValue
    name: str
    value: str | None

    @property
    def is_there(self) -> str:
        """SQL for whether the row has a value."""
        return f"{self.name} IS NOT NULL"


def own_column(layout: Layout, own: OwnValue | None) -> OwnColumn | None:
    """The column of the table that `own` is written to."""
    if own is None:
        return None
    target = layout.targets[layout.columns.index(own.column)]
    name = f"t.{quoted(target.name)}"
    return OwnColumn(own, name, _value(target.declared, name))


def _value(declared: str, name: str) -> str | None:
    kind = declared.partition("(")[0].rstrip()
    if kind in ("smallint", "integer", "bigint"):
        return name
    if kind in ("numeric", "real", "double precision"):
        exact = "numeric" if kind == "numeric" else "double precision"
        return f"NULLIF(CAST({name} AS {exact}), 'NaN')"
    if kind in ("text", "character varying", "character"):
        return f"CAST({name} AS text)"
    if kind == "date":
        return _finite(name, f"{name} - DATE '1970-01-01'")
    if declared.startswith(("timestamp ", "timestamp(")):
        # In two parts, each of which a double holds exactly: before Postgres 14 it is what extract gives.
        minutes = f"CAST(extract(epoch FROM date_trunc('minute', {name})) AS bigint) * 1000000"
        return _finite(name, f"{minutes} + CAST(extract(microseconds FROM {name}) AS bigint)")
    return None


def _finite(name: str, value: str) -> str:
    return f"CASE WHEN isfinite({name}) THEN {value} WHEN {name} > 'epoch' THEN {_BEYOND} ELSE -{_BEYOND} END"


def load(session: PostgresSession, layout: Layout, own: OwnColumn) -> int:
    """Note in `KNOWN` the own values of the rows of `FRESH` keys, which are locked; returns how many there are.

    What is noted so has no place in the memory (`at`). Raises `SchemaMismatch`.
    """
    keys = [f"k.{key}" for key in session.names.key_columns]
    rows = session.rows(
        f"SELECT k.kid, k.lane, {own.value or own.name} FROM {KEYS} AS k JOIN {FRESH} AS f ON f.kid = k.kid "
        f"JOIN {session.names.table} AS t ON {layout.is_row_of(keys)} WHERE {own.is_there}"
    )
    _refuse_unordered(session, own, rows)
    if not rows:
        return 0
    kids, lanes, values = zip(*rows, strict=True)
    numbers, texts = zip(*map(split, values), strict=True)
    return session.run(
        f"INSERT INTO {KNOWN} (kid, at, now, lane, number, by_number, by_text) "
        "SELECT own.kid, NULL, own.now, %(lane)s, %(number)s, own.by_number, own.by_text FROM unnest("
        "%(kids)s::integer[], %(lanes)s::bigint[], %(numbers)s::numeric[], %(texts)s::text[]) "
        "AS own(kid, now, by_number, by_text)",
        kids=[*kids],
        lanes=[*lanes],
        numbers=[*numbers],
        texts=[*texts],
        lane=_NO_LANE,
        number=_NO_NUMBER,
    )


def check(session: PostgresSession, own: OwnColumn) -> None:
    """Refuse a table one of whose rows has a value that cannot be compared. Raises `SchemaMismatch`."""
    if own.value is None:
        found = f"SELECT NULL, NULL, {own.name} FROM {session.names.table} AS t WHERE {own.is_there} LIMIT 1"
        _refuse_unordered(session, own, session.rows(found))


def _refuse_unordered(session: PostgresSession, own: OwnColumn, rows: Sequence[Any]) -> None:
    if rows and own.value is None:
        raise no_order(session.spec, own.own, f"the value {rows[0][-1]!s}")
