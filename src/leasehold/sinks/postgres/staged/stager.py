"""What a task does: copies its rows into `leasehold_staged`, commits them, and gives a receipt.

Owns the connection of a worker: one at a time, opened when it is needed, kept for the next task, and closed by the
server when nobody has used it for a minute (from Postgres 14 on). Promises that nothing which it does changes anything
but that table. It may be stopped or killed at any line, and run twice at once for one task: see the package.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from leasehold.errors import AlreadyInUse, SinkError, SinkUnavailable, UsageError
from leasehold.postgres.connections import Connection, Connections, Errors, RolledBack
from leasehold.postgres.place import RELATIONS
from leasehold.sinks.beside.statements import unsent
from leasehold.sinks.postgres.names import SHARED, STAGED, Names
from leasehold.sinks.postgres.session import Session
from leasehold.sinks.postgres.staged.cells import staged_piece, stored_columns
from leasehold.sinks.postgres.staged.table import COLUMNS, RIGHTS
from leasehold.sinks.postgres.staging import copy_csv
from leasehold.sinks.rules.batch import Arrangement, Batch, arrange
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.staged import StageReceipt, new_token, tallied

logger = logging.getLogger(__name__)

IDLE = 60
"""Seconds after which the server closes a worker's connection that nobody uses."""
_IDLE = (
    "SELECT set_config(name, %s, false) FROM pg_settings WHERE name = 'idle_session_timeout' AND setting::integer = 0"
)


@dataclass(frozen=True, slots=True)
class PostgresStager:
    """Stages rows for the table of `spec` in the schema `schema` of the database at `url`. Travels to the tasks."""

    url: str = field(repr=False)
    timeout: float
    schema: str
    spec: TableSpec

    def stage(self, batch: str, task: int, pieces: Iterable[Batch]) -> StageReceipt:
        """Stage the rows of these pieces under the token `batch`, and a new one of this attempt.

        The rows are committed when the receipt is returned. Raises `SinkUnavailable`, `SinkError`, and what
        `arrange` raises; what was staged so far then means nothing.
        """
        attempt, arrangements, rows, set_aside = new_token(), list[Arrangement](), 0, 0
        for piece in pieces:
            arrangements.append(Arrangement(pa.array([], pa.uint64()), (), arrange(piece).stretches))
            columns = stored_columns(self.spec, piece.rows.schema)
            staged = staged_piece(piece, columns, batch=batch, attempt=attempt, task=task, first=rows)
            if staged.rows.num_rows:
                self._copy(staged.rows)
            rows += staged.rows.num_rows
            set_aside += staged.set_aside
        return StageReceipt(batch, attempt, task, rows, set_aside, tallied(arrangements))

    def _copy(self, rows: pa.Table) -> None:
        """One COPY, which is a transaction of its own."""
        connections = _connections(self.url, self.timeout)
        try:
            with connections.using() as connection:
                if connection.schema != self.schema:
                    raise UsageError(
                        f"{connections.shown}: a task finds the schema {connection.schema}, and the driver "
                        f"{self.schema}: let both have the same search path, in the URL"
                    )
                table = unsent(Names(self.schema, self.spec).of(STAGED))
                copy_csv(connection, f"{table} ({', '.join(COLUMNS)})", rows)
        except RolledBack as undone:
            raise SinkUnavailable(f"{connections.shown}: {undone}") from undone

    def close(self) -> None:
        """Close what this process has open for staging and does not use now."""
        _connections(self.url, self.timeout).close()


class _Transaction(Protocol):
    @property
    def session(self) -> Session: ...

    def need(self, *names: str) -> None: ...


def offered_stager(
    claimed: Callable[[], AbstractContextManager[_Transaction]], url: str, timeout: float, spec: TableSpec
) -> PostgresStager | None:
    """What tasks stage with, once the table is there; None, and a warning, where this user may not have that."""
    try:
        with claimed() as transaction:
            transaction.need(STAGED)
            rights = transaction.session.missing_rights(STAGED, RIGHTS)
            schema = transaction.session.names.schema
    except AlreadyInUse:
        raise
    except UsageError as error:
        why = str(error)
    else:
        if not rights:
            return PostgresStager(url, timeout, schema, spec)
        why = f"GRANT {', '.join(rights)} ON {STAGED} is missing"
    logger.warning("the tasks of Spark cannot stage the rows of %s, which pass through the driver: %s", spec.name, why)
    return None


@lru_cache(maxsize=8)
def _connections(url: str, timeout: float) -> Connections:
    return Connections(
        url,
        timeout,
        _prepare,
        errors=Errors(SinkUnavailable, SinkError, lambda shown, said: SinkError(f"{shown}: {said}")),
        relations=(*RELATIONS, *SHARED),
        settings={"timezone": "UTC", "synchronous_commit": "off"},
    )


def _prepare(connection: Connection) -> None:
    connection.execute(_IDLE, [str(IDLE * 1000)])
