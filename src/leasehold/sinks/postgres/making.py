"""What makes an entity table in Postgres ahead of time, and all that is kept beside it: statements, in their order.

Owns the order, and what is left out since it is there. The columns of each table are where it is used: `beside.tables`,
`layout`, `memory`, `rejected_table`, `identities`. Runs in a transaction of the caller's, and only looks.
"""

from __future__ import annotations

import pyarrow as pa

from leasehold.sinks.beside import record
from leasehold.sinks.beside.tables import ALL_SHARED
from leasehold.sinks.postgres import identities, memory, rejected_table
from leasehold.sinks.postgres.catalog import kind_of_relation, relation
from leasehold.sinks.postgres.layout import column_named, created, key_types
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.rules.columns import stored_fields
from leasehold.sinks.rules.table_spec import ordered_keys


def statements(session: PostgresSession, schema: pa.Schema | None, *, duplicates: bool) -> list[str]:
    """What makes that which is missing; with `duplicates` also the memory of what producers have sent.

    Without `schema`, and with no table there, what belongs to the table alone is left out: its keys have no types yet.
    Raises `SinkError` where the table, or the memory of its keys, was there and was dropped: by its watermarks nothing
    is missing.
    """
    spec, names = session.spec, session.names
    if session.there(record.TABLE):
        record.check_still_there(session)
    made = [one for table in ALL_SHARED if not session.there(table.name) for one in table.in_postgres(names.of)]
    if kind_of_relation(session, spec.name) is not None:
        its = relation(session, spec.name)
        columns = [column_named(its, key) for key in ordered_keys(spec)]
        types = [column.declared for column in columns if column is not None]
    elif schema is not None:
        fields = stored_fields(spec, schema, "Postgres")
        made.append(created(session, fields))
        types = key_types(spec, fields)
    else:
        return made
    beside = {spec.rejected: rejected_table.statements(names), spec.identities: identities.statements(session)}
    if not duplicates:
        del beside[spec.identities]
    if spec.memory and len(types) == len(spec.keys):
        beside[spec.memory] = [memory.statement(names, types)]
    if spec.memory in beside and session.there(spec.memory):
        made += memory.made_anew(session, types)
    return made + [one for name, its in beside.items() if not session.there(name) for one in its]
