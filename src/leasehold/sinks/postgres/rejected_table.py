"""The events that were set aside, with a reason: the table `<table>_rejected` beside an entity table in Postgres.

Owns its columns; what is done with its rows is in `sinks.beside.set_aside.rejected`.
"""

from __future__ import annotations

from leasehold.database.statements import unsent
from leasehold.sinks.beside.session import REJECTED
from leasehold.sinks.postgres.names import Names
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.rules.rejected import other_columns


def make_or_check(session: PostgresSession, *, there: bool) -> None:
    """Make the table unless it is there. Raises `SchemaMismatch` for another one of its name."""
    if not there:
        for statement in statements(session.names):
            session.run(statement)
        return
    columns = session.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%(it)s) AND attnum > 0 AND NOT attisdropped",
        it=unsent(session.names.rejected),
    )
    if {name for (name,) in columns} != set(REJECTED):
        raise other_columns(session.spec, REJECTED)


def statements(names: Names) -> list[str]:
    """The statements that make the table."""
    return [
        f'CREATE TABLE {names.rejected} (hub text COLLATE "C", partition text COLLATE "C", '
        "sequence_number bigint, place integer, body bytea, is_text boolean NOT NULL, reason text NOT NULL, "
        "source text, rejected_at timestamptz NOT NULL, PRIMARY KEY (hub, partition, sequence_number, place))",
        f"CREATE INDEX ON {names.rejected} (rejected_at)",
    ]
