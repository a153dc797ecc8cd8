"""The file of an entity table in SQLite, for whoever only looks.

Promises to make and change nothing: no file, no table, no format. Where there is no file, there is nothing in it. A
look takes as long as SQLite takes to answer, and keeps no writer waiting.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa

from leasehold.database.sqlite import DatabaseFile
from leasehold.errors import SinkError, SinkUnavailable
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.session import SqliteSession, prepare
from leasehold.sinks.sqlite.shape import fit
from leasehold.sinks.sqlite.tables import check_formats


@contextmanager
def looking(path: Path, spec: TableSpec, timeout: float) -> Iterator[SqliteSession]:
    """A look at the file at `path`. Raises `SinkUnavailable`, and `SinkError`."""
    if not path.exists():
        with closing(sqlite3.connect(":memory:")) as nothing:
            yield SqliteSession(nothing, spec)
        return
    file = DatabaseFile(
        path,
        schema=(),
        unavailable=SinkUnavailable,
        broken=SinkError,
        create=False,
        timeout=timeout,
        setup=prepare,
        check=partial(check_formats, spec=spec),
    )
    try:
        with file.reading() as connection:
            yield SqliteSession(connection, spec)
    finally:
        file.close()


def check_made(path: Path, spec: TableSpec, schema: pa.Schema | None) -> None:
    """Check that the file can be made, and a table for this schema. Raises `SinkError`, and `SchemaMismatch`."""
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise SinkError(f"{path} cannot be made: {path.parent} is no folder that this user may write to")
    if schema is not None:
        with closing(sqlite3.connect(":memory:")) as connection:
            fit(connection, spec, schema)
