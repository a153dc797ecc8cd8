"""A SQLite file as the house of a store: its tables, its clock, and transactions of many statements.

Owns the file of a store, and the time by which records age: the boot id with the boot-time clock. A record from before
a reboot is infinitely old, since whoever wrote it is gone.

Concurrency: every write is one `BEGIN IMMEDIATE` transaction, so writers follow one another and a record
is compared and written under one lock. A writer stopped inside a transaction makes the others wait until
their time-out and then raise `StoreUnavailable`; one killed there has written nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from leasehold.clock import Clock, SystemClock, boot_id
from leasehold.database.sqlite import DatabaseFile
from leasehold.errors import StoreUnavailable
from leasehold.stores.base import SchemaChange
from leasehold.stores.sql.steps import Row, Values
from leasehold.stores.sql.versions import Component
from leasehold.stores.sqlite.schema import SqliteStoreSession

T = TypeVar("T")
Time = dict[str, str | float]
"""What statements call `boot` and `now`."""


class SqliteTables:
    """A store whose tables are a `component` in the file at `path`, which is made if it is missing.

    `timeout` is the longest that a call waits for another writer, in seconds.
    """

    def __init__(
        self, component: Component, path: Path, timeout: float, clock: Clock | None = None, boot: str | None = None
    ) -> None:
        self.shown = str(path)
        self._boot = boot or boot_id()
        self._component = component
        self._clock = clock or SystemClock()
        self._seen = False
        self._opening = partial(
            DatabaseFile, path, check=self._check, unavailable=StoreUnavailable, timeout=timeout, setup=_as_it_is
        )
        self._file = self._opening(schema=self._prepare, create=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r})"

    def create_schema(self) -> SchemaChange:
        """Make the tables, which the first use does too, and say what was done."""
        done: list[SchemaChange] = []

        def lay_out(connection: sqlite3.Connection) -> None:
            done.append(self._component.create(self.shown, SqliteStoreSession(connection)))

        file = self._opening(schema=lay_out, create=True)
        with file.reading():
            pass
        file.close()
        return done[-1]

    def schema_statements(self) -> tuple[str, ...]:
        """What makes the tables that are missing, as SQL. Makes nothing, not even the file."""
        found = self._looked(self._component.missing_statements)
        return tuple(self._component.statements() if found is None else found)

    def is_made(self) -> bool:
        """Whether the tables are there; makes none."""
        return bool(self._looked(self._component.is_there))

    def _looked(self, ask: Callable[[str, SqliteStoreSession], T]) -> T | None:
        """What is found in the file, in which nothing is changed; None where there is none."""
        found: list[T] = []

        def look(connection: sqlite3.Connection) -> None:
            found.append(ask(self.shown, SqliteStoreSession(connection)))
            raise _Looked

        try:
            self._file.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreUnavailable(
                f"{self.shown}: {error.strerror} (check its name, and who may read its folder)"
            ) from error
        with suppress(_Looked), self._opening(schema=(), create=False, check=look).reading():
            pass
        return found[-1] if found else None

    def close(self) -> None:
        """Close the connections that no thread uses now. The store may be used again afterwards."""
        self._file.close()

    def _read(self, statement: str, values: Values, records: Sequence[Values] = ()) -> list[Row]:
        with self._reading() as (session, time):
            return [row for one in records or [{}] for row in session.rows(statement, {**values, **time, **one})]

    @contextmanager
    def _reading(self) -> Iterator[tuple[SqliteStoreSession, Time]]:
        """A view of the file, with the time: no record in it is younger."""
        with self._file.reading() as connection:
            yield SqliteStoreSession(connection), self._time()

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[tuple[SqliteStoreSession, Time]]:
        """A transaction, with the time asked for when no other writer is left to wait for."""
        with self._file.writing(durable=durable) as connection:
            yield SqliteStoreSession(connection), self._time()

    def _time(self) -> Time:
        return {"boot": self._boot, "now": self._clock.monotonic()}

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse tables of another version, before anything is changed in the file."""
        self._component.check(self.shown, SqliteStoreSession(connection))

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self._component.prepare(self.shown, SqliteStoreSession(connection), seen=self._seen)
        self._seen = True


class _Looked(Exception):
    """Ends the opening of a file before anything is changed in it."""


def _as_it_is(connection: sqlite3.Connection) -> None:
    """Bytes in a text that are no UTF-8 become half surrogate pairs, and do not fail the whole query."""
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
