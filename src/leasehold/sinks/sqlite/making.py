"""What makes an entity table in SQLite ahead of time, with all that is kept beside it: the statements, in their order.

Owns the order. Pure: every statement leaves alone what is there.
"""

from __future__ import annotations

import pyarrow as pa

from leasehold.sinks.beside import identities
from leasehold.sinks.beside.tables import ALL_SHARED
from leasehold.sinks.rules.columns import stored_fields
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite import memory, rejected_table
from leasehold.sinks.sqlite.shape import created


def statements(spec: TableSpec, schema: pa.Schema | None, *, duplicates: bool) -> tuple[str, ...]:
    """What makes what is missing; without `schema` all but the entity table."""
    return (
        *(one for table in ALL_SHARED for one in table.in_sqlite()),
        *([] if schema is None else [created(spec, stored_fields(spec, schema, "SQLite"))]),
        *memory.statements(spec),
        *rejected_table.statements(spec),
        *(identities.table(spec).in_sqlite() if duplicates else ()),
    )
