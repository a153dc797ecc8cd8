"""What the file of an entity table in SQLite holds, for whoever only looks: how much, and whose it is.

The counts are `sinks.beside.contents`, the owner is `sinks.beside.record`.

Promises to make and change nothing: no file, no table, no format. Where there is no file, there is nothing in it. A
look takes as long as SQLite takes to count, and keeps no writer waiting.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from leasehold.database.sqlite import DatabaseFile
from leasehold.errors import SinkError, SinkUnavailable
from leasehold.sinks.base import TableContents
from leasehold.sinks.beside import contents, record
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import SetAsideCounts
from leasehold.sinks.sqlite.session import SqliteSession, prepare
from leasehold.sinks.sqlite.tables import check_formats


def contents_of_file(path: Path, spec: TableSpec, timeout: float) -> TableContents:
    """What the table of `spec` holds in the file at `path`. Raises `SinkUnavailable`, and `SinkError`."""
    if not path.exists():
        return TableContents(0, 0)
    with _reading(path, spec, timeout) as connection:
        return contents.of_tables(SqliteSession(connection, spec))


def set_aside_in_file(path: Path, spec: TableSpec, timeout: float) -> SetAsideCounts:
    """What is set aside beside the table of `spec`. Raises `SinkUnavailable`, and `SinkError`."""
    if not path.exists():
        return SetAsideCounts()
    with _reading(path, spec, timeout) as connection:
        return contents.set_aside(SqliteSession(connection, spec))


def identity_in_file(path: Path, spec: TableSpec, timeout: float) -> str | None:
    """The identity of the table of `spec`, if there is one. Raises `SinkUnavailable`, and `SinkError`."""
    if not path.exists():
        return None
    with _reading(path, spec, timeout) as connection:
        return record.recorded_identity(SqliteSession(connection, spec))


def is_in_file(path: Path, spec: TableSpec, timeout: float) -> bool:
    """Whether the table of `spec` is in the file. Raises `SinkUnavailable`, and `SinkError`."""
    if not path.exists():
        return False
    with _reading(path, spec, timeout) as connection:
        return SqliteSession(connection, spec).there(spec.name)


def check_not_dropped(path: Path, spec: TableSpec, timeout: float) -> None:
    """Refuse a table, or a memory of its keys, that was there and was dropped. Raises `SinkError`."""
    if path.exists():
        with _reading(path, spec, timeout) as connection:
            session = SqliteSession(connection, spec)
            if session.there(record.TABLE):
                record.check_still_there(session)


@contextmanager
def _reading(path: Path, spec: TableSpec, timeout: float) -> Iterator[sqlite3.Connection]:
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
            yield connection
    finally:
        file.close()
