"""Which right a user of the server lacks, by name, where the server has only said what it denies.

Owns the question. "permission denied for table flights" names the table and not the right, in the server's language. So
the server is asked which of the things that its message names lack a right of this user's: the longest name counts, of
several things of that name the one in our schema. Says nothing where that is not certain.
"""

from __future__ import annotations

from typing import Any

import psycopg

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
    return f"This user has no {', '.join(rights)} there: GRANT {', '.join(rights)} ON {named} TO {user}"
