"""The tables of Leasehold in a Postgres database: made, and refused when they are of another version.

Owns `leasehold_schema` (which component has which version) and the statements that make the tables, in the first
schema of the search path (`?options=-csearch_path%3Dname`; see `place.py`). Making them is one transaction that holds
an advisory lock, so that of several processes one makes the tables and the others wait for it; a process that stops in
there for a minute is ended by the server after the store's time-out. A table that should be there and was removed is
made again, empty, by `create_schema` and by a store that starts. Levels are kept in the ownership and in the
checkpoint, so that the one knows what the other has forgotten.

`leasehold init` makes them as somebody who may, or prints the statements: a store needs no more than SELECT, INSERT,
UPDATE and DELETE afterwards (and USAGE of the sequence for leases).
"""

from __future__ import annotations

from collections.abc import Collection

import psycopg

from leasehold.database.postgres.connections import Connection
from leasehold.database.postgres.place import qualified
from leasehold.errors import UsageError
from leasehold.stores.base import SchemaChange
from leasehold.stores.table_versions import Component, gone, removed

_LOCK = 0x6C656173  # "leas": one lock for all components, since any of them may make `leasehold_schema`
_SCHEMA_TABLE = 'CREATE TABLE IF NOT EXISTS leasehold_schema (component text COLLATE "C" PRIMARY KEY, version integer)'
_GROUP_COLUMNS = (
    'namespace text COLLATE "C", hub text COLLATE "C", consumer_group text COLLATE "C"'  # order and equality by bytes
)

STORES = Component(
    "stores",
    2,
    (
        f"""CREATE TABLE leasehold_ownership ({_GROUP_COLUMNS}, partition text COLLATE "C",
            owner_id text NOT NULL, owner_level bigint NOT NULL, etag text NOT NULL,
            last_modified timestamptz NOT NULL, nonce text NOT NULL, successor text NOT NULL,
            claimed_at bigint NOT NULL, failures bigint NOT NULL, last_error text NOT NULL,
            PRIMARY KEY (namespace, hub, consumer_group, partition)) WITH (fillfactor = 50)""",
        f"""CREATE TABLE leasehold_presence ({_GROUP_COLUMNS}, owner_id text COLLATE "C",
            pipeline text NOT NULL, strategy text NOT NULL, capacity double precision NOT NULL, maximum bigint,
            created timestamptz NOT NULL, last_modified timestamptz NOT NULL, etag text NOT NULL,
            PRIMARY KEY (namespace, hub, consumer_group, owner_id)) WITH (fillfactor = 50)""",
        f"""CREATE TABLE leasehold_ask ({_GROUP_COLUMNS}, partition text COLLATE "C",
            owner_level bigint NOT NULL, asker text NOT NULL,
            PRIMARY KEY (namespace, hub, consumer_group, partition))""",
        f"""CREATE TABLE leasehold_checkpoint ({_GROUP_COLUMNS}, partition text COLLATE "C",
            sequence_number bigint NOT NULL, owner_level bigint NOT NULL, "offset" text, data text,
            PRIMARY KEY (namespace, hub, consumer_group, partition)) WITH (fillfactor = 50)""",
        f"""CREATE TABLE leasehold_binding ({_GROUP_COLUMNS}, pipeline text NOT NULL, sink text NOT NULL,
            PRIMARY KEY (namespace, hub, consumer_group))""",
    ),
)

LEASES = Component(
    "leases",
    1,
    (
        """CREATE TABLE leasehold_session (id text COLLATE "C" PRIMARY KEY, owner text NOT NULL,
            duration double precision, until timestamptz NOT NULL) WITH (fillfactor = 50)""",
        """CREATE TABLE leasehold_lease (scope text COLLATE "C", key text COLLATE "C",
            fence bigint NOT NULL, session text COLLATE "C", PRIMARY KEY (scope, key)) WITH (fillfactor = 50)""",
        "CREATE SEQUENCE leasehold_fence",
    ),
    # The count is lost with its sequence: the time in microseconds is ahead of what anybody can have counted.
    again={
        "leasehold_fence": "SELECT setval('leasehold_fence', (extract(epoch FROM clock_timestamp()) * 1e6)::bigint)"
    },
)


class PostgresSchema:
    """The tables of one component in one database."""

    def __init__(self, component: Component, shown: str) -> None:
        self._component = component
        self._shown = shown
        self._seen = False

    def prepare(self, connection: Connection) -> None:
        """Before a new connection is used: the tables are as they should be.

        Makes them if this store has not seen them before. Tables that were there and are gone are not made
        anew: empty ones would forget owner levels and progress.
        """
        there, stated = self._found(connection)
        missing = self._component.missing(there)
        if self._seen and stated is None and len(missing) == len(self._component.tables):
            raise gone(self._shown, missing)
        self._component.check(self._shown, stated, there)
        if self._seen and missing:
            raise gone(self._shown, missing)
        if stated is None or missing:
            self.create(connection)
        self._seen = True

    def is_there(self, connection: Connection) -> bool:
        """Whether there are tables. Refuses those of another version. Makes and changes nothing."""
        there, stated = self._found(connection)
        if stated is not None and self._component.missing(there):
            there, stated = self._found(connection)  # another process may have made them between the two looks
        self._component.check(self._shown, stated, there)
        if stated is not None and (missing := self._component.missing(there)):
            raise removed(self._shown, missing)
        return stated is not None

    def create(self, connection: Connection) -> SchemaChange:
        """Make the tables, unless another process has. Who may make none may ask for what is there."""
        name, version = self._component.name, self._component.version
        there, stated = self._found(connection)
        self._component.check(self._shown, stated, there)
        if stated is not None and not self._component.missing(there):
            return SchemaChange(name, version, version)
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                there, stated = self._found(connection)
                self._component.check(self._shown, stated, there)
                remade = [] if stated is None else self._component.missing(there)
                for statement in self._makings(there, stated):
                    connection.execute(statement)
            return SchemaChange(name, 0 if stated is None else version, version, tuple(remade))
        except psycopg.errors.InsufficientPrivilege as error:
            raise UsageError(
                f"{self._shown}: tables of Leasehold are missing, and this user may not make them "
                f"({str(error).splitlines()[0]}). Run `leasehold init` once as somebody who may: --as USER, or --sql"
            ) from error

    def missing_statements(self, connection: Connection) -> tuple[str, ...]:
        """What makes the tables that are missing, as SQL for anybody's session. Makes and changes nothing."""
        there, stated = self._found(connection)
        self._component.check(self._shown, stated, there)
        return tuple(qualified(one, connection.schema) for one in self._makings(there, stated))

    def _makings(self, there: Collection[str], stated: int | None) -> list[str]:
        if stated is not None:
            return self._component.remakings(self._component.missing(there))
        row = f"INSERT INTO leasehold_schema VALUES ('{self._component.name}', {self._component.version})"
        return [*self._component.statements, _SCHEMA_TABLE, row]

    def _found(self, connection: Connection) -> tuple[set[str], int | None]:
        """The relations of the schema, and the version that the database states for these tables."""
        listed = connection.execute(
            "SELECT relname FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid WHERE nspname = %s",
            [connection.schema],
        ).fetchall()
        [[states]] = connection.execute("SELECT to_regclass('leasehold_schema') IS NOT NULL").fetchall()
        if not states:
            return {name for (name,) in listed}, None
        named = "SELECT version FROM leasehold_schema WHERE component = %s"
        rows = connection.execute(named, [self._component.name]).fetchall()
        return {name for (name,) in listed}, rows[0][0] if rows else None
