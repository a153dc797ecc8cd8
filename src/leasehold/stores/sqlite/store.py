"""Ownership and checkpoints in one SQLite file, for all processes of one host.

Owns the tables `leasehold_ownership`, `leasehold_presence`, `leasehold_ask`, `leasehold_checkpoint` and
`leasehold_binding`. Takes any text as a name. Refuses a URL whose file is on a network file system, where neither
SQLite's locks nor the clock hold. Its clock, and what happens when a party stops, are in `database.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from leasehold.backends import local_file_of
from leasehold.clock import Clock
from leasehold.database.statements import native
from leasehold.model import Ask, Checkpoint, ConsumerGroup, Ownership
from leasehold.stores.base import StoreFeatures
from leasehold.stores.checkpoint_data import check_data
from leasehold.stores.sql.records import group_values
from leasehold.stores.sql.statements import OF_GROUP, Statements, Words
from leasehold.stores.sql.steps import Row, SqlStep, Values
from leasehold.stores.sql.store import SqlStore
from leasehold.stores.sql.tables import PARTITION
from leasehold.stores.sqlite.database import SqliteTables
from leasehold.stores.sqlite.schema import STORES


def _seconds(column: str) -> str:
    """A clock that has gone back is another boot's, also where the system gives no boot id."""
    # what somebody has written in place of a time stays, and cannot be read
    is_time = f"typeof({column}) IN ('integer', 'real')"
    return f"CASE WHEN {is_time} AND (boot_id <> %(boot)s OR {column} > %(now)s) THEN -9e999 ELSE {column} END"


_STATEMENTS = Statements(
    Words(
        value=lambda column: f"%({column})s",  # a statement is run once for each record
        given=lambda word, name, columns: "",
        locked=lambda name, columns: "",
        written=lambda columns: "",  # the number of rows says it
        clock={"boot_id": "%(boot)s", "last_modified": "%(now)s"},
        began="%(now)s",
        seconds=_seconds,
        whole=lambda column, least: f"typeof({column}) = 'integer' AND {column} >= {least}",
    )
)


class SqliteStore(SqliteTables, SqlStore):
    """Ownership and checkpoints in the SQLite file at `path`, which is made if it is missing.

    `timeout` is the longest that a call waits for another writer, in seconds.
    """

    features = StoreFeatures(shared=False)
    statements = _STATEMENTS

    def __init__(
        self, path: Path, *, timeout: float = 3.0, clock: Clock | None = None, boot: str | None = None
    ) -> None:
        SqliteTables.__init__(self, STORES, path, timeout, clock, boot)
        SqlStore.__init__(self)

    def _write(self, *steps: SqlStep, values: Values | None = None, durable: bool = True) -> list[Row]:
        rows: list[Row] = []
        with self._file.writing(durable=durable) as connection:
            time = self._time()
            for step in steps:
                statement = native(step.statement, ":").text
                for one in step.records:
                    cursor = connection.execute(statement, {**(values or {}), **time, **one})
                    if cursor.description is not None:
                        rows += cursor.fetchall()
                    elif cursor.rowcount:
                        rows.append((*map(one.get, PARTITION), time["now"]))
        return rows

    def _records_of(self, group: ConsumerGroup) -> tuple[float, Iterable[Sequence[Row]]]:
        with self._reading() as (session, time):
            values = {**group_values(group), **time}
            found = [
                session.rows(f"SELECT {columns} FROM {table} WHERE {OF_GROUP}", values)
                for table, columns in _STATEMENTS.listed.items()
            ]
        return float(time["now"]), found

    def _check_name(self, field: str, name: str) -> None:
        pass

    def _check_group(self, group: ConsumerGroup) -> None:
        pass

    def _check_records(self, records: Sequence[Ownership | Checkpoint | Ask]) -> None:
        for record in records:
            if isinstance(record, Checkpoint):
                check_data(record.data)


def open_sqlite_store(url: str, base: Path, timeout: float) -> SqliteStore:
    """The store in the file that a `sqlite:///` URL names."""
    return SqliteStore(local_file_of(url, base, "store"), timeout=timeout)
