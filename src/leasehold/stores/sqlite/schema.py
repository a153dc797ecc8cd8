"""Versions of the tables in a SQLite file, and the way from each to the next.

Owns the table `leasehold_schema`: a row per component (the stores, the leases), since a file may hold others'
tables too, a sink's for example. Promises that an older file is brought up to date in place, in one
transaction, by whichever process opens it first; the others find it done. Refuses a file of a newer version
with a `StoreError`, and changes nothing in it; who only reads is refused an older one too, since bringing it up to
date stops the instances of the older release.

A table that should be there and was removed is made again, empty, by whoever opens the file next: levels are kept in
the ownership and in the checkpoint, so that the one knows what the other has forgotten.

A migration is never edited once it was released: a new one is added at the end of the list.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from leasehold.errors import StoreUnavailable
from leasehold.sqlite_file import DatabaseFile
from leasehold.stores.base import SchemaChange
from leasehold.stores.table_versions import Steps, makings, newer, older, removed, tables

_TABLE = "CREATE TABLE IF NOT EXISTS leasehold_schema (component TEXT PRIMARY KEY, version INTEGER NOT NULL)"


def _nothing(connection: sqlite3.Connection) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one component: `migrations[n]` are the statements that lead from version n to n + 1.

    `unversioned` tells the version of a file that says none, because it was made before versions were kept, or its
    table of versions was removed. `again` is what to do, beside making it, to a table that was removed.
    """

    component: str
    migrations: Steps
    unversioned: Callable[[sqlite3.Connection], int] = _nothing
    again: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version that this release knows."""
        return len(self.migrations)

    def stated(self, connection: sqlite3.Connection) -> int | None:
        """The version that the file states for this component, if it does."""
        if not has_table(connection, "leasehold_schema"):
            return None
        row = connection.execute("SELECT version FROM leasehold_schema WHERE component = ?", (self.component,))
        found: tuple[int] | None = row.fetchone()
        return found[0] if found else None

    def check(self, connection: sqlite3.Connection) -> None:
        """Refuse a file of a newer version."""
        version = self.stated(connection)
        if version is not None and version > self.version:
            (_, _, path) = connection.execute("PRAGMA database_list").fetchone()
            raise newer(path, self.component, version, self.version)

    def missing(self, connection: sqlite3.Connection, version: int) -> list[str]:
        """The tables that a file of this version should have, and has not."""
        listed = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return [name for name in tables(self.migrations[:version]) if (name,) not in listed]

    def lay_out(self, connection: sqlite3.Connection) -> SchemaChange:
        """Bring the file to this version, and say what was done.

        A file that is as it should be is only read, which waits for no writer.
        """
        if self.stated(connection) == self.version and not self.missing(connection, self.version):
            return SchemaChange(self.component, self.version, self.version)
        connection.execute("BEGIN IMMEDIATE")
        try:
            self.check(connection)
            stated = self.stated(connection)
            before = self.unversioned(connection) if stated is None else stated
            remade = self.missing(connection, before)
            for statement in makings(self.migrations[:before], remade):
                connection.execute(statement)
            for name in remade:
                if name in self.again:
                    connection.execute(self.again[name])
            for migration in self.migrations[before:]:
                for statement in migration:
                    connection.execute(statement)
            connection.execute(_TABLE)
            connection.execute(
                "INSERT INTO leasehold_schema VALUES (?, ?) ON CONFLICT DO UPDATE SET version = excluded.version",
                (self.component, self.version),
            )
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return SchemaChange(self.component, before, self.version, tuple(remade))

    def is_there(self, path: Path, timeout: float) -> bool:
        """Whether these tables are in the file. Refuses those of another version. Makes and changes nothing."""
        there = False

        def look(connection: sqlite3.Connection) -> None:
            nonlocal there
            self.check(connection)
            version = self.stated(connection) or self.unversioned(connection)
            there = version > 0
            if not there:
                raise _NothingThere
            if version < self.version:
                raise older(str(path), self.component, version, self.version)
            if missing := self.missing(connection, version):
                raise removed(str(path), missing)

        file = DatabaseFile(path, schema=(), check=look, unavailable=StoreUnavailable, create=False, timeout=timeout)
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise StoreUnavailable(f"{path}: {error.strerror} (check its name, and who may read its folder)") from error
        with contextlib.suppress(_NothingThere), file.reading():
            pass
        file.close()
        return there

    def create(self, path: Path, timeout: float) -> SchemaChange:
        """Make the file and these tables, as far as they are not there, and say what was."""
        done = SchemaChange(self.component, self.version, self.version)

        def lay_out(connection: sqlite3.Connection) -> None:
            nonlocal done
            done = self.lay_out(connection)

        file = DatabaseFile(
            path, schema=lay_out, check=self.check, unavailable=StoreUnavailable, create=True, timeout=timeout
        )
        with file.reading():
            pass
        file.close()
        return done


class _NothingThere(Exception):
    """Ends the opening of a file before anything is changed in it."""


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the file has a table of this name."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,))
    return found.fetchone() is not None


def as_it_is(connection: sqlite3.Connection) -> None:
    """Bytes in a text that are no UTF-8 become half surrogate pairs, and do not fail the whole query."""
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
