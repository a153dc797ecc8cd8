"""Whether a rule of an entity table could see a row that a later row of its key replaces in the same transaction.

Owns that question, and answers "yes" where it is in doubt: a table without such rules is the same whether each row of a
batch is written, or the last row of each key alone. Rules are triggers, foreign keys from and to the table, CHECK, NOT
NULL and UNIQUE beside the keys, columns that the table computes, indexes with expressions or conditions, types that
SQLite enforces (STRICT), and whatever a virtual table does. A table that the sink has made has none of these.

What is asked here is part of the schema, so an answer holds as long as `PRAGMA schema_version` does not move. Foreign
keys to a table are part of other tables' schemas, in the same file.
"""

from __future__ import annotations

import sqlite3

from leasehold.sinks.rules.table_spec import TableSpec, folded

_RULES = """
    SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :table COLLATE NOCASE
    UNION ALL
    SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :table COLLATE NOCASE AND sql LIKE '%CHECK%'
    UNION ALL
    SELECT 1 FROM pragma_table_list(:table) WHERE strict OR type <> 'table'
    UNION ALL
    SELECT 1 FROM pragma_foreign_key_list(:table)
    UNION ALL
    SELECT 1 FROM sqlite_master AS other, pragma_foreign_key_list(other.name) AS foreign_key
    WHERE other.type = 'table' AND foreign_key."table" = :table COLLATE NOCASE
    LIMIT 1
"""


def sees_each_row(connection: sqlite3.Connection, spec: TableSpec) -> bool:
    """Whether a rule of the table could see rows that are not the last ones of their keys."""
    keys = {folded(name) for name in spec.keys}
    return (
        connection.execute(_RULES, {"table": spec.name}).fetchone() is not None
        or any(
            hidden or (not_null and folded(name) not in keys)
            for name, not_null, hidden in connection.execute(
                'SELECT name, "notnull", hidden FROM pragma_table_xinfo(?)', (spec.name,)
            )
        )
        or any(
            partial or (unique and _columns(connection, index) != keys) or None in _columns(connection, index)
            for index, unique, partial in connection.execute(
                'SELECT name, "unique", partial FROM pragma_index_list(?)', (spec.name,)
            ).fetchall()
        )
    )


def _columns(connection: sqlite3.Connection, index: str) -> set[str | None]:
    """The columns of an index; None stands for an expression."""
    named = connection.execute("SELECT cid, name FROM pragma_index_xinfo(?) WHERE key", (index,))
    return {None if column == -2 else folded(name or "") for column, name in named}
