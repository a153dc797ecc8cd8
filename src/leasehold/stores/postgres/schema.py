"""The tables of Leasehold in a Postgres database: made, upgraded, and refused when they are too new.

Owns `leasehold_schema` (which component has which version) and the statements that lead from each version to
the next. Tables are made in the first schema of the search path (`?options=-csearch_path%3Dname`; see
`place.py`). A version is never changed after it was released: what changes is another entry at the end of the
list. Every step is one transaction that holds an advisory lock, so that of several processes one makes the tables and
the others wait for it; a process that stops in there for a minute is ended by the server after the store's time-out.
A table that should be there and was removed is made again, empty, by `create_schema` and by a store that starts. Levels
are kept in the ownership and in the checkpoint, so that the one knows what the other has forgotten.

Who may not make tables runs `open_store(url).create_schema()` once as somebody who may; a store needs no more
than SELECT, INSERT, UPDATE and DELETE afterwards (and USAGE of the sequence for leases).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psycopg

from leasehold.errors import UsageError
from leasehold.postgres.connections import Connection
from leasehold.stores.base import SchemaChange
from leasehold.stores.table_versions import Steps, gone, makings, newer, older, removed, tables

_LOCK = 0x6C656173  # "leas": one lock for all components, since any of them may make `leasehold_schema`
_SCHEMA_TABLE = 'CREATE TABLE IF NOT EXISTS leasehold_schema (component text COLLATE "C" PRIMARY KEY, version integer)'
_GROUP_COLUMNS = (
    'namespace text COLLATE "C", hub text COLLATE "C", consumer_group text COLLATE "C"'  # order and equality by bytes
)


@dataclass(frozen=True, slots=True)
class Component:
    """A set of tables with a version of its own: entry n of `steps` leads from version n to version n + 1.

    `traces` are a table and a column that each version has brought, by which tables are known whose version was
    removed. `again` is what to do, beside making it, to a table or sequence that was removed.
    """

    name: str
    steps: Steps
    traces: Sequence[tuple[str, str]]
    again: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version that this release of Leasehold works with."""
        return len(self.steps)


STORES = Component(
    "stores",
    (
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
                sequence_number bigint NOT NULL, owner_level bigint NOT NULL, "offset" text,
                PRIMARY KEY (namespace, hub, consumer_group, partition)) WITH (fillfactor = 50)""",
            f"""CREATE TABLE leasehold_binding ({_GROUP_COLUMNS}, pipeline text NOT NULL, sink text NOT NULL,
                PRIMARY KEY (namespace, hub, consumer_group))""",
        ),
        ("ALTER TABLE leasehold_checkpoint ADD COLUMN data text",),
    ),
    traces=(("leasehold_checkpoint", "owner_level"), ("leasehold_checkpoint", "data")),
)

LEASES = Component(
    "leases",
    (
        (
            """CREATE TABLE leasehold_session (id text COLLATE "C" PRIMARY KEY, owner text NOT NULL,
                duration double precision, until timestamptz NOT NULL) WITH (fillfactor = 50)""",
            """CREATE TABLE leasehold_lease (scope text COLLATE "C", key text COLLATE "C",
                fence bigint NOT NULL, session text COLLATE "C", PRIMARY KEY (scope, key)) WITH (fillfactor = 50)""",
            "CREATE SEQUENCE leasehold_fence",
        ),
    ),
    traces=(("leasehold_lease", "fence"),),
    # The count is lost with its sequence: the time in microseconds is ahead of what anybody can have counted.
    again={
        "leasehold_fence": "SELECT setval('leasehold_fence', (extract(epoch FROM clock_timestamp()) * 1e6)::bigint)"
    },
)


class Schema:
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
        version = self._version(connection)
        if version > self._component.version:
            self._refuse(version)
        missing = self._missing(connection, version)
        if self._seen and (missing or version == 0):
            raise gone(self._shown, missing)
        if version < self._component.version or missing:
            self.create(connection)
        self._seen = True

    def is_there(self, connection: Connection) -> bool:
        """Whether there are tables. Refuses those of another version. Makes and changes nothing."""
        version, known = self._version(connection), self._component.version
        if 0 < version < known:
            raise older(self._shown, self._component.name, version, known)
        if version > known:
            self._refuse(version)
        if missing := self._missing(connection, version):
            raise removed(self._shown, missing)
        return version > 0

    def create(self, connection: Connection) -> SchemaChange:
        """Make or upgrade the tables, unless another process has. Who may make none may ask for what is there."""
        found, known = self._version(connection), self._component.version
        if found == known and not self._missing(connection, found):
            return SchemaChange(self._component.name, found, found)
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                connection.execute(_SCHEMA_TABLE)
                version = self._version(connection)
                if version > self._component.version:
                    self._refuse(version)
                if version == 0:
                    version = self._by_its_columns(connection)
                steps, remade = self._component.steps, self._missing(connection, version)
                for statement in makings(steps[:version], remade):
                    connection.execute(statement)
                for name in remade:
                    if name in self._component.again:
                        connection.execute(self._component.again[name])
                for step in steps[version:]:
                    for statement in step:
                        connection.execute(statement)
                connection.execute(
                    "INSERT INTO leasehold_schema (component, version) VALUES (%s, %s) "
                    "ON CONFLICT (component) DO UPDATE SET version = excluded.version",
                    [self._component.name, self._component.version],
                )
            return SchemaChange(self._component.name, version, self._component.version, tuple(remade))
        except psycopg.errors.InsufficientPrivilege as error:
            raise UsageError(
                f"{self._shown}: the tables of Leasehold are missing or too old, and this user may not make them "
                f"({str(error).splitlines()[0]}). Call create_schema() of the store once as somebody who may."
            ) from error

    def _missing(self, connection: Connection, version: int) -> list[str]:
        """What should be there at this version, and is not."""
        there = connection.execute(
            "SELECT relname FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid WHERE nspname = %s",
            [connection.schema],
        ).fetchall()
        return [name for name in tables(self._component.steps[:version]) if (name,) not in there]

    def _by_its_columns(self, connection: Connection) -> int:
        """The version of tables that state none: the highest that has left a trace in what is still there."""
        found = 0
        for version, (table, column) in enumerate(self._component.traces, 1):
            there = connection.execute(
                "SELECT 1 FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid "
                "JOIN pg_namespace ON relnamespace = pg_namespace.oid "
                "WHERE nspname = %s AND relname = %s AND attname = %s AND NOT attisdropped",
                [connection.schema, table, column],
            ).fetchall()
            found = version if there else found
        return found

    def _version(self, connection: Connection) -> int:
        """The version of the tables, 0 where there are none."""
        [[there]] = connection.execute("SELECT to_regclass('leasehold_schema') IS NOT NULL").fetchall()
        if not there:
            return 0
        rows = connection.execute(
            "SELECT version FROM leasehold_schema WHERE component = %s", [self._component.name]
        ).fetchall()
        return int(rows[0][0]) if rows else 0

    def _refuse(self, version: int) -> None:
        raise newer(self._shown, self._component.name, version, self._component.version)
