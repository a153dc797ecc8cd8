"""A Postgres database as the house of a store: its connections and its tables.

Threads, forks and time-outs: `database/postgres/connections.py`. What was written is on disk (`synchronous_commit` is
switched on where it is off), unless the call may lose it.
"""

from __future__ import annotations

from leasehold.database.postgres.connections import Connection, Connections, Errors
from leasehold.database.postgres.place import qualified
from leasehold.stores.base import SchemaChange
from leasehold.stores.postgres.schema import PostgresStoreSession
from leasehold.stores.sql.versions import Component, gone


def synchronous_commit(value: str) -> str:
    """For this transaction alone: whether what it writes is on disk when it returns (`on`) or soon (`off`)."""
    return f"(SELECT set_config('synchronous_commit', {value}, true))"


class PostgresTables:
    """A store whose tables are a `component` in a database. `timeout` is the longest that a call takes, in seconds."""

    def __init__(self, component: Component, url: str, timeout: float) -> None:
        self._connections = Connections(url, timeout, self._prepare, errors=Errors(gone=lambda shown, _: gone(shown)))
        self.shown = self._connections.shown
        self._component = component
        self._seen = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r})"

    def create_schema(self) -> SchemaChange:
        """Make the tables, which the first use does too, and say what was done."""
        return self._connections.once(lambda one: self._component.create(self.shown, self._session(one)))

    def schema_statements(self) -> tuple[str, ...]:
        """What makes the tables that are missing, as SQL for anybody's session."""

        def missing(connection: Connection) -> tuple[str, ...]:
            statements = self._component.missing_statements(self.shown, self._session(connection))
            return tuple(qualified(one, connection.schema) for one in statements)

        return self._connections.once(missing)

    def is_made(self) -> bool:
        """Whether the tables are there; makes none."""
        return self._connections.once(lambda one: self._component.is_there(self.shown, self._session(one)))

    def close(self) -> None:
        """Close the connections that no thread uses now. The store may be used again afterwards."""
        self._connections.close()

    def _session(self, connection: Connection) -> PostgresStoreSession:
        return PostgresStoreSession(connection, self.shown)

    def _prepare(self, connection: Connection) -> None:
        self._component.prepare(self.shown, self._session(connection), seen=self._seen)
        self._seen = True
