"""The shape of an entity table: what it has to be for a DataFrame, and the statements that write to it.

Owns CREATE TABLE for a table that is missing and the comparison with one that is there. Promises that a
DataFrame which passes can be written: every statement has been prepared once. All that is wrong with it is
said at once, column by column, before anything is written. Alters a table only where `schema_evolution` is `add`, and
then by columns alone that take NULL: writers that do not know them go on as before.

Names are quoted, values are bound. A table's own `ON CONFLICT IGNORE` and `RAISE(IGNORE)` stay in force:
what they drop, the table's maker wanted dropped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow import types

from leasehold.database.statements import quoted
from leasehold.errors import SchemaMismatch
from leasehold.formats.misfits import type_name
from leasehold.sinks.rules.columns import (
    addable,
    column_list,
    misfits,
    on_conflict,
    refuse_columns,
    stored_fields,
    to_write,
)
from leasehold.sinks.rules.table_spec import FENCE_COLUMNS, TableSpec, folded, ordered_keys
from leasehold.sinks.rules.values import ColumnKind, kind_of
from leasehold.sinks.sqlite.affinity import EXACT_DIGITS, affinity
from leasehold.sinks.sqlite.inserts import Insert
from leasehold.sinks.sqlite.rules import sees_each_row

_ANY_OF = (pa.float64(), pa.int64(), pa.string(), pa.binary())
"""Types of which every column takes one."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """How to write rows: `columns` are to be bound for `insert`, in this order, and the keys for `delete`.

    `keys` are the positions in `columns` of the key columns, in the order of the memory of keys. `added` are the names
    and types of the columns that the table had not before. `last_alone` says that of several rows of a key the last one
    may be written alone: no rule of the table could see the others.
    """

    columns: tuple[str, ...]
    keys: tuple[int, ...]
    insert: Insert
    delete: str | None
    added: tuple[str, ...] = ()
    last_alone: bool = False

    @property
    def upsert(self) -> str:
        """The statement that writes one row."""
        return self.insert.of(1)


def exists(connection: sqlite3.Connection, name: str) -> bool:
    """Whether there is a table or view of this name."""
    query = "SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')"
    return connection.execute(query, (name,)).fetchone() is not None


def fit(connection: sqlite3.Connection, spec: TableSpec, schema: pa.Schema) -> TableShape:
    """Check `schema` against the table, which is made, or given what it lacks. Raises `SchemaMismatch`."""
    added: tuple[str, ...] = ()
    fields = stored_fields(spec, schema, "SQLite")
    kind = connection.execute(
        "SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')", (spec.name,)
    ).fetchone()
    if kind is None:
        connection.execute(created(spec, fields))
    elif kind[0] == "view":
        raise SchemaMismatch(f"{spec.name} is a view. Name a table, or one that does not exist: it will be made")
    else:
        added = _add(connection, spec, fields)
        _compare(connection, spec, fields)
    layout = _layout(spec, fields)
    for statement, values in ((layout.upsert, layout.columns), (layout.delete, layout.keys)):
        if statement:
            try:
                connection.execute(f"EXPLAIN {statement}", [None] * len(values))
            except sqlite3.OperationalError as error:
                raise SchemaMismatch(
                    f"SQLite cannot write to the table {spec.name} as it is: {error}. Correct its indexes or triggers"
                ) from error
    return replace(layout, added=added, last_alone=bool(spec.keys) and not sees_each_row(connection, spec))


def _declared(field: pa.Field) -> str | None:
    """The type that a column of a new table is declared with."""
    kind = kind_of(field.type)
    if kind is None or kind is ColumnKind.NOTHING:
        return None
    return {ColumnKind.INTEGER: "INTEGER", ColumnKind.REAL: "REAL", ColumnKind.BLOB: "BLOB"}.get(kind, "TEXT")


def created(spec: TableSpec, fields: Sequence[pa.Field]) -> str:
    """The statement that makes the table. Raises `SchemaMismatch` for fields of which no column can be made."""
    return f"CREATE TABLE IF NOT EXISTS {quoted(spec.name)} ({column_list(spec, fields, _declared)})"


def _add(connection: sqlite3.Connection, spec: TableSpec, fields: Sequence[pa.Field]) -> tuple[str, ...]:
    """Add the columns that are missing, if that is wanted. The caller has locked the database."""
    types = [(field.name, _declared(field)) for field in addable(spec, fields, _columns(connection, spec.name)[0])]
    added = tuple(f"{quoted(name)} {declared}" for name, declared in types if declared)
    for column in added:
        connection.execute(f"ALTER TABLE {quoted(spec.name)} ADD COLUMN {column}")
    return added


@dataclass(frozen=True, slots=True)
class _TableColumn:
    name: str
    declared: str
    required: bool
    computed: bool


def _compare(connection: sqlite3.Connection, spec: TableSpec, fields: Sequence[pa.Field]) -> None:
    columns, strict = _columns(connection, spec.name)

    def unfit(field: pa.Field, column: _TableColumn) -> str | None:
        fit = fits(field.type, column.declared, strict=strict)
        return None if fit else _unfit(spec, field, column, strict=strict)

    wrong = misfits(spec, fields, columns.values(), lambda name: columns.get(folded(name)), _declared, unfit)
    if spec.keys and (problem := _key_problem(connection, spec)):
        wrong.append((", ".join(spec.keys), problem))
    refuse_columns(spec, wrong)


def _unfit(spec: TableSpec, field: pa.Field, column: _TableColumn, *, strict: bool) -> str:
    """What is wrong with a column whose type does not go with the field's, and what to do."""
    kind = kind_of(field.type) or ColumnKind.NOTHING
    made = f"make the table {spec.called} anew with {quoted(column.name)} {_declared(field) or 'TEXT'}"
    exact = [pa.decimal128(EXACT_DIGITS, min(field.type.scale, EXACT_DIGITS))] if kind is ColumnKind.DECIMAL else []
    takes = next((one for one in (*exact, *_ANY_OF) if fits(one, column.declared, strict=strict)), None)
    own = folded(field.name) in map(folded, FENCE_COLUMNS)  # which stay as the source gives them
    if kind is ColumnKind.JSON or takes is None or own:
        remedy = f"{made}, or keep it under another name" if own else made
    else:
        cast = "base64({})" if kind is ColumnKind.BLOB else "CAST({} AS {})"
        remedy = f"{to_write(field.name, type_name(takes), cast)}, or {made}"
    return f"is of type {field.type}, and the table declares it {column.declared or 'without a type'}: {remedy}"


def _columns(connection: sqlite3.Connection, table: str) -> tuple[dict[str, _TableColumn], bool]:
    """The table's columns by folded name, and whether it is STRICT."""
    rows = connection.execute(
        'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?)', (table,)
    ).fetchall()
    key = [name for name, _, _, _, position, _ in rows if position]
    indexed = connection.execute("SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk'", (table,)).fetchone()
    numbered = key[0] if len(key) == 1 and not indexed else None  # SQLite numbers its rows: it has a default
    columns = {
        folded(name): _TableColumn(
            name, declared, bool(not_null) and default is None and name != numbered and hidden < 2, hidden in (2, 3)
        )
        for name, declared, not_null, default, _, hidden in rows
    }
    listed = connection.execute("SELECT strict FROM pragma_table_list WHERE name = ? COLLATE NOCASE", (table,))
    return columns, any(strict for (strict,) in listed)


def _key_problem(connection: sqlite3.Connection, spec: TableSpec) -> str | None:
    """What keeps the key columns from being what the table knows a row by."""
    wanted = {folded(name) for name in spec.keys}
    columns = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk", (spec.name,)).fetchall()
    as_they_are = False
    others: set[str] = set()
    for index, unique, partial in connection.execute(
        'SELECT name, "unique", partial FROM pragma_index_list(?)', (spec.name,)
    ).fetchall():
        parts = connection.execute("SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", (index,)).fetchall()
        if unique and not partial and {folded(name or "") for name, _ in parts} == wanted:
            loose = {coll for _, coll in parts} - {"BINARY"}
            as_they_are, others = as_they_are or not loose, others | loose
    if others:  # also beside one that is BINARY: an upsert would find the row of another key by it
        how = ", ".join(sorted(others))
        return f"the table compares these keys by {how}, and keys have to be compared as they are (BINARY)"
    if as_they_are:
        return None
    if {folded(name) for (name,) in columns} == wanted:
        return None  # the number of the row itself, which has no index
    made = f"CREATE UNIQUE INDEX … ON {quoted(spec.name)} ({', '.join(map(quoted, spec.keys))})"
    return f"neither the primary key nor a unique index is on exactly these columns: correct keys, or {made}"


def fits(type_: pa.DataType, declared: str, *, strict: bool = False) -> bool:
    """Whether a column declared so stores values of this type as they are, by SQLite's rules of affinity."""
    kind = kind_of(type_)
    of = affinity(declared, strict=strict)
    if kind is None:
        return False
    if kind is ColumnKind.NOTHING or of == "ANY":
        return True
    if of == "BLOB":
        return kind is ColumnKind.BLOB or not strict
    if kind is ColumnKind.INTEGER:
        small = types.is_boolean(type_) or type_.bit_width < 64
        return of in ("INTEGER", "NUMERIC") or (of == "REAL" and small)
    if kind is ColumnKind.REAL:
        return of in ("REAL", "NUMERIC")
    if kind is ColumnKind.DECIMAL:
        exact = type_.precision <= EXACT_DIGITS
        return of == "TEXT" or (exact and of in ("NUMERIC", "REAL"))
    if of == "TEXT":
        return kind is not ColumnKind.BLOB
    # Text that is no number stays text in a NUMERIC column, which is what these names make.
    named = {ColumnKind.DATE: ("DATE", "TIME"), ColumnKind.TIMESTAMP: ("DATE", "TIME"), ColumnKind.JSON: ("JSON",)}
    return of == "NUMERIC" and any(word in declared.upper() for word in named.get(kind, ()))


def _layout(spec: TableSpec, fields: Sequence[pa.Field]) -> TableShape:
    names = tuple(field.name for field in fields)
    # The alias, since a table may be called excluded.
    insert = Insert(f"INSERT INTO {quoted(spec.name)} AS leasehold_row ({', '.join(map(quoted, names))})", len(names))
    if not spec.keys:
        return TableShape(names, (), insert, None)
    keys = ordered_keys(spec)
    places = {folded(name): index for index, name in enumerate(names)}
    key_places = tuple(places[folded(key)] for key in keys)
    others = [quoted(name) for place, name in enumerate(names) if place not in key_places]
    condition = " AND ".join(f"{quoted(key)} = ?" for key in keys)
    return TableShape(
        names,
        key_places,
        replace(insert, then=on_conflict(map(quoted, keys), others)),
        f"DELETE FROM {quoted(spec.name)} WHERE {condition}",
    )
