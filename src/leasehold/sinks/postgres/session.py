"""One connection in one transaction, on one entity table: how statements are sent.

Owns the sending. Promises that every statement has parameters, so that names with a percent sign mean one thing
everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import psycopg

from leasehold.backoff import Backoff, until_done
from leasehold.database.postgres.connections import Connection, Row
from leasehold.database.statements import unsent
from leasehold.database.tables import Kind
from leasehold.errors import SinkError, UsageError
from leasehold.sinks.beside.session import Asked, Session
from leasehold.sinks.postgres.names import Names
from leasehold.sinks.rules.table_name import TableName
from leasehold.sinks.rules.table_spec import TableSpec

T = TypeVar("T")

_PAUSES = Backoff(0.01, 0.5)
_PIPELINE = psycopg.capabilities.has_pipeline()


def until_it_stays(act: Callable[[], T], undone: type[Exception] | tuple[type[Exception], ...], patience: float) -> T:
    """What `act` returns, done again for `patience` seconds where the server undoes it for others' sake: `undone`."""
    deadline = time.monotonic() + patience
    return until_done(act, lambda error: isinstance(error, undone), deadline=deadline, pauses=_PAUSES)


def reason_of(error: psycopg.Error) -> str:
    """What the table says of the row, without the lines that repeat its values."""
    return error.diag.message_primary or str(error).partition("\n")[0]


def gone(shown: str, text: str) -> SinkError:
    """The error where a relation is gone that was there."""
    return SinkError(f"{shown}: {text}. If it was dropped while it was in use, restore it, or reset the pipeline")


class PostgresSession(Session):
    """The transaction of `connection` on the table of `spec`, in this schema."""

    def __init__(self, connection: Connection, schema: str, spec: TableSpec) -> None:
        self.connection = connection
        self.spec = spec
        self.names = Names(schema, spec)

    def of(self, table: str) -> str:
        """A table of this name in the schema, as SQL."""
        return self.names.of(table)

    def beside(self, table: str) -> tuple[PostgresSession, str]:
        """Where a related table is: this transaction as a session in its schema, and its name there.

        The schema is the one that the text states, or else the entity table's.
        """
        called = TableName.parse(table, "related")
        schema = called.schema or self.names.schema
        return PostgresSession(self.connection, schema, self.spec), called.name

    def there(self, table: str) -> bool:
        """Whether there is anything of this name."""
        return bool(self.one("SELECT to_regclass(%(it)s) IS NOT NULL", it=unsent(self.of(table))))

    def asked(self, alias: str, columns: Mapping[str, Kind], rows: Iterable[Sequence[Any]]) -> Asked:
        """See `sinks.beside.session.Session`."""
        fitting = [row for row in rows if all(map(_fits, row))]
        lists = list(zip(*fitting, strict=True)) if fitting else [()] * len(columns)
        arrays = ", ".join(f"%({alias}_{name})s::{kind}[]" for name, kind in columns.items())
        values = {f"{alias}_{name}": [*each] for name, each in zip(columns, lists, strict=True)}
        return f"unnest({arrays}) AS {alias}({', '.join(columns)})", values

    def clock(self) -> float:
        return float(self.one("SELECT extract(epoch FROM clock_timestamp())"))

    def storable(self, text: str) -> str:
        """The text as a column can hold it."""
        return text.replace("\0", "\\0")

    @property
    def locking(self) -> str:
        """What a SELECT ends with that locks its rows."""
        return "FOR UPDATE"

    @property
    def sharing(self) -> str:
        """What a SELECT ends with that keeps its rows as they are, and lets others do the same."""
        return "FOR SHARE"

    def oldest(self, table: str, time: str, where: str) -> str:
        """Whether a row is one of the first of this WHERE with such a time that nobody else has locked."""
        old = f"{where} AND {time} < %(before)s::timestamptz ORDER BY {time} LIMIT %(at_most)s"
        return self.first_free(table, "ctid", old)

    def first_free(self, table: str, key: str, where: str) -> str:
        """Whether a row is among those of this WHERE that nobody else has locked."""
        return f"ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE {where} FOR UPDATE SKIP LOCKED))"

    @property
    def dead_letter(self) -> str:
        """Whether a rejected row is of an event that its handler has failed on; JSON of others may be none."""
        space = "[[:space:]]*"
        return f"""source ~ '"deliveries":{space}[0-9]+,{space}"traceback":{space}"'"""

    def time_text(self, time: str) -> str:
        """A time as ISO 8601 text in UTC."""
        return f"to_char({time} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"

    def bytewise(self, column: str) -> str:
        """A text by which rows are ordered as by its bytes."""
        return f'{column} COLLATE "C"'

    def run(self, statement: str, **values: Any) -> int:
        """Run a statement; return how many rows it concerned."""
        with self.connection.cursor() as cursor:
            return cursor.execute(statement, values).rowcount

    def rows(self, statement: str, **values: Any) -> list[Row]:
        """The rows that a query gives."""
        with self.connection.cursor() as cursor:
            return cursor.execute(statement, values).fetchall()

    def many(self, statement: str, values: Sequence[Sequence[Any] | Mapping[str, Any]]) -> int:
        """Run a statement once for each of `values`, in their order, without waiting in between.

        Returns how many rows they concerned.
        """
        if not values:
            return 0
        failed: Exception | None = None
        with self.connection.cursor() as cursor:
            try:
                with self.connection.pipeline() if _PIPELINE else nullcontext():
                    try:
                        cursor.executemany(statement, values)
                    except Exception as error:  # noqa: BLE001  raised below: within, psycopg logs what the end raises
                        failed = error
            except psycopg.Error as error:
                failed = failed or error
            if failed is not None:
                raise failed
            return cursor.rowcount

    def missing_rights(self, table: str, rights: Sequence[str], *, on_a_column: bool = False) -> list[str]:
        """Which of these rights on a table that is there this user has not; or, `on_a_column`, not on any column."""
        has = "has_any_column_privilege" if on_a_column else "has_table_privilege"
        query = f"SELECT r FROM unnest(%(rights)s::text[]) AS r WHERE NOT {has}(%(name)s, r)"
        name = unsent(self.names.of(table))
        return [right for (right,) in self.rows(query, rights=list(rights), name=name)]

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What the block has done is undone where it raises, and the transaction goes on."""
        with self.connection.transaction():
            yield

    @contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        """What the block runs, runs with this setting of the server's. If it raises, the transaction is undone."""
        change = "SELECT current_setting(%(name)s), set_config(%(name)s, %(value)s, true)"
        before = self.one(change, name=name, value=value)
        yield
        self.one(change, name=name, value=before)


def _fits(value: object) -> bool:
    """Whether a column can hold it: a text with a NUL, and a number of more than 64 bits, are in none."""
    if isinstance(value, str):
        return "\0" not in value
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def timeouts_of(milliseconds: int, longest: int) -> dict[str, str]:
    """A session's time-outs: for a lock it waits so long, and a statement takes the `longest`, both in milliseconds."""
    return {
        "statement_timeout": str(longest),
        "lock_timeout": str(milliseconds),
        "idle_in_transaction_session_timeout": str(max(1, milliseconds // 2)),
    }


def check_same(session: PostgresSession, backend: int, shown: str) -> None:
    """Refuse a pooler that gives each transaction another session, with settings and tables of somebody else."""
    if session.one("SELECT pg_backend_pid()") != backend:
        raise UsageError(
            f"{shown}: the session of the server has changed between two transactions: a pooler in between (PgBouncer) "
            "shares sessions among its clients. Set pool_mode = session, its default, for this database, or connect to "
            "the server itself"
        )
