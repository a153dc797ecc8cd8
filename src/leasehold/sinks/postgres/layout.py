"""The shape of an entity table in Postgres: what it has to be for a DataFrame, and the SQL that writes to it.

Owns CREATE TABLE for a table that is missing and the comparison with one that is there. All that is wrong with it is
said at once, column by column, before anything is written. A column of the DataFrame is the table's column of just this
name, or else the only one whose name differs in capital letters alone.

Alters a table only where `schema_evolution` is `add`, and then by columns alone that take NULL, so that writers that do
not know them go on as before. ALTER TABLE waits for those who write the table now, and holds up the others until this
transaction ends. The caller holds the lock under which entity tables are made: of two who add the same columns, the
second finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.database.statements import sent, unsent
from leasehold.errors import SchemaMismatch
from leasehold.sinks.postgres.blame import Blame
from leasehold.sinks.postgres.catalog import ROOM, Relation, TableColumn, kind_of_relation, relation
from leasehold.sinks.postgres.names import quoted
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.types import Enumeration, Way, carrier_into, declared_for, is_array, way
from leasehold.sinks.postgres.ways_out import way_out
from leasehold.sinks.rules.columns import (
    addable,
    column_list,
    misfits,
    on_conflict,
    qualified,
    refuse_columns,
    stored_fields,
)
from leasehold.sinks.rules.table_spec import TableSpec, folded, ordered_keys

FILLFACTOR = 50
"""Percent of a page that new rows fill: a batch may change all rows of a page, and each finds room for its new version
there, so that no index has to be written. With 70 half of them do not (docs/table.md)."""
SHORT = 1000
"""Bytes of values beside the key with which a row has room in an index, and twice that with the key: a third of a page
is some 2,700. The rest is for columns that rows do not have: if somebody else has filled them with more, a row that the
index refuses may count as one that a later row has replaced."""
_AROUND = 11
"""Bytes that text takes beside its own: its length, and what stands before and behind it."""
_LONGEST = 63
"""Bytes of a name; Postgres cuts off what is longer."""
_MAY_ALTER = """
SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
"""
_TAKEN = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
_OTHERS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column to write: its name in the table, the type of the staging table's column, and the way between them."""

    name: str
    declared: str
    carrier: str
    way: Way
    not_null: bool
    width: int
    enum: Enumeration | None

    @property
    def described(self) -> str:
        """The type, with the labels of an enum."""
        return self.declared if self.enum is None else f"{self.declared}, whose labels are {self.enum.shown}"

    def value(self, staged: str) -> str:
        """SQL for the value in the table."""
        return self.way.cast.format(staged)

    def sorted_by(self, value: str) -> str:
        """SQL for what values are sorted by where any order will do: text by its bytes, not as a language has it."""
        text = self.declared == "text" or self.declared.startswith("character varying")
        return f'{value} COLLATE "C"' if text else value

    def held(self, staged: str) -> str:
        """SQL for the value as the column has it, to be compared: text is cut off at its length, NULL does not fit."""
        if self.way.held is not None:
            return self.way.held.format(staged)
        value, fits = self.value(staged), self.fits(staged)
        return value if fits is None else f"CASE WHEN {fits} THEN {value} END"

    def fits(self, staged: str) -> str | None:
        """SQL for a condition that every value which the column takes fulfils; None if all do."""
        return None if self.way.fits is None else "(" + self.way.fits.replace("{}", staged) + ")"

    def most_bytes(self, staged: str) -> str:
        """SQL for how much of its row's page the value takes at most."""
        if self.declared in ("text", "bytea") or self.declared.startswith("character varying"):
            return f"least(coalesce(octet_length({staged}) + {_AROUND}, 0), {self.width})"
        return f"CASE WHEN {staged} IS NULL THEN 0 ELSE {self.width} END"


@dataclass(frozen=True, slots=True)
class Layout:
    """How to write rows: `columns` of the DataFrame into `targets`. `keys` are the positions of the key columns.

    `added` are the names and types of the columns that the table had not before.
    """

    columns: tuple[str, ...]
    keys: tuple[int, ...]
    targets: tuple[TargetColumn, ...]
    relation: Relation
    added: tuple[str, ...] = ()

    @property
    def key_targets(self) -> tuple[TargetColumn, ...]:
        return tuple(self.targets[place] for place in self.keys)

    @property
    def given(self) -> frozenset[str]:
        """The table's columns that rows have values for."""
        return frozenset(target.name for target in self.targets)

    @property
    def gives_all(self) -> bool:
        """Whether rows have a value for every column of the table."""
        return len(self.targets) == len(self.relation.columns)

    @property
    def lets_last_alone(self) -> bool:
        """Whether the table has no rule that could see a row which a later row of its key replaces.

        What values alone may break, `lets_replace` says of each batch.
        """
        found, keys = self.relation, {target.name for target in self.key_targets}
        rules = found.checks or found.foreign or found.exclusions or found.ruled or found.watched or not found.plain
        return (
            bool(keys)
            and not rules
            and found.fits_page
            and not any(column.is_generated or column.is_domain for column in found.columns)
            and all(index.plain and index.columns == keys for index in found.unique)
        )

    def lets_replace(self, data: pa.Table) -> bool:
        """Whether none of these rows lacks a value that the table asks for, or has one that a column or index may not
        take. Keys that differ are different in the table then.
        """
        if any(types.is_dictionary(column.type) for column in data.columns):
            return False
        if not all(target.way.takes(column) for target, column in zip(self.targets, data.columns, strict=True)):
            return False
        size = keys = 0
        for place, (target, column) in enumerate(zip(self.targets, data.columns, strict=True)):
            if target.not_null and place not in self.keys and column.null_count:
                return False
            if target.name in self.relation.indexed and place in self.keys:
                keys += _longest(column)
            elif target.name in self.relation.indexed:
                size += _longest(column)
        return not size or (size <= SHORT and keys + size <= 2 * SHORT)

    def may_outgrow_page(self, staged: str) -> str | None:
        """SQL for whether a row may not fit its page; None if every row does. The table's row, if there is one, is `t`.

        It tells what a row keeps of columns that rows have no values for, and that are NULL in a new one.
        """
        found, given = self.relation, self.given
        if found.fits_page:
            return None
        sizes = [target.most_bytes(f"{staged}.c{place}") for place, target in enumerate(self.targets)]
        for column in found.columns:
            if column.name not in given and (column.has_default or column.is_generated or column.is_domain):
                sizes.append(str(column.width))
            elif column.name not in given:
                sizes.append(f"CASE WHEN t.{quoted(column.name)} IS NULL THEN 0 ELSE {column.width} END")
        return f"{' + '.join(sizes)} > {ROOM}"

    def key_values(self, staged: str) -> list[str]:
        """SQL for the values of the key, in the table, of the row that is staged behind this alias."""
        pairs = zip(self.keys, self.key_targets, strict=True)
        return [key.value(f"{staged}.c{place}") for place, key in pairs]

    def is_row(self, staged: str) -> str:
        """SQL for whether the table's row `t` is the one that is staged behind this alias."""
        return self.is_row_of(self.key_values(staged))

    def is_row_of(self, values: Sequence[str]) -> str:
        """SQL for whether the table's row `t` has these values of the key."""
        pairs = zip(self.key_targets, values, strict=True)
        return " AND ".join(f"t.{quoted(key.name)} = {value}" for key, value in pairs)

    def order(self, values: Sequence[str]) -> str:
        """SQL that sorts by these values of the key, in the order in which all writers go through keys."""
        pairs = zip(self.key_targets, values, strict=True)
        return ", ".join(key.sorted_by(value) for key, value in pairs)

    @property
    def drawn(self) -> tuple[str, ...]:
        """The columns that get a number of a sequence, since rows have no values for them."""
        given = self.given
        return tuple(
            quoted(column.name) for column in self.relation.columns if column.drawn and column.name not in given
        )

    def upserts(self, table: str, source: str, where: str, is_row: str, order: str = "") -> tuple[str, ...]:
        """The statements that write those rows of `source` for which `where` holds, in this order; see `insert`.

        The server computes what rows are not given before it looks whether they are there. So that a row which is there
        takes no number of a sequence, it is given the one that it has, by a statement of its own: the first. `is_row`
        says that the table's row `t` is that of `s`.
        """
        ending = f" ORDER BY {order}" if order else ""
        if not (self.drawn and self.keys):
            return (self.insert(table, f"{source} WHERE {where}{ending}"),)
        there = f"{source} JOIN {table} AS t ON {is_row} WHERE {where}{ending}"
        new = f"{source} WHERE {where} AND NOT EXISTS (SELECT 1 FROM {table} AS t WHERE {is_row}){ending}"
        return self.insert(table, there, there=True), self.insert(table, new)

    def insert(self, table: str, source: str, *, there: bool = False) -> str:
        """The statement that writes the rows of `source`, whose columns are those of staging behind the alias `s`.

        With `there` they are all in the table, and `source` has them as `t`.
        """
        kept = self.drawn if there else ()
        names = ", ".join([*(quoted(target.name) for target in self.targets), *kept])
        values = ", ".join(
            [
                *(target.value(f"s.c{place}") for place, target in enumerate(self.targets)),
                *(f"t.{name}" for name in kept),
            ]
        )
        overriding = "OVERRIDING SYSTEM VALUE " if kept else ""
        statement = f"INSERT INTO {table} AS written ({names}) {overriding}SELECT {values} FROM {source}"
        if not self.keys:
            return statement
        others = [quoted(target.name) for place, target in enumerate(self.targets) if place not in self.keys]
        return f"{statement} {on_conflict((quoted(target.name) for target in self.key_targets), others)}"


def _longest(column: Any) -> int:
    """Bytes of the longest value of a column; far too many where that is not known."""
    if types.is_string(column.type) or types.is_large_string(column.type) or types.is_binary(column.type):
        return pc.max(pc.binary_length(column)).as_py() or 0
    plain = types.is_primitive(column.type) or types.is_boolean(column.type)
    return 16 if plain else SHORT + 1


def fit(session: PostgresSession, schema: pa.Schema, *, only_look: bool = False) -> Layout:
    """Check `schema` against the table, which is made if it is missing, or gets what it lacks. Raises `SchemaMismatch`.

    With `only_look` a table that is there is not altered: the layout is that of the table as it would be.
    """
    spec = session.spec
    fields = stored_fields(spec, schema, "Postgres")
    kind = kind_of_relation(session, spec.name)
    if kind is None:
        session.run(created(session, fields))
    elif kind not in ("r", "p"):
        raise SchemaMismatch(
            f"{spec.called} is {_OTHERS.get(kind, 'no table')}. Name a table, or one that does not exist: it will be "
            "made"
        )
    found = relation(session, spec.name)
    new = _new_columns(session, fields, found)
    added = tuple(f"{quoted(column.name)} {column.declared}" for column in new)
    if new and only_look:
        found = replace(found, columns=(*found.columns, *new))
        return replace(compared(spec, fields, found), added=added)
    if new:
        compared(spec, fields, replace(found, columns=(*found.columns, *new)))  # before anybody has to wait for it
        columns = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in added)
        session.run(f"ALTER TABLE {session.names.table} {columns}")
        found = relation(session, spec.name)
    layout = compared(spec, fields, found)
    _try(session, layout)
    return replace(layout, added=added)


def _new_columns(session: PostgresSession, fields: Sequence[pa.Field], relation: Relation) -> list[TableColumn]:
    """The columns that are to be added. Raises `SchemaMismatch` where this user may not."""
    missing = [
        (field.name, declared)
        for field in addable(session.spec, fields, [column.name for column in relation.columns])
        if field.name not in _TAKEN and len(field.name.encode()) <= _LONGEST
        if (declared := declared_for(field.type, is_key=False)) is not None
    ]
    if missing and not session.one(_MAY_ALTER, schema=session.names.schema, name=session.spec.name):
        what = "is not in the table, and only the table's owner may add it: let a member of that role do so, by "
        table = unsent(session.names.table)
        refuse_columns(
            session.spec, [(name, f"{what}ALTER TABLE {table} ADD COLUMN {quoted(name)} {it}") for name, it in missing]
        )
    return [TableColumn(name, declared, False, False, False, False, False, True) for name, declared in missing]


def created(session: PostgresSession, fields: Sequence[pa.Field]) -> str:
    """The statement that makes the table. Raises `SchemaMismatch` for fields of which no column can be made."""
    spec = session.spec
    keys = {folded(name) for name in spec.keys}
    wrong = []
    for name in (field.name for field in fields if field.name in _TAKEN or len(field.name.encode()) > _LONGEST):
        what = "taken by Postgres itself" if name in _TAKEN else f"longer than {_LONGEST} bytes"
        wrong.append((name, f"is a name {what}: give the column another one, by an alias"))
    columns = column_list(
        spec, fields, lambda field: declared_for(field.type, is_key=folded(field.name) in keys), wrong
    )
    room = f" WITH (fillfactor = {FILLFACTOR})" if spec.keys else ""
    return f"CREATE TABLE {session.names.table} ({sent(columns)}){room}"


def key_types(spec: TableSpec, fields: Sequence[pa.Field]) -> list[str]:
    """How the key columns of a table that is made of these fields are declared, in the order of the memory of keys."""
    declared = {folded(field.name): declared_for(field.type, is_key=True) for field in fields}
    return [declared[folded(key)] or "" for key in ordered_keys(spec)]


def compared(spec: TableSpec, fields: Sequence[pa.Field], relation: Relation) -> Layout:
    """How rows of these fields are written to the table as it is. Raises `SchemaMismatch`."""

    def named(name: str) -> TableColumn | None:
        return column_named(relation, name)

    def declared(field: pa.Field) -> str | None:
        return declared_for(field.type, is_key=False)

    def unfit(field: pa.Field, column: TableColumn) -> str | None:
        fits = way(field.type, column.declared, column.enum) is not None
        return None if fits else way_out(spec, field, column)

    refuse_columns(spec, misfits(spec, fields, relation.columns, named, declared, unfit))
    targets = [
        TargetColumn(
            *(column.name, column.declared, carrier_into(field.type, column.declared), there),
            *(column.not_null, column.width, column.enum),
        )
        for field in fields
        if (column := named(field.name)) and (there := way(field.type, column.declared, column.enum))
    ]
    places = {folded(field.name): place for place, field in enumerate(fields)}
    keys = tuple(places[folded(key)] for key in ordered_keys(spec))
    if keys and (problem := _key_problem(spec, relation, [targets[place].name for place in keys])):
        refuse_columns(spec, [(", ".join(spec.keys), problem)])
    return Layout(tuple(field.name for field in fields), keys, tuple(targets), relation)


def column_named(relation: Relation, name: str) -> TableColumn | None:
    """The column of just this name, or else the only one whose name differs in capital letters alone."""
    exact = [column for column in relation.columns if column.name == name]
    alike = [column for column in relation.columns if folded(column.name) == folded(name)]
    return exact[0] if exact else alike[0] if len(alike) == 1 else None


def _key_problem(spec: TableSpec, relation: Relation, keys: Sequence[str]) -> str | None:
    """What keeps the key columns from being what the table knows a row by."""
    if not any(index.plain and index.immediate and index.columns == frozenset(keys) for index in relation.unique):
        made = f"CREATE UNIQUE INDEX ON {qualified(spec.called)} ({', '.join(map(quoted, keys))})"
        return (
            "neither the primary key nor a unique index that is checked at once is on exactly these columns: correct "
            f"keys, or {made}"
        )
    if arrays := [column.name for column in relation.columns if column.name in keys and is_array(column.declared)]:
        return f"{arrays[0]} is an array, and no row is known by one: write a text of it, and let that be the key"
    loose = [column.name for column in relation.columns if column.name in keys and not column.comparable]
    if loose:
        return f"the table compares {loose[0]} otherwise than as it is: give it a deterministic collation, or type text"
    return None


def _try(session: PostgresSession, layout: Layout) -> None:
    """Have the server read the statement that will write, as far as it goes without staging."""
    columns = ", ".join(f"NULL::{target.carrier} AS c{place}" for place, target in enumerate(layout.targets))
    source = f"(SELECT {columns}) AS s"
    try:
        with session.savepoint():
            for statement in layout.upserts(session.names.table, source, "false", layout.is_row("s")):
                session.run(f"EXPLAIN {statement}")
    except psycopg.Error as error:  # of a default that is the same for all rows, the server computes it beforehand
        Blame(session, session.spec.name, layout.relation, layout.given).reason(error)
        raise
