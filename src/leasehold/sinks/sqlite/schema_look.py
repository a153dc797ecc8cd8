"""A look at a table in SQLite with nothing made or changed: `Sink.compare`.

Owns the way back: all that writing would check is checked in a transaction that is rolled back, so that a user who may
not write is found out too. Where there is no file, none is made; then the schema is compared with an empty database.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path

import pyarrow as pa

from leasehold.errors import SinkError
from leasehold.sinks.base import Compared
from leasehold.sinks.beside import record
from leasehold.sinks.beside.moved_in import uncounted_rows
from leasehold.sinks.rules.remembered_order import check_spec
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.shape import exists, fit
from leasehold.sinks.sqlite.transaction import SqliteTransaction


class _Undone(Exception):
    """Rolls the transaction back."""


def compare(
    path: Path,
    spec: TableSpec,
    begin: Callable[[], AbstractContextManager[SqliteTransaction]],
    schema: pa.Schema | None,
) -> Compared:
    """See `Sink.compare`. `begin` opens a transaction of the sink."""
    if not path.exists():
        if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise SinkError(f"{path} cannot be made: {path.parent} is no folder that this user may write to")
        if schema is not None:
            with closing(sqlite3.connect(":memory:")) as connection:
                fit(connection, spec, schema)
        return Compared(there=False)
    there, added, rows = False, tuple[str, ...](), 0
    with suppress(_Undone), begin() as transaction:
        check_spec(transaction.recorded_order(), spec)
        there = exists(transaction.connection, spec.name)
        record.check_still_there(transaction.session)
        if schema is not None:
            transaction.layout(schema)
            added = transaction.added
            rows = uncounted_rows(transaction, spec, schema, "SQLite") if there else 0
        raise _Undone
    return Compared(there, added, rows)
