"""One row written on trial, and undone: whether what a table's definition runs can run here.

Owns the statements. Only an error that lasts comes out, whoever is to blame: a row of `leasehold check` is nobody's
event. So it finds what writing runs into and reading does not show: functions in indexes, generated columns, CHECKs,
policies and triggers that name what this connection does not find, rights that are missing, a publication that needs
what the table has not, and a column that refuses its own default.

The row is one that is there, which nobody has locked, or else one that is made up, and then a rule may refuse it before
all has run. A copy of the table's definition shows what indexes and rules do; the table itself, the rest. Whoever wants
this row waits for a moment. What a trigger does outside of the database is not undone. No number of a sequence is taken
by the table, unless a default's function does so. Where this user lacks a right that batches may do without, less is
tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg

from leasehold.database.postgres.troubles import is_the_rows
from leasehold.database.statements import sent, unsent
from leasehold.sinks.postgres.blame import Blame
from leasehold.sinks.postgres.catalog import Relation
from leasehold.sinks.postgres.layout import Layout
from leasehold.sinks.postgres.names import quoted
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.types import is_array

_COPY = 'pg_temp."leasehold trial"'
_DEFAULTS = """
SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
WHERE adrelid = to_regclass(%(name)s) AND attgenerated = '' AND pg_get_expr(adbin, adrelid) NOT LIKE '%%nextval(%%'
"""
_MADE_UP = {
    **dict.fromkeys(("smallint", "integer", "bigint", "numeric", "real", "double precision"), "0"),
    **dict.fromkeys(("text", "character varying", "character", "bytea"), "''"),
    **dict.fromkeys(("date", "timestamp with time zone", "timestamp without time zone"), "'2000-01-01'"),
    **dict.fromkeys(("json", "jsonb"), "'{}'"),
    "boolean": "false",
    "uuid": "'00000000-0000-0000-0000-000000000000'",
}


def write_a_row(session: PostgresSession, layout: Layout) -> None:
    """Write a row as a batch would. Raises what would fail every batch, as the server says it."""
    if session.missing_rights(session.spec.name, ["SELECT"]):
        return
    table, columns = session.names.table, _given(layout.relation)
    Blame(session, session.spec.name, layout.relation, layout.given).look()
    there, row = tried_row(session, table, layout.relation, lock=bool(layout.keys))
    show_definition(session, table, columns, row)
    if not there and layout.drawn:
        return  # a new row would take a number
    staged = ", ".join(
        f"CAST(r.{quoted(target.name)} AS {target.carrier}) AS c{place}" for place, target in enumerate(layout.targets)
    )
    source = f"(SELECT {staged} FROM ({row}) AS r({columns})) AS s"
    written = layout.upserts(table, source, "true", layout.is_row("s") if layout.keys else "")
    undone(session, *written, *written)  # the second time it is there in any case
    if there and layout.keys and not layout.relation.plain and _may_go(session, layout):
        kept = f"CREATE TEMPORARY TABLE {_COPY} AS {row}"
        same = " AND ".join(f"t.{name} = r.{name}" for name in (quoted(key.name) for key in layout.key_targets))
        gone = f"DELETE FROM {table} AS t USING {_COPY} AS r WHERE {same}"
        again = f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {_COPY}"
        undone(session, kept, gone, again)


def _may_go(session: PostgresSession, layout: Layout) -> bool:
    """Whether the row may be deleted, to be inserted again."""
    referred = any(not key.outgoing for key in layout.relation.foreign)
    return not referred and not session.missing_rights(session.spec.name, ["DELETE"])


def tried_row(session: PostgresSession, table: str, relation: Relation, *, lock: bool) -> tuple[bool, str]:
    """Whether there is a row, and what selects one of those there are, or else one that is made up."""
    if session.one(f"SELECT EXISTS (SELECT 1 FROM {table})"):
        return True, f"SELECT {_given(relation)} FROM {table} LIMIT 1{' FOR UPDATE SKIP LOCKED' if lock else ''}"
    return False, f"SELECT {', '.join(_made_up(relation))}"


def show_definition(session: PostgresSession, table: str, columns: str, row: str) -> None:
    """What the table's indexes and rules run, runs for this row in a copy of its definition."""
    undone(
        session,
        f"CREATE TEMPORARY TABLE {_COPY} (LIKE {table} INCLUDING ALL EXCLUDING DEFAULTS EXCLUDING IDENTITY "
        "EXCLUDING STATISTICS EXCLUDING COMMENTS)",
        f"INSERT INTO {_COPY} ({columns}) {row}",
    )


def run_defaults(session: PostgresSession, table: str) -> None:
    """What the table's defaults run, runs once; no number of a sequence is taken."""
    if defaults := session.rows(_DEFAULTS, name=unsent(table)):
        undone(session, f"SELECT {', '.join(sent(default) for (default,) in defaults)}")


def _given(relation: Relation) -> str:
    return ", ".join(quoted(column.name) for column in relation.columns if not column.is_generated)


def _made_up(relation: Relation) -> Iterator[str]:
    for column in relation.columns:
        if not column.is_generated:
            declared = sent(column.declared)
            value = _MADE_UP.get(column.declared.partition("(")[0], "NULL")
            if is_array(declared):
                value = "'{}'"
            elif column.enum is not None:
                value = f"enum_first(NULL::{declared})"
            yield f"CAST({value} AS {declared}) AS {quoted(column.name)}"


def undone(session: PostgresSession, *statements: str | Callable[[], None]) -> None:
    """Run these, and undo them. Raises what lasts, and is no row's fault."""
    try:
        with session.savepoint():
            for statement in statements:
                if isinstance(statement, str):
                    session.run(statement)
                else:
                    statement()
            raise psycopg.Rollback
    except psycopg.Error as error:
        if not is_the_rows(error):
            raise
