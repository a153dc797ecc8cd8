"""Rows of related tables in SQLite. The rules are in `sinks.beside.related`.

Owns their SQL. Runs inside the transaction of a batch, which locks the database from its first statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from leasehold.database.statements import quoted
from leasehold.errors import ConfigError, SchemaMismatch, SinkError, UsageError, Verdict
from leasehold.formats.misfits import Misfit
from leasehold.sinks.beside.related import RelatedTable, check_names, missing, no_unique_index, wrong_columns
from leasehold.sinks.rules.columns import on_conflict
from leasehold.sinks.rules.related import EntityStep, Gone, Row
from leasehold.sinks.rules.table_name import TableName
from leasehold.sinks.rules.table_spec import TableSpec, folded
from leasehold.sinks.rules.values import convert
from leasehold.sinks.sqlite import states
from leasehold.sinks.sqlite.affinity import affinity, kept
from leasehold.sinks.sqlite.blame import ROW_ERRORS, is_the_rows, refuse_own_columns
from leasehold.sinks.sqlite.shape import TableShape


def check(connection: sqlite3.Connection, spec: TableSpec, tables: Collection[str]) -> None:
    """See `RelatesTables`."""
    check_names(spec, tables)
    for table in tables:
        name = _name_of(table)
        query = "SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')"
        if (found := connection.execute(query, (name,)).fetchone()) is None:
            raise missing(spec, table)
        if found[0] == "view":
            raise ConfigError("related", table, "it is a view", "Name a table")


def shown(connection: sqlite3.Connection, spec: TableSpec, table: str) -> RelatedTable:
    """See `RelatesTables`."""
    check(connection, spec, [table])
    name = _name_of(table)
    columns = _columns(connection, name)
    given = tuple(one for one, its in columns.items() if not its.computed)
    found = RelatedTable(given, tuple(tuple(sorted(keys)) for keys in _unique(connection, name)))
    for statement, places in _explained(name, found):
        try:
            connection.execute(f"EXPLAIN {statement}", [None] * places)
        except sqlite3.OperationalError as error:
            raise SchemaMismatch(
                f"SQLite cannot write to the table {table} as it is: {error}. Correct its indexes or triggers"
            ) from error
    return found


def _explained(name: str, related: RelatedTable) -> Iterator[tuple[str, int]]:
    """Statements that need all that writing to the table runs, and how many values are bound in each."""
    names = [*map(quoted, related.columns)]
    insert = f"INSERT INTO {quoted(name)} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    for keys in related.keys[:1]:
        insert += f" {on_conflict(map(quoted, keys), names)}"
    yield insert, len(names)
    yield f"DELETE FROM {quoted(name)}", 0


@dataclass(frozen=True, slots=True)
class _Column:
    """A column's affinity, whether the table computes it, and whether it has a default."""

    affinity: str
    computed: bool
    has_default: bool


class SqliteSteps:
    """Writes what events make of their entities, in one transaction. What is known of a table holds that long."""

    def __init__(self, connection: sqlite3.Connection, spec: TableSpec) -> None:
        self._connection, self._spec = connection, spec
        self._columns: dict[str, Mapping[str, _Column]] = {}
        self._unique: dict[str, list[set[str]]] = {}
        self._sent: list[tuple[str | None, int]] = []
        self._written: tuple[str, Collection[str]] = spec.name, ()  # the last row's table, and what that does not fill

    def write(self, schema: pa.Schema, layout: TableShape, step: EntityStep) -> str | None:
        """See `WritesBeside`."""
        execute = self._connection.execute
        execute("SAVEPOINT leasehold_step")
        self._written = self._spec.name, layout.columns
        self._sent = [(layout.upsert, len(layout.columns)), (layout.delete, len(layout.keys))]
        try:
            if step.changes and step.state is not None:
                states.write(self._connection, self._spec, schema, layout, step.key, step.state)
            for row in step.rows:
                self._write(row)
            if step.changes and step.state is None:
                states.write(self._connection, self._spec, schema, layout, step.key, None)
        except (*ROW_ERRORS, UsageError) as error:
            if isinstance(error, sqlite3.Error) and not is_the_rows(self._connection, error, self._sent):
                raise
            if not self._connection.in_transaction:
                raise SinkError(
                    f"a table related to {self._spec.name} ended the transaction of the batch: {error}. Nothing of it "
                    "was applied. Let its triggers RAISE(ABORT) and its constraints not say ON CONFLICT ROLLBACK",
                    verdict=Verdict.ROWS,
                ) from error
            execute("ROLLBACK TO leasehold_step")
            execute("RELEASE leasehold_step")
            if isinstance(error, sqlite3.Error):
                refuse_own_columns(self._connection, *self._written, error)
            return str(error)
        execute("RELEASE leasehold_step")
        return None

    def _write(self, row: Row | Gone) -> None:
        columns = self._columns_of(row.table)
        by_name = {folded(name): its for name, its in columns.items()}
        if strangers := [name for name in row.values if folded(name) not in by_name]:
            raise UsageError(wrong_columns(row, strangers, columns))
        values = [_bound(row.table, name, by_name[folded(name)], value) for name, value in row.values.items()]
        if isinstance(row, Gone):
            terms = " AND ".join(f"{quoted(name)} = ?" for name in row.values)
            self._execute(f"DELETE FROM {quoted(_name_of(row.table))} WHERE {terms}", values)
            return
        if own := [name for name in row.values if by_name[folded(name)].computed]:
            raise UsageError(f"{row.table} computes {', '.join(own)} by itself: leave it out")
        if {folded(name) for name in row.keys} not in self._unique_of(row.table):
            raise UsageError(no_unique_index(row))
        others = [quoted(name) for name in row.values if name not in row.keys]
        left_out = [name for name, its in columns.items() if not its.has_default]  # by this row, and not by each
        self._written = _name_of(row.table), [*row.values, *left_out]
        self._execute(
            f"INSERT INTO {quoted(_name_of(row.table))} ({', '.join(map(quoted, row.values))}) "
            f"VALUES ({', '.join('?' * len(values))}) {on_conflict(map(quoted, row.keys), others)}",
            values,
        )

    def _execute(self, statement: str, values: list[Any]) -> None:
        self._sent.append((statement, len(values)))
        self._connection.execute(statement, values)

    def _columns_of(self, table: str) -> Mapping[str, _Column]:
        if table not in self._columns:
            found = _columns(self._connection, _name_of(table))
            if not found:
                raise UsageError(str(missing(self._spec, table)))
            self._columns[table] = found
        return self._columns[table]

    def _unique_of(self, table: str) -> list[set[str]]:
        if table not in self._unique:
            self._unique[table] = _unique(self._connection, _name_of(table))
        return self._unique[table]


def _name_of(table: str) -> str:
    """The name of a related table. Raises `ConfigError` for one with a schema."""
    return TableName.parse(table, "related").without_schema("SQLite", "related")


def _columns(connection: sqlite3.Connection, table: str) -> dict[str, _Column]:
    """The columns of a table by their names."""
    query = (
        "SELECT name, type, hidden > 1, dflt_value IS NOT NULL, (SELECT strict FROM pragma_table_list(:table)) "
        "FROM pragma_table_xinfo(:table)"
    )
    found = connection.execute(query, {"table": table}).fetchall()
    return {
        str(name): _Column(affinity(str(declared), strict=bool(strict)), bool(computed), bool(given))
        for name, declared, computed, given, strict in found
    }


def _unique(connection: sqlite3.Connection, table: str) -> list[set[str]]:
    """The columns, folded, that name a row of it."""
    execute = connection.execute
    keys = {folded(name) for (name,) in execute("SELECT name FROM pragma_table_info(?) WHERE pk", (table,))}
    found = [keys] if keys else []
    for (index,) in execute(
        'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', (table,)
    ).fetchall():
        names = {folded(str(name)) for (name,) in execute("SELECT name FROM pragma_index_info(?)", (index,))}
        if names not in found:
            found.append(names)
    return found


def _bound(table: str, name: str, column: _Column, value: Any) -> Any:
    try:
        bound = convert(pa.array([kept(column.affinity, value)]))
    except Misfit as error:
        raise UsageError(f"{table}.{name} {error}") from error
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise UsageError(f"{table}.{name}: {error}") from error
    if bound.problems:
        raise UsageError(f"{table}.{name} {bound.problems[0]}")
    return bound.values[0]
