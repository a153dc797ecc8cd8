"""Where the tables of a component stand in a SQLite file, which may hold others' tables too, a sink's for example.

Owns the table `leasehold_schema`: a row per component (the stores, the leases). Promises that of several processes one
makes the tables, in one transaction, and the others find it done. Refuses tables of another version, and changes
nothing in their file.

A table that should be there and was removed is made again, empty, by whoever opens the file next: levels are kept in
the ownership and in the checkpoint, so that the one knows what the other has forgotten.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from leasehold.database.sqlite import DatabaseFile
from leasehold.errors import StoreUnavailable
from leasehold.stores.base import SchemaChange
from leasehold.stores.table_versions import Component, removed

_TABLE = "CREATE TABLE IF NOT EXISTS leasehold_schema (component TEXT PRIMARY KEY, version INTEGER NOT NULL)"


@dataclass(frozen=True, slots=True)
class SqliteSchema:
    """The tables of one component in a file."""

    component: Component

    @property
    def statements(self) -> tuple[str, ...]:
        """What makes these tables in a file that has none of them."""
        stated = f"INSERT INTO leasehold_schema VALUES ('{self.component.name}', {self.component.version})"
        return (*self.component.statements, _TABLE, stated)

    def check(self, connection: sqlite3.Connection) -> None:
        """Refuse tables of another version."""
        self._looked(connection)

    def _looked(self, connection: sqlite3.Connection) -> tuple[bool, list[str]]:
        """Whether the file has these tables, and those of them that it has not. Refuses those of another version."""
        listed = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        there = {name for (name,) in listed}
        stated = None
        if "leasehold_schema" in there:
            named = "SELECT version FROM leasehold_schema WHERE component = ?"
            stated = next((version for (version,) in connection.execute(named, (self.component.name,))), None)
        (_, _, path) = connection.execute("PRAGMA database_list").fetchone()
        self.component.check(path, stated, there)
        return stated is not None, self.component.missing(there)

    def lay_out(self, connection: sqlite3.Connection) -> SchemaChange:
        """Make what is missing, and say what was.

        A file that is as it should be is only read, which waits for no writer.
        """
        name, version = self.component.name, self.component.version
        if self._looked(connection) == (True, []):
            return SchemaChange(name, version, version)
        connection.execute("BEGIN IMMEDIATE")
        try:
            there, missing = self._looked(connection)
            for statement in self.component.remakings(missing) if there else self.component.statements:
                connection.execute(statement)
            if not there:
                connection.execute(_TABLE)
                connection.execute("INSERT INTO leasehold_schema VALUES (?, ?)", (name, version))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return SchemaChange(name, version if there else 0, version, tuple(missing) if there else ())

    def is_there(self, path: Path, timeout: float) -> bool:
        """Whether these tables are in the file. Refuses those of another version. Makes and changes nothing."""
        there = False

        def look(connection: sqlite3.Connection) -> None:
            nonlocal there
            there, missing = self._looked(connection)
            if there and missing:  # another process may have made them between the two looks
                there, missing = self._looked(connection)
            if not there:
                raise _NothingThere
            if missing:
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
        done = SchemaChange(self.component.name, self.component.version, self.component.version)

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


def as_it_is(connection: sqlite3.Connection) -> None:
    """Bytes in a text that are no UTF-8 become half surrogate pairs, and do not fail the whole query."""
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
