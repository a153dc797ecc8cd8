"""How much an entity table in SQLite holds, and what is set aside beside it, for whoever only looks.

Promises to make and change nothing: no file, no table, no format. Where something is not there yet, there is nothing
in it. A look takes as long as SQLite takes to count, and keeps no writer waiting.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leasehold.errors import SinkError, SinkUnavailable
from leasehold.sinks.base import TableContents
from leasehold.sinks.beside.outbox import table as outbox
from leasehold.sinks.beside.parking import table as parked
from leasehold.sinks.beside.set_aside.contract import SetAsideCounts
from leasehold.sinks.rules.columns import quoted
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite.session import Session
from leasehold.sinks.sqlite.shape import exists
from leasehold.sqlite_file import DatabaseFile


def contents_of_file(path: Path, spec: TableSpec, timeout: float) -> TableContents:
    """What the table of `spec` holds in the file at `path`. Raises `SinkUnavailable`, and `SinkError`."""
    if not path.exists():
        return TableContents(0, 0)
    with _reading(path, timeout) as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {quoted(name)}").fetchone()[0] if exists(connection, name) else 0
            for name in (spec.name, spec.rejected)
        ]
    return TableContents(*counts)


def set_aside_in_file(path: Path, spec: TableSpec, timeout: float) -> SetAsideCounts:
    """What is set aside beside the table of `spec`. Raises `SinkUnavailable`, and `SinkError`."""
    if not path.exists():
        return SetAsideCounts()
    with _reading(path, timeout) as connection:
        session = Session(connection, spec)
        rejected: tuple[int, int] = (0, 0)
        if exists(connection, spec.rejected):
            dead = "json_valid(source) AND json_extract(source, '$.traceback') IS NOT NULL"
            columns = {row[1] for row in connection.execute(f"PRAGMA table_info({quoted(spec.rejected)})")}
            (rejected,) = connection.execute(
                f"SELECT count(*), {f'count(CASE WHEN {dead} THEN 1 END)' if 'source' in columns else 0} "
                f"FROM {quoted(spec.rejected)}"
            )
        count, oldest, following = parked.counts(session)
        emitted = outbox.counts(session)
    return SetAsideCounts(*rejected, count, oldest, following, emitted)


@contextmanager
def _reading(path: Path, timeout: float) -> Iterator[sqlite3.Connection]:
    file = DatabaseFile(path, schema=(), unavailable=SinkUnavailable, broken=SinkError, create=False, timeout=timeout)
    try:
        with file.reading() as connection:
            yield connection
    finally:
        file.close()
