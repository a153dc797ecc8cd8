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
from leasehold.sinks.beside.kept_values import kept_body
from leasehold.sinks.beside.session import Asked
from leasehold.sinks.postgres.names import Names
from leasehold.sinks.rules.columns import on_conflict
from leasehold.sinks.rules.rejected import Rejected
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


class PostgresSession:
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

    def put(self, table: str, columns: Mapping[str, Kind], keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
        """Insert these rows (one at least), or update those whose keys are there; return how many were written."""
        arrays = ", ".join(f"%({name})s::{kind}[]" for name, kind in columns.items())
        others = [name for name in columns if name not in keys]
        return self.run(
            f"INSERT INTO {self.of(table)} ({', '.join(columns)}) SELECT * FROM unnest({arrays}) "
            f"{on_conflict(keys, others)}",
            **{name: [*values] for name, values in zip(columns, zip(*rows, strict=True), strict=True)},
        )

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

    def contains(self, column: str, name: str) -> str:
        """Whether a text has the value of this name in it."""
        return f"strpos({column}, %({name})s) > 0"

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

    def sound(self, names: Sequence[str], *numbers: str) -> str:
        """Columns have what they are declared to."""
        return "true"

    @property
    def rejected_columns(self) -> str:
        """What a rejected row has behind its place."""
        return f"body, is_text, reason, source, {self.time_text('rejected_at')}"

    def remove_set_aside(self, ranges: Sequence[tuple[str, str, int, int]]) -> None:
        """Remove the rejected rows of events: of a hub and partition, from a sequence number to another, inclusive."""
        if not ranges:
            return
        columns: dict[str, Kind] = {"hub": "text", "partition": "text", "first": "bigint", "last": "bigint"}
        read, values = self.asked("read", columns, ranges)
        self.run(
            f"DELETE FROM {self.names.rejected} AS old USING {read} WHERE old.hub = read.hub "
            "AND old.partition = read.partition AND old.sequence_number BETWEEN read.first AND read.last",
            **values,
        )

    def set_aside(self, rows: Sequence[Rejected], time: str) -> None:
        """Insert rejected rows, with the time at which they were set aside."""
        self.many(
            f"INSERT INTO {self.names.rejected} (hub, partition, sequence_number, place, body, is_text, reason, "
            "source, rejected_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [(*row[:4], *kept_body(row.body), self.storable(row.reason), row.source, time) for row in rows],
        )

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

    def text(self, column: str) -> str:
        """A column of texts, which are texts."""
        return column

    def number(self, column: str) -> str:
        """A column of numbers, which are numbers."""
        return column

    def anything(self, column: str) -> str:
        """A column of numbers, which are numbers."""
        return column

    def run(self, statement: str, **values: Any) -> int:
        """Run a statement; return how many rows it concerned."""
        with self.connection.cursor() as cursor:
            return cursor.execute(statement, values).rowcount

    def rows(self, statement: str, **values: Any) -> list[Row]:
        """The rows that a query gives."""
        with self.connection.cursor() as cursor:
            return cursor.execute(statement, values).fetchall()

    def one(self, statement: str, **values: Any) -> Any:
        """The first value of the first row that a query gives, None where it gives none."""
        rows = self.rows(statement, **values)
        return rows[0][0] if rows else None

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
