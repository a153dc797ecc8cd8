"""Ownership and checkpoints in a Postgres database, for any number of hosts.

`postgresql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE`, as libpq reads it; what the URL leaves out comes
from libpq's environment (`PGPASSWORD`, `PGPASSFILE`, …). Owns the tables that `schema.py` makes on
first use. Its clock is the server's, read with `clock_timestamp()`. Should that clock step back, a record from
the future is as old as its first listing afterwards; should it leap ahead, live owners look expired, and the
fence has to do. Refuses hot standbys, names longer than 512 bytes and names with a NUL.

A failover to an asynchronous replica can lose claims that were acknowledged: use a synchronous one
(`synchronous_standby_names`), or levels may go back, which sinks refuse.

Concurrency: each call is one statement, which is its own transaction, however many records it carries. Records come as
one JSON array, in key order, and rows are locked in that order; a statement that the server rolls back nevertheless is
sent again. Where this process stops for a minute, no lock is held meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from leasehold.database.postgres.connections import Row
from leasehold.database.statements import quoted
from leasehold.database.tables import Kind
from leasehold.model import ConsumerGroup, OwnershipListing
from leasehold.stores.base import StoreFeatures
from leasehold.stores.postgres.database import PostgresTables, synchronous_commit
from leasehold.stores.postgres.schema import STORES
from leasehold.stores.server_clock import brought_back, is_ahead
from leasehold.stores.sql.records import group_values
from leasehold.stores.sql.statements import OF_GROUP, Statements, Words
from leasehold.stores.sql.steps import SqlStep, Values
from leasehold.stores.sql.store import SqlStore
from leasehold.stores.sql.tables import OWNERSHIP, PARTITION, PRESENCE

_SOON = synchronous_commit("'off'")


def _given(word: str, name: str, columns: Mapping[str, Kind]) -> str:
    typed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items())
    return f"{word} json_to_recordset(%({name})s::json) AS new({typed})"


def _locked(name: str, columns: Mapping[str, Kind]) -> str:
    same = " AND ".join(f"stored.{column} = new.{column}" for column in PARTITION)
    in_order = ", ".join(f'new.{column} COLLATE "C"' for column in PARTITION)
    found = f"SELECT new.* {_given('FROM', name, columns)} JOIN {OWNERSHIP} AS stored ON {same}"
    locked = f"{found} WHERE stored.etag = new.expected ORDER BY {in_order} FOR UPDATE OF stored"
    return f"FROM (WITH locked AS MATERIALIZED ({locked}) SELECT * FROM locked) AS new"


def _epoch(column: str) -> str:
    return f"extract(epoch FROM {column})::float8"


_STATEMENTS = Statements(
    Words(
        value=lambda column: f"new.{quoted(column)}",
        given=_given,
        locked=_locked,
        written=lambda columns: f"RETURNING {columns}",
        clock={"last_modified": "clock_timestamp()"},
        began="statement_timestamp()",
        seconds=_epoch,
        whole=lambda column, least: f"{column} >= {least}",
    )
)

_LIST = f"SELECT {_epoch('clock_timestamp()')}, " + ", ".join(
    f"coalesce((SELECT json_agg(json_build_array({columns})) FROM {table} WHERE {OF_GROUP}), '[]')"
    for table, columns in _STATEMENTS.listed.items()
)
"""All that is listed, in one request."""

_BRING_BACK = [
    f"UPDATE {table} SET last_modified = clock_timestamp() WHERE {OF_GROUP} AND last_modified > clock_timestamp()"
    for table in (OWNERSHIP, PRESENCE)
]


class PostgresStore(PostgresTables, SqlStore):
    """Ownership and checkpoints in the database at `url`. `timeout` is the longest that a call takes, in seconds."""

    features = StoreFeatures(shared=True)
    statements = _STATEMENTS

    def __init__(self, url: str, *, timeout: float = 3.0) -> None:
        PostgresTables.__init__(self, STORES, url, timeout)
        SqlStore.__init__(self)

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        listed = super().list_ownership(group)
        if is_ahead(listed):
            steps = [SqlStep(statement, ()) for statement in _BRING_BACK]
            self._write(*steps, values=group_values(group), durable=False)
            return brought_back(listed)
        return listed

    def _read(self, statement: str, values: Values, records: Sequence[Values] = ()) -> list[Row]:
        return self._connections.rows(statement, {**values, "records": json.dumps(records)})

    def _write(self, *steps: SqlStep, values: Values | None = None, durable: bool = True) -> list[Row]:
        statement = _one(tuple(step.statement for step in steps), durable)
        records = {step.name: json.dumps(step.records) for step in steps}
        return self._connections.rows(statement, {**(values or {}), **records})

    def _records_of(self, group: ConsumerGroup) -> tuple[float, Iterable[Sequence[Row]]]:
        [[as_of, *found]] = self._connections.rows(_LIST, group_values(group))
        return as_of, found


@lru_cache(maxsize=64)
def _one(statements: tuple[str, ...], durable: bool) -> str:
    """One statement that does all of these and has their rows."""
    if durable and len(statements) == 1:
        return statements[0]
    steps = [f"step_{number} AS ({statement})" for number, statement in enumerate(statements)]
    if not durable:
        steps.append(f"soon AS MATERIALIZED (SELECT {_SOON})")
    said = [f"SELECT * FROM step_{number}" for number, one in enumerate(statements) if "RETURNING" in one]
    rows = f"SELECT * FROM ({' UNION ALL '.join(said)}) AS said" if said else "SELECT 1"
    return f"WITH {', '.join(steps)} {rows}{'' if durable else ' WHERE (SELECT count(*) FROM soon) = 1'}"


def open_postgres_store(url: str, base: Path, timeout: float) -> PostgresStore:
    """The store in the database that a `postgresql://` URL names; `base` has no meaning here."""
    return PostgresStore(url, timeout=timeout)
