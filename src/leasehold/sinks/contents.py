"""How much an entity table in SQLite holds, for whoever only looks.

Promises to make and change nothing: no file, no table, no format. Where something is not there yet, there is nothing
in it. A look takes as long as SQLite takes to count, and keeps no writer waiting.
"""

from __future__ import annotations

from pathlib import Path

from leasehold.errors import SinkError, SinkUnavailable
from leasehold.sinks.base import TableContents
from leasehold.sinks.shape import exists, quoted
from leasehold.sinks.table import TableSpec
from leasehold.sqlite_file import DatabaseFile


def contents_of_file(path: Path, spec: TableSpec, timeout: float) -> TableContents:
    """What the table of `spec` holds in the file at `path`. Raises `SinkUnavailable`, and `SinkError`."""
    if not path.exists():
        return TableContents(0, 0)
    file = DatabaseFile(path, schema=(), unavailable=SinkUnavailable, broken=SinkError, create=False, timeout=timeout)
    try:
        with file.reading() as connection:
            counts = [
                connection.execute(f"SELECT count(*) FROM {quoted(name)}").fetchone()[0]
                if exists(connection, name)
                else 0
                for name in (spec.name, spec.rejected)
            ]
    finally:
        file.close()
    return TableContents(*counts)
