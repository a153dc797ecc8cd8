"""Which rights a user of the server has: of a list that is asked for, or where the server has only said what it denies.

Owns the questions. Looks into the catalogue alone, which everybody may read, and makes and locks nothing.

"permission denied for table flights" names the table and not the right, in the server's language. So
the server is asked which of the things that its message names lack a right of this user's: the longest name counts, of
several things of that name the one in our schema. Says nothing where that is not certain.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import psycopg

from leasehold.database.rights import OWNER, Right

_ASKED = """
WITH things AS (
  SELECT format('%%I.%%I', nspname, relname) AS named, relname AS word, nspname = %(schema)s AS ours,
    CASE relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END AS kind, CASE relkind
      WHEN 'S' THEN ARRAY(SELECT r FROM unnest(ARRAY['USAGE']) AS r WHERE NOT has_sequence_privilege(c.oid, r))
      ELSE ARRAY(SELECT r FROM unnest(CASE WHEN NOT has_table_privilege(c.oid, 'SELECT') AND EXISTS (
          SELECT 1 FROM pg_constraint WHERE contype = 'f' AND confrelid = c.oid AND conrelid <> c.oid)
        THEN ARRAY['SELECT'] ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] END) AS r
        WHERE NOT has_table_privilege(c.oid, r)) END AS lacks
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
  WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND nspname NOT LIKE 'pg\\_%%' AND nspname <> 'information_schema'
  UNION ALL SELECT quote_ident(nspname), nspname, nspname = %(schema)s, 'SCHEMA ',
    CASE
      WHEN NOT has_schema_privilege(n.oid, 'USAGE') THEN ARRAY['USAGE']
      WHEN NOT has_schema_privilege(n.oid, 'CREATE') THEN ARRAY['CREATE'] ELSE '{}' END
  FROM pg_namespace AS n
  UNION ALL SELECT quote_ident(d), d, true, 'DATABASE ',
    ARRAY(SELECT r FROM unnest(ARRAY['TEMPORARY']) AS r WHERE NOT has_database_privilege(d::name, r))
  FROM (SELECT current_database()::text) AS here (d)
), told AS (
  SELECT *, rank() OVER (ORDER BY length(word) DESC, ours DESC) AS place FROM things
  WHERE strpos(%(said)s, word) > 0 AND lacks <> '{}'
)
SELECT kind || named, lacks, quote_ident(current_user) FROM told WHERE place = 1
"""


def lacking(connection: psycopg.Connection[Any], schema: str, message: str) -> str:
    """What this user lacks of what the server's `message` names, and what to run; "" where nobody can tell."""
    found = connection.execute(_ASKED, {"schema": schema, "said": message}).fetchall()
    if len(found) != 1:
        return ""
    [(named, rights, user)] = found
    shown = ", ".join(rights)
    said = f"This user has no {shown} there: GRANT {shown} ON {named} TO {user}"
    return f"{said}. leasehold check names all that is missing; docs/bookkeeping.md lists all rights"


_MISSING = f"""
SELECT place, CASE
    WHEN kind = 'DATABASE' THEN has_database_privilege(%(role)s, current_database(), asked)
    WHEN kind = 'SCHEMA' THEN n.oid IS NOT NULL AND has_schema_privilege(%(role)s, n.oid, asked)
    WHEN c.oid IS NULL THEN NULL
    WHEN asked = '{OWNER}' THEN pg_has_role(%(role)s, c.relowner, 'USAGE')
    WHEN kind = 'SEQUENCE' THEN has_sequence_privilege(%(role)s, c.oid, asked)
    ELSE has_table_privilege(%(role)s, c.oid, asked)
      OR (asked <> 'DELETE' AND has_any_column_privilege(%(role)s, c.oid, asked)) END
FROM unnest(%(kinds)s::text[], %(schemas)s::text[], %(names)s::text[], %(rights)s::text[])
  WITH ORDINALITY AS given(kind, schema, name, asked, place)
LEFT JOIN pg_namespace AS n ON nspname = CASE kind WHEN 'SCHEMA' THEN name ELSE schema END
LEFT JOIN pg_class AS c ON relnamespace = n.oid AND relname = name AND kind IN ('TABLE', 'SEQUENCE')
ORDER BY place
"""
_THERE = """
SELECT relname::text FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace
WHERE nspname = %s AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
"""
_REFERRED = """
SELECT DISTINCT o.nspname::text, other.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_constraint AS k ON contype = 'f' AND conrelid <> confrelid AND c.oid IN (conrelid, confrelid)
JOIN pg_class AS other ON other.oid IN (conrelid, confrelid) AND other.oid <> c.oid AND NOT other.relispartition
JOIN pg_namespace AS o ON o.oid = other.relnamespace
WHERE n.nspname = %s AND c.relname = %s ORDER BY 1, 2
"""
_DRAWN = """
SELECT DISTINCT o.nspname::text, s.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attrdef AS f ON adrelid = c.oid
JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_class'::regclass
JOIN pg_class AS s ON s.oid = d.refobjid AND s.relkind = 'S' JOIN pg_namespace AS o ON o.oid = s.relnamespace
WHERE n.nspname = %s AND c.relname = %s ORDER BY 1, 2
"""
Named = tuple[str, str]
"""A table or sequence: its schema, and its name."""


def missing(connection: psycopg.Connection[Any], rights: Sequence[Right], role: str) -> tuple[list[Right], list[Right]]:
    """Those that this role lacks, and those on what is not there."""
    asked = {
        "role": role,
        "kinds": [one.thing.kind for one in rights],
        "schemas": [one.thing.schema for one in rights],
        "names": [one.thing.name for one in rights],
        "rights": [one.right for one in rights],
    }
    has = [answer for _, answer in connection.execute(_MISSING, asked).fetchall()]
    pairs = list(zip(rights, has, strict=True))
    return [one for one, answer in pairs if answer is False], [one for one, answer in pairs if answer is None]


def relations(connection: psycopg.Connection[Any], schema: str) -> frozenset[str]:
    """The tables, views and sequences of a schema."""
    return frozenset(name for (name,) in connection.execute(_THERE, [schema]).fetchall())


def referred(connection: psycopg.Connection[Any], tables: Collection[Named]) -> dict[Named, tuple[Named, ...]]:
    """Of each of these tables, those that a foreign key ties to it, on either side."""
    return {table: tuple(connection.execute(_REFERRED, table).fetchall()) for table in tables}


def drawn(connection: psycopg.Connection[Any], tables: Collection[Named]) -> dict[Named, tuple[Named, ...]]:
    """Of each of these tables, the sequences that its defaults take numbers from."""
    return {table: tuple(connection.execute(_DRAWN, table).fetchall()) for table in tables}


def may_create(connection: psycopg.Connection[Any], schema: str, role: str) -> bool:
    """Whether this role may make tables in a schema."""
    [[may]] = connection.execute(
        "SELECT coalesce((SELECT has_schema_privilege(%(role)s, oid, 'CREATE') "
        "AND has_schema_privilege(%(role)s, oid, 'USAGE') FROM pg_namespace WHERE nspname = %(schema)s), false)",
        {"role": role, "schema": schema},
    ).fetchall()
    return bool(may)


def session_of(connection: psycopg.Connection[Any]) -> tuple[str, str]:
    """The database, and the user that rights are asked for."""
    [[database, user]] = connection.execute("SELECT current_database()::text, current_user::text").fetchall()
    return database, user
