"""States of entities in a Postgres table: one written, or many read back as the Python values they were written as.

Owns the way from the table's columns back to the values of an Arrow schema of flat columns, and which other constraints
a table has: a handler's state is written as one row of several events, which no constraint may set aside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa

from leasehold.database.statements import unsent
from leasehold.errors import ConfigError
from leasehold.sinks.beside.states import misfit, ordered, refuse_constraints, row_of
from leasehold.sinks.features import SpoiledState
from leasehold.sinks.postgres.blame import Blame
from leasehold.sinks.postgres.catalog import kind_of_relation, relation
from leasehold.sinks.postgres.layout import Layout, compared
from leasehold.sinks.postgres.names import quoted
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.staging import encode
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.table_spec import folded, ordered_keys


def read(session: PostgresSession, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
    """The rows of these keys, those that are there, in the columns of `schema`."""
    spec = session.spec
    wanted = [key for key in keys if not any(isinstance(value, str) and "\0" in value for value in key)]
    if not wanted or kind_of_relation(session, spec.name) is None:
        return {}
    layout = compared(spec, list(schema), relation(session, spec.name))
    columns = ", ".join(f"CAST(t.{quoted(target.name)} AS {target.carrier})" for target in layout.targets)
    given = ", ".join(f"%(k{place})s::{key.carrier}[]" for place, key in enumerate(layout.key_targets))
    names = ", ".join(f"k{place}" for place in range(len(layout.keys)))
    match = " AND ".join(_equals(layout, place) for place in range(len(layout.keys)))
    by_name = {folded(name): place for place, name in enumerate(spec.keys)}
    order = [by_name[folded(name)] for name in ordered_keys(spec)]
    values = {f"k{place}": [key[at] for key in wanted] for place, at in enumerate(order)}
    try:
        stored = session.rows(
            f"SELECT {columns} FROM unnest({given}) AS w({names}) JOIN {session.names.table} AS t ON {match}", **values
        )
    except psycopg.DataError as error:
        if error.sqlstate is not None:  # the server's
            raise
        if len(wanted) > 1:
            return {key: state for one in wanted for key, state in read(session, schema, [one]).items()}
        return {wanted[0]: SpoiledState(str(error))}
    of_key = [layout.columns.index(_written(layout, name)) for name in spec.keys]
    found: dict[Key, dict[str, Any]] = {}
    for row in stored:
        read_back = [_in_utc(value) for value in row]
        found[tuple(read_back[place] for place in of_key)] = dict(zip(layout.columns, read_back, strict=True))
    return found


def written_by(session: PostgresSession, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, int]:
    """Which event has written each of these keys last, by its number; `schema` has their columns."""
    spec = session.spec
    asked = [key for key in keys if not any(isinstance(value, str) and "\0" in value for value in key)]
    if not asked or kind_of_relation(session, spec.memory or "") is None:
        return {}
    layout = compared(spec, list(schema), relation(session, spec.name))
    places = [schema.names.index(layout.columns[at]) for at in layout.keys]
    given = ", ".join(f"%(k{place})s::{key.carrier}[]" for place, key in enumerate(layout.key_targets))
    names = ", ".join(f"k{place}" for place in range(len(layout.keys)))
    match = " AND ".join(
        f"m.{column} = {_value(layout, place)}" for place, column in enumerate(session.names.key_columns)
    )
    values = {f"k{place}": [key[at] for key in asked] for place, at in enumerate(places)}
    rows = session.rows(
        f"SELECT w.turn, m.number FROM unnest({given}) WITH ORDINALITY AS w({names}, turn) "
        f"JOIN {session.names.memory} AS m ON {match}",
        **values,
    )
    return {asked[turn - 1]: number for turn, number in rows}


def write(
    session: PostgresSession, schema: pa.Schema, layout: Layout, key: Key, state: Mapping[str, Any] | None
) -> None:
    """Write one state, None for none. Raises `UsageError` for one that the table refuses: it is the state's fault."""
    spec, table = session.spec, session.names.table
    if state is None:
        given = {f"k{place}": value for place, value in enumerate(ordered(spec, key))}
        terms = []
        for place, target in enumerate(layout.key_targets):
            staged = f"%(k{place})s::{target.carrier}"
            terms.append(f"{quoted(target.name)} = {target.held(staged)}")
        session.run(f"DELETE FROM {table} WHERE {' AND '.join(terms)}", **given)
        return
    row = row_of(spec, schema, key, state)
    given = {}
    for place, (name, target) in enumerate(zip(layout.columns, layout.targets, strict=True)):
        encoded = encode(row[name], target.carrier)
        if encoded.problems:
            raise misfit(spec, key, f"{name} {encoded.problems[0]}")
        given[f"c{place}"] = encoded.values[0].as_py()
    columns = ", ".join(f"%(c{place})s::{target.carrier} AS c{place}" for place, target in enumerate(layout.targets))
    blame = Blame(session, spec.name, layout.relation, layout.given)
    try:
        with nullcontext() if layout.gives_all else session.savepoint():  # behind which one may look for what is wrong
            for statement in layout.upserts(table, f"(SELECT {columns}) AS s", "true", layout.is_row("s")):
                session.run(statement, **given)
    except psycopg.Error as error:
        raise misfit(spec, key, blame.reason(error)) from error


def _equals(layout: Layout, place: int) -> str:
    """A key that does not fit the column's type is nobody's; the cast must not see it."""
    return f"t.{quoted(layout.key_targets[place].name)} = {_value(layout, place)}"


def _value(layout: Layout, place: int) -> str:
    """The value of a key that is asked for."""
    key = layout.key_targets[place]
    value, fits = key.value(f"w.k{place}"), key.fits(f"w.k{place}")
    return value if fits is None else f"(CASE WHEN {fits} THEN {value} END)"


def _written(layout: Layout, key: str) -> str:
    return next(name for name in layout.columns if folded(name) == folded(key))


def _in_utc(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_in_utc, value)]
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def check(session: PostgresSession, *, referred: bool = False) -> None:
    """Refuse a table that may refuse a row for more than its types. Raises `ConfigError`.

    It may be `referred` to by foreign keys of related tables.
    """
    spec = session.spec
    if kind_of_relation(session, spec.name) is None:
        return
    table = relation(session, spec.name)
    keys = {folded(name) for name in spec.keys}
    others = [
        f"the unique index {index.name}"
        for index in table.unique
        if not index.plain or {folded(name) for name in index.columns} != keys
    ]
    others += [
        "a foreign key" if key.outgoing else "a foreign key to it"
        for key in table.foreign
        if key.outgoing or not referred
    ]
    others += [f"{column.name} of a domain" for column in table.columns if column.is_domain]
    others += [
        f"{column.name} NOT NULL" for column in table.columns if column.not_null and folded(column.name) not in keys
    ]
    others += ["a CHECK"] if table.checks else []
    others += [
        what
        for what, query in (
            ("a trigger", "SELECT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = {} AND NOT tgisinternal)"),
            ("EXCLUDE", "SELECT EXISTS (SELECT 1 FROM pg_constraint WHERE conrelid = {} AND contype = 'x')"),
        )
        if session.one(query.format("to_regclass(%(it)s)"), it=unsent(session.names.table))
    ]
    if uuids := [column.name for column in table.columns if column.declared == "uuid" and folded(column.name) in keys]:
        raise ConfigError(
            "table",
            str(spec.called),
            f"{uuids[0]} is a uuid, one key however it is written, and a handler tells keys apart by their text",
            "Declare the column as text",
        )
    refuse_constraints(spec, others)
