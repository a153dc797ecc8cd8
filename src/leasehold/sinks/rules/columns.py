"""Which columns of a DataFrame are stored, and which ones a table may be given.

Owns the rules that hold in every database, and the words of what is wrong. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from leasehold.database.statements import quoted
from leasehold.errors import SchemaMismatch, SinkError
from leasehold.sinks.rules.batch import check_fence
from leasehold.sinks.rules.table_name import TableName
from leasehold.sinks.rules.table_spec import ADD, FENCE_COLUMNS, TableSpec, folded, ordered_keys
from leasehold.sinks.rules.values import kind_of


def qualified(table: TableName) -> str:
    """The table's name in SQL, with its schema if that is known."""
    return ".".join(map(quoted, table.parts))


def on_conflict(keys: Iterable[str], other_columns: Iterable[str]) -> str:
    """The end of an INSERT that updates the row of these keys, where it is there, in the others. Names are quoted."""
    sets = ", ".join(f"{name} = excluded.{name}" for name in other_columns)
    return f"ON CONFLICT ({', '.join(keys)}) DO {f'UPDATE SET {sets}' if sets else 'NOTHING'}"


def stored_fields(spec: TableSpec, schema: pa.Schema, database: str) -> list[pa.Field]:
    """The columns to store, after a check of those that need no table to be found wrong."""
    check_fence(schema, "the DataFrame")
    fields = [field for field in schema if spec.is_stored(field.name)]
    there = {folded(field.name) for field in fields}
    asked = {**dict.fromkeys(spec.only_columns, "only_columns names it"), **dict.fromkeys(spec.keys, "is a key")}
    wrong = [
        (name, f"{why}, and no such column is to be written")
        for name, why in asked.items()
        if folded(name) not in there
    ]
    wrong += [(each.name, _unstorable(each.type, database)) for each in fields if kind_of(each.type) is None]
    if not fields:
        wrong.append(("(all)", f"there is nothing to store besides {', '.join(FENCE_COLUMNS)}: select more columns"))
    refuse_columns(spec, wrong)
    return fields


def _unstorable(type_: pa.DataType, database: str) -> str:
    return f"is of type {type_}, which {database} cannot hold: cast it to a string or a number, or leave it out"


def to_write(name: str, type_: str, expression: str = "CAST({} AS {})") -> str:
    """How a column of this name becomes one of another type in Spark's SQL; an `expression` is of both."""
    written = name if name.isidentifier() and name.isascii() else f"`{name.replace('`', '``')}`"
    return f"write it as {type_}, as by {expression.format(written, type_)} AS {written}"


def refuse_columns(spec: TableSpec, wrong: Iterable[tuple[str, str]]) -> None:
    """Raise `SchemaMismatch` that says all that is wrong, by column. Nothing wrong: nothing happens."""
    lines = [f"  {name}: {what}" for name, what in wrong]
    if lines:
        raise SchemaMismatch("\n".join([f"what is to be written does not fit the table {spec.called}:", *lines]))


class DeclaredColumn(Protocol):
    """A column of a table that is there."""

    @property
    def name(self) -> str: ...

    @property
    def declared(self) -> str:
        """Its type, in the database's words; empty for none."""

    @property
    def required(self) -> bool:
        """Whether each row has to give it a value."""

    @property
    def computed(self) -> bool:
        """Whether no row may give it one."""


C = TypeVar("C", bound=DeclaredColumn)
Declared = Callable[[pa.Field], str | None]
"""The type that a column of a new table is declared with, None where there is none."""


def column_list(
    spec: TableSpec, fields: Sequence[pa.Field], declared: Declared, wrong: Iterable[tuple[str, str]] = ()
) -> str:
    """The columns and the key of a new table, as CREATE TABLE has them in parentheses. Raises `SchemaMismatch`.

    `wrong` is what the database finds wrong with their names.
    """
    keys = {folded(name) for name in spec.keys}
    types = {field.name: declared(field) for field in fields}
    untyped = "has no type to make a column of: cast the null, or make the table yourself"
    refuse_columns(spec, [*wrong, *((name, untyped) for name, type_ in types.items() if type_ is None)])
    parts = [f"{quoted(name)} {type_}{' NOT NULL' if folded(name) in keys else ''}" for name, type_ in types.items()]
    if keys:
        written = {folded(name): quoted(name) for name in types}
        parts.append(f"PRIMARY KEY ({', '.join(written[folded(key)] for key in ordered_keys(spec))})")
    return ", ".join(parts)


def misfits(
    spec: TableSpec,
    fields: Iterable[pa.Field],
    columns: Iterable[C],
    named: Callable[[str], C | None],
    declared: Declared,
    unfit: Callable[[pa.Field, C], str | None],
) -> list[tuple[str, str]]:
    """What is wrong with these fields for a table of these columns; `named` finds the column that a field goes to.

    `unfit` says what is wrong where a column of its type does not hold the field's values, and what to do.
    """
    wrong, given = [], set()
    for field in fields:
        column = named(field.name)
        if column is None:
            wrong.append((field.name, how_to_add(spec, field.name, declared(field) or "TYPE")))
            continue
        given.add(column.name)
        if column.computed:
            wrong.append((field.name, "is computed by the table itself: leave it out"))
        elif (problem := unfit(field, column)) is not None:
            wrong.append((field.name, problem))
    needed = "is NOT NULL and has no default in the table, and is not to be written: add it"
    return [*wrong, *((one.name, needed) for one in columns if one.required and one.name not in given)]


def addable(spec: TableSpec, fields: Iterable[pa.Field], there: Iterable[str]) -> list[pa.Field]:
    """The columns that `schema_evolution` adds beside those that are there. No key: what is there has none."""
    others = {folded(name) for name in (*there, *spec.keys)}
    return [field for field in fields if folded(field.name) not in others] if spec.schema_evolution == ADD else []


def how_to_add(spec: TableSpec, column: str, declared: str) -> str:
    """What is wrong with a column that the table has not, and what to do."""
    asked = "" if spec.schema_evolution == ADD else f', set schema_evolution = "{ADD}"'
    return (
        f"is not in the table: leave it out{asked}, or ALTER TABLE {qualified(spec.called)} ADD COLUMN "
        f"{quoted(column)} {declared}"
    )


def own_columns_refused(table: str, columns: Sequence[str], text: str) -> SinkError:
    """The error where a table refuses what it gives columns by itself, which rows have no values for."""
    return SinkError(
        f"the table {table} refuses what it gives its own column {', '.join(columns)}, for which rows have no value: "
        f"{text}. Each new row would be refused for that, so nothing was applied, and nothing is lost. Correct the "
        "column's default, its type or its rule"
    )
