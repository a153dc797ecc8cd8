"""Rows of related tables in Postgres. The rules are in `sinks.beside.related`.

Owns their SQL. Runs inside the transaction of a batch, behind the locks on watermarks and versions of entities. A row
that somebody else has written and not committed is waited for, until the connection's `lock_timeout`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa

from leasehold.database.statements import sent
from leasehold.errors import UsageError
from leasehold.formats.misfits import Misfit
from leasehold.sinks.beside.related import RelatedTable, check_names, missing, no_unique_index, wrong_columns
from leasehold.sinks.postgres import states
from leasehold.sinks.postgres.blame import Blame
from leasehold.sinks.postgres.catalog import Relation, UniqueIndex, check_tables, kind_of_relation, relation
from leasehold.sinks.postgres.layout import Layout
from leasehold.sinks.postgres.names import quoted
from leasehold.sinks.postgres.session import PostgresSession, reason_of
from leasehold.sinks.postgres.trial import run_defaults, show_definition, tried_row, undone
from leasehold.sinks.postgres.types import taken_by, uncut
from leasehold.sinks.rules.columns import on_conflict
from leasehold.sinks.rules.related import EntityStep, Gone, Row

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_MISFIT = ("42804", "42846", "42883", "428C9")
"""A value for a column of another type, one that cannot be cast or compared, and one for a column that is computed."""


def check(session: PostgresSession, tables: Collection[str], shown: str) -> None:
    """See `RelatesTables`."""
    check_names(session.spec, tables, session.names.schema)
    for table in tables:
        there, name = session.beside(table)
        if kind_of_relation(there, name) is None:
            raise missing(session.spec, table)
        check_tables(there, [name], shown)


def shown(session: PostgresSession, table: str, place: str) -> RelatedTable:
    """See `RelatesTables`. A row is written on trial, and undone."""
    check(session, [table], place)
    there, name = session.beside(table)
    its = relation(there, name)
    found = RelatedTable(
        tuple(column.name for column in its.columns if not column.computed),
        tuple(tuple(sorted(index.columns)) for index in its.unique if _names_rows(index)),
        tuple(there.missing_rights(name, RIGHTS)),
    )
    if not set(found.missing) - {"DELETE"}:
        _try_a_row(session, table, its, found, place)
    return found


def _try_a_row(session: PostgresSession, related: str, relation: Relation, rules: RelatedTable, place: str) -> None:
    """As `trial.write_a_row`, by the statements that write a handler's rows. Raises what would fail each of them."""
    at, name = session.beside(related)
    table = at.of(name)
    there, row = tried_row(session, table, relation, lock=True)
    columns = [column for column in relation.columns if not column.is_generated]
    show_definition(session, table, ", ".join(quoted(column.name) for column in columns), row)
    run_defaults(session, table)
    given = [column.name for column in columns if not (column.computed or column.drawn)]
    numbered = len(given) < len(columns)  # a new row would take a number
    if not given or (numbered and not there):
        return
    texts = ", ".join(f"CAST({quoted(column)} AS text)" for column in given)
    values = dict(zip(given, next(iter(session.rows(f"SELECT {texts} FROM ({row}) AS r")), ()), strict=False))
    known = {column for column, value in values.items() if value is not None}
    if (keys := next((keys for keys in rules.keys if known.issuperset(keys)), None)) is None:
        return
    steps, its_row = PostgresSteps(session, place), Row(related, values, keys=keys)
    write = partial(steps.write_row, its_row)
    undone(session, write, write)  # the second time it is there in any case
    if not (numbered or rules.missing or relation.plain) and all(key.outgoing for key in relation.foreign):
        undone(session, partial(steps.write_row, Gone(related, {key: values[key] for key in keys})), write)


def _names_rows(index: UniqueIndex) -> bool:
    return index.plain and index.immediate


class PostgresSteps:
    """Writes what events make of their entities, in one transaction. What is known of a table holds that long."""

    def __init__(self, session: PostgresSession, shown: str) -> None:
        self._session, self._shown = session, shown
        self._found: dict[str, tuple[str, Relation]] = {}

    def write(self, schema: pa.Schema, layout: Layout, step: EntityStep) -> str | None:
        """See `WritesBeside`."""
        blame = Blame(self._session, self._session.spec.name, layout.relation, layout.given)
        try:
            with self._session.savepoint():
                if step.changes and step.state is not None:
                    states.write(self._session, schema, layout, step.key, step.state)
                for row in step.rows:
                    fitted = self._fitted(row)
                    there, name = self._session.beside(row.table)
                    its = self._find(row.table)[1]
                    # What has no default is left out by this row, and not by each.
                    left_out = [one.name for one in its.columns if not (one.has_default or one.drawn)]
                    blame = Blame(there, name, its, [*row.values, *left_out])
                    self.write_row(fitted)
                if step.changes and step.state is None:
                    states.write(self._session, schema, layout, step.key, None)
        except UsageError as error:
            return str(error)
        except psycopg.Error as error:
            return reason_of(error) if error.sqlstate in _MISFIT else blame.reason(error)
        return None

    def write_row(self, row: Row | Gone) -> None:
        """Write a related row, or delete it, its values as they are. Raises what the server says, and `UsageError`."""
        table, its = self._find(row.table)
        declared = {column.name: column.declared for column in its.columns}
        if strangers := [name for name in row.values if name not in declared]:
            raise UsageError(wrong_columns(row, strangers, declared))
        values = {f"v{place}": _bound(row.table, name, value) for place, (name, value) in enumerate(row.values.items())}
        casts = [f"CAST(%(v{place})s AS {sent(uncut(declared[name]))})" for place, name in enumerate(row.values)]
        names = [*map(quoted, row.values)]
        if isinstance(row, Gone):
            terms = " AND ".join(f"{name} = {cast}" for name, cast in zip(names, casts, strict=True))
            self._session.run(f"DELETE FROM {table} WHERE {terms}", **values)
            return
        if not any(_names_rows(index) and index.columns == set(row.keys) for index in its.unique):
            raise UsageError(no_unique_index(row))
        others = [quoted(name) for name in row.values if name not in row.keys]
        ending = on_conflict(map(quoted, row.keys), others)
        its_key = " AND ".join(
            f"t.{name} = {cast}" for name, cast, key in zip(names, casts, row.values, strict=True) if key in row.keys
        )
        # As in `Layout.upserts`: a row that is there takes no number of a sequence.
        if drawn := [quoted(column.name) for column in its.columns if column.drawn and column.name not in row.values]:
            self._session.run(
                f"INSERT INTO {table} ({', '.join([*names, *drawn])}) OVERRIDING SYSTEM VALUE "
                f"SELECT {', '.join([*casts, *(f't.{name}' for name in drawn)])} FROM {table} AS t WHERE {its_key} "
                f"{ending}",
                **values,
            )
        new = f"NOT EXISTS (SELECT 1 FROM {table} AS t WHERE {its_key})" if drawn else "true"
        self._session.run(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(casts)} WHERE {new} {ending}", **values
        )

    def _fitted(self, row: Row | Gone) -> Row | Gone:
        """The row with values as its columns have them. Raises `UsageError` for one that its column cannot have."""
        columns = {column.name: column for column in self._find(row.table)[1].columns}
        values = dict(row.values)
        for name in columns.keys() & values.keys():
            try:
                values[name] = taken_by(columns[name].declared, columns[name].enum)(values[name])
            except Misfit as error:
                raise UsageError(f"{row.table}.{name} {error}") from error
        return Gone(row.table, values) if isinstance(row, Gone) else Row(row.table, values, keys=row.keys)

    def _find(self, table: str) -> tuple[str, Relation]:
        """The table of this name, as SQL and as it is."""
        if table not in self._found:
            there, name = self._session.beside(table)
            if kind_of_relation(there, name) is None:
                raise UsageError(str(missing(self._session.spec, table)))
            check_tables(there, [name], self._shown)
            self._found[table] = there.of(name), relation(there, name)
        return self._found[table]


def _bound(table: str, name: str, value: Any) -> Any:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{table}.{name} is no text: {error.reason}") from error
        if "\0" in value:
            raise UsageError(f"{table}.{name} has a NUL character, which Postgres cannot hold in text")
    return value
