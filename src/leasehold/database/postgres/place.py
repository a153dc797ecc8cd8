"""Where in a Postgres database the tables are, and whether they are to be trusted; and whether the database is fit.

Owns the choice of the schema, and the refusal of what somebody else has put there, and of what does not last. Promises
that nothing of ours is looked for by the search path: every name is qualified (`qualified`), and the path of the
connection is left with the system's own functions and operators, so that nobody's function of the same name runs in
their place. A table runs what its owner hangs on it, triggers and defaults, with the rights of whoever writes to it.
So, before a row is touched, each table and sequence has to be owned by one of these: the current user, a role that it
is a member of, the owner of the schema, or a superuser, who may do anything as it is. Being a superuser oneself makes
nobody else trusted.

The place is the schema that the caller names, or else the first one of the search path that has anything of ours; where
none has, the first of all, and there it is made. A schema that the path finds because it is named like the user
(`"$user"`, by default the first) may have been made by anybody: its owner has to be trusted too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psycopg

from leasehold.errors import UsageError

RELATIONS = (
    *("leasehold_schema", "leasehold_ownership", "leasehold_presence", "leasehold_ask", "leasehold_checkpoint"),
    *("leasehold_binding", "leasehold_session", "leasehold_lease", "leasehold_fence"),
)
"""Every table and sequence of a store of ownership, checkpoints or leases."""

UNLOGGED = """
(WITH RECURSIVE within AS (
    SELECT {relation}.oid UNION SELECT inhrelid FROM pg_inherits JOIN within ON inhparent = within.oid)
  SELECT concat(CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, ' ', pg_class.oid::regclass)
  FROM within JOIN pg_class USING (oid)
  WHERE relpersistence = 'u' AND relkind IN ('r', 'S') ORDER BY pg_class.oid LIMIT 1)
"""
"""SQL for what of `relation` (an alias of `pg_class`), itself or a table below it, is UNLOGGED; NULL if nothing is."""

_KINDS = {"r": "table", "S": "sequence", "v": "view", "m": "view", "f": "foreign table", "p": "partitioned table"}
_FIT = ("r", "S")

_TEMPORARY = "pg_temp_"
"""What the name of each schema of temporary tables begins with."""

_PATH = (
    "SELECT pg_catalog.current_schemas(false)::pg_catalog.text[], pg_catalog.replace("
    "pg_catalog.current_setting('search_path'), '\"$user\"', pg_catalog.quote_ident(current_user))"
)
_NO_PATH = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)"
_MAY_USE = (
    "SELECT has_schema_privilege(oid, 'USAGE'), quote_ident(nspname), quote_ident(current_user) "
    "FROM pg_namespace WHERE nspname = %s"
)
_LOOK = f"""
WITH RECURSIVE mine AS (
    SELECT oid FROM pg_roles WHERE rolname = current_user
    UNION SELECT roleid FROM pg_auth_members JOIN mine ON member = mine.oid),
  trusted AS (SELECT oid FROM mine UNION SELECT oid FROM pg_roles WHERE rolsuper),
  places AS (
    SELECT spaces.oid, nspname, number, CASE
        WHEN pg_get_userbyid(nspowner) = 'pg_database_owner'::name
        THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) ELSE nspowner END AS owner
    FROM unnest(%(path)s::name[]) WITH ORDINALITY AS path(name, number)
    JOIN pg_namespace AS spaces ON nspname = path.name)
SELECT nspname::text, nspname = current_user, places.owner IN (SELECT oid FROM trusted),
  pg_get_userbyid(places.owner)::text, relname::text, relkind::text, pg_get_userbyid(relowner)::text,
  relowner = places.owner OR relowner IN (SELECT oid FROM trusted), {UNLOGGED.format(relation="pg_class")}
FROM places LEFT JOIN pg_class ON relnamespace = places.oid AND relname = ANY(%(names)s::name[])
ORDER BY number, relname
"""


@dataclass(frozen=True, slots=True)
class _Found:
    """A row of what was looked for: a schema of the path and, unless `name` is None, something of our name in it.

    `unlogged` is what of it is UNLOGGED, as SQL.
    """

    schema: str
    is_users: bool
    schema_trusted: bool
    schema_owner: str
    name: str | None
    kind: str
    owner: str
    trusted: bool
    unlogged: str | None = None


def check_encoding(connection: psycopg.Connection[Any], shown: str) -> None:
    """Refuse a database that has not all the characters that events may have, or that takes any bytes for text.

    Raises `UsageError`.
    """
    [[encoding]] = connection.execute("SELECT pg_catalog.current_setting('server_encoding')").fetchall()
    if encoding != "UTF8":
        raise UsageError(
            f"{shown}: the database is encoded in {encoding}, and events may have any characters of Unicode. Name a "
            "database that was made with ENCODING 'UTF8'"
        )


def find_place(
    connection: psycopg.Connection[Any], shown: str, relations: Sequence[str] = RELATIONS, named: str = ""
) -> str:
    """The schema that these tables are in, or are to be made in: the one `named`, or else one of the search path.

    Leaves the connection without a search path. Raises `UsageError` for a schema, a table or a sequence that is not to
    be trusted, and where there is no schema.
    """
    [[path, stated]] = connection.execute(_PATH).fetchall()
    connection.execute(_NO_PATH)
    if named:
        _check_usable(connection, shown, named)
    lasting = [name for name in path if name != "pg_catalog" and not name.startswith(_TEMPORARY)]
    names = [named] if named else lasting
    rows = connection.execute(_LOOK, {"path": names, "names": list(relations)}).fetchall()
    return place_among([_Found(*row) for row in rows], shown, named=bool(named), path=stated)


def _check_usable(connection: psycopg.Connection[Any], shown: str, schema: str) -> None:
    """Refuse a schema that is not there, or that this user may not use."""
    found = connection.execute(_MAY_USE, [schema]).fetchall()
    if not found:
        raise UsageError(f"{shown}: there is no schema {schema}. CREATE SCHEMA, or name another one")
    [[may_use, quoted, user]] = found
    if not may_use:
        raise UsageError(
            f"{shown}: this user may not use the schema {schema}. GRANT USAGE ON SCHEMA {quoted} TO {user}, or name "
            "another. All that the user lacks is printed by leasehold init PIPELINE.toml --as OWNER --sql, where OWNER "
            "may look into the schema"
        )


def place_among(rows: Sequence[_Found], shown: str, *, named: bool = False, path: str = "") -> str:
    """The place, from what was found in the schemas of the path, in their order; or in the one that was `named`.

    `path` is the search path as it is stated, for messages.
    """
    ours = next((row.schema for row in rows if row.name is not None), None)
    place = rows[0].schema if ours is None and rows else ours
    if place is None:
        raise UsageError(
            f"{shown}: the search path ({path}) names no schema that is there and that this user may use. GRANT USAGE "
            "ON SCHEMA, or make one, and name it with ?options=-csearch_path%3DNAME"
        )
    for row in rows:
        if row.schema == place:
            if not named:
                _check_users(row, shown)
            _check(row, shown)
    return place


def check_relations(
    connection: psycopg.Connection[Any], schema: str, names: Sequence[str], shown: str, *, partitioned: bool = False
) -> None:
    """Refuse those of these relations in `schema` that are no tables, and that are not to be trusted.

    With `partitioned` a table may be a partitioned one. Raises `UsageError`.
    """
    rows = connection.execute(_LOOK, {"path": [schema], "names": list(names)}).fetchall()
    for row in rows:
        _check(_Found(*row), shown, (*_FIT, "p") if partitioned else _FIT)


def _check_users(row: _Found, shown: str) -> None:
    if row.is_users and not row.schema_trusted:
        raise UsageError(
            f"{shown}: the schema {row.schema}, which is found because it is named like this user, belongs to "
            f"{row.schema_owner}: what is kept there would run its owner's triggers with this user's rights. Remove "
            "it, or name another with ?options=-csearch_path%3DNAME"
        )


def _check(row: _Found, shown: str, fit: Sequence[str] = _FIT) -> None:
    if re.search(r"['%\0]", row.schema):
        raise UsageError(f"{shown}: the schema {row.schema!r} has a quote or a percent sign in its name: take another")
    if row.name is not None:
        _check_relation(row, shown, fit)


def _check_relation(row: _Found, shown: str, fit: Sequence[str]) -> None:
    what = f"{_KINDS.get(row.kind, 'relation')} {row.schema}.{row.name}"
    if row.kind not in fit:
        raise UsageError(
            f"{shown}: there is a {what}, and Leasehold has not made it. Remove it, or name another schema"
        )
    if not row.trusted:
        raise UsageError(
            f"{shown}: the {what} belongs to {row.owner}, who is neither this user, nor a role of its own, nor the "
            "owner of the schema: its triggers would run with this user's rights. If somebody else has put it there, "
            "remove it. If not, ALTER … OWNER TO the schema's owner, or make this user a member of that role"
        )
    if row.unlogged is not None:
        raise UsageError(
            f"{shown}: the {what} does not last, since it, or a part of it, is UNLOGGED: after a crash the server "
            "leaves nothing in it, and what is kept beside it would say that its events are done. "
            f"ALTER {row.unlogged} SET LOGGED"
        )


@lru_cache(maxsize=512)
def qualified(statement: str, schema: str) -> str:
    """The statement with each of our names in this schema."""
    quoted = '"' + schema.replace('"', '""') + '"'
    return re.sub(r'(?<![\w."])(leasehold_\w+)', lambda name: f"{quoted}.{name[1]}", statement)
