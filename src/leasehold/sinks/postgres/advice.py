"""What makes updates of a table in Postgres dearer than they need be, as its statistics tell.

Owns the question whether new versions of rows find room beside the old ones, and the words about it. Reads the views of
statistics alone, which anybody may; what is there is some seconds old, and counted since it was reset last.
"""

from __future__ import annotations

from leasehold.sinks.postgres.layout import FILLFACTOR
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.rules.columns import qualified

_ENOUGH = 10_000
"""Updates that tell something."""
_UPDATES = """
SELECT s.n_tup_upd, s.n_tup_hot_upd, coalesce((SELECT option_value::integer FROM pg_options_to_table(c.reloptions)
  WHERE option_name = 'fillfactor'), 100)
FROM pg_stat_all_tables s JOIN pg_class c ON c.oid = s.relid WHERE s.schemaname = %(schema)s AND s.relname = %(name)s
"""


def advice(session: PostgresSession) -> tuple[str, ...]:
    """A sentence about each of the table and its memory of keys of which most updates write every index."""
    found = []
    for name in filter(None, (session.spec.name, session.spec.memory)):
        for updates, in_their_page, fillfactor in session.rows(_UPDATES, schema=session.names.schema, name=name):
            if updates >= _ENOUGH and in_their_page < updates / 2 and fillfactor > FILLFACTOR:
                table = qualified(session.spec.beside(name))
                found.append(
                    f"{name} has fillfactor {fillfactor}, and of {updates:,} updates {in_their_page:,} found room in "
                    f"their page: the others have written each index. ALTER TABLE {table} SET (fillfactor = "
                    f"{FILLFACTOR}) makes room in new pages, and VACUUM FULL {table}, which locks it, in those there"
                )
    return tuple(found)
