"""Writes the rows of a batch one after the other, quickly, and sets aside those that the table refuses.

Owns the savepoints. Promises the same outcome as judging and writing every row on its own: rows are tried
a chunk at a time, and when one of a chunk breaks a constraint, the chunk is undone and redone row by row.
So it makes no difference where batches, or chunks, begin and end. Where no rule of the table could see a row that a
later one of its key replaces (`sqlite_beside.rules`), the last row of each key is written alone, in the order of the
keys, which touches each page of the table once; if the table refuses one, all is undone and done in chunks. Refuses to
go on when the table has ended the transaction itself (RAISE(ROLLBACK), ON CONFLICT ROLLBACK): by then the watermarks
are undone too.

Runs inside the one transaction of a batch, so nobody else can come between its steps; killed at any line
it leaves nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.errors import KeyFromTwoPartitions, SinkError
from leasehold.sinks.fence import Lane
from leasehold.sinks.ordering import Claim, Step
from leasehold.sinks.rows import LastRows, Rows
from leasehold.sinks.shape import Layout
from leasehold.sinks.sqlite_beside.blame import ROW_ERRORS, is_the_rows
from leasehold.sinks.table import TableSpec, ordered_keys

_CHUNK = 1000


class Order(Protocol):
    """What decides which rows count: `KeyOrder`, or `EveryEvent`."""

    def judge(self, start: int, end: int) -> Step: ...

    def accept(self, step: Step) -> None: ...

    def known_claim(self, index: int) -> tuple[Any, ...]: ...


class EveryEvent:
    """The order of a table without keys: every event counts."""

    def judge(self, start: int, end: int) -> Step:
        return Step(range(start, end), 0, end, {})

    def accept(self, step: Step) -> None:
        """There is nothing to remember."""

    def known_claim(self, index: int) -> tuple[Any, ...]:
        raise AssertionError("events without keys are never in conflict")


@dataclass(slots=True)
class Written:
    """What became of the rows; `broken` are those that the table refused, with its words."""

    applied: int = 0
    superseded: int = 0
    broken: dict[int, str] = field(default_factory=dict)


class Table(Protocol):
    """Where rows go, in the transaction of one batch."""

    def attempt(self, winners: Sequence[int]) -> str | None:
        """Write these rows in order, or none of them: then the table's reason is returned."""
        ...

    def conflict(self, index: int, known: Claim) -> KeyFromTwoPartitions:
        """The error for row `index`, whose key was last written with the claim `known`."""
        ...


class RowWriter:
    """Writes the first `count` rows to `table` as `order` says. For one batch."""

    def __init__(self, table: Table, count: int, order: Order) -> None:
        self._table = table
        self._count = count
        self._order = order
        self._written = Written()

    def write(self) -> Written:
        """Write all rows. Raises `KeyFromTwoPartitions` and `SinkError`, after which the batch must be undone."""
        start, end = 0, self._count
        while start < end:
            step = self._order.judge(start, min(start + _CHUNK, end))
            if step.stop == start:
                raise self._conflict(start)
            if self._attempt(step) is not None:
                for index in range(start, step.stop):
                    self._write_one(index)
            start = step.stop
        return self._written

    def _write_one(self, index: int) -> None:
        step = self._order.judge(index, index + 1)
        if step.stop == index:
            raise self._conflict(index)
        broken = self._attempt(step)
        if broken is not None:
            self._written.broken[index] = broken

    def _attempt(self, step: Step) -> str | None:
        broken = self._table.attempt(step.winners)
        if broken is None:
            self._order.accept(step)
            self._written.applied += len(step.winners)
            self._written.superseded += step.superseded
        return broken

    def _conflict(self, index: int) -> KeyFromTwoPartitions:
        return self._table.conflict(index, self._order.known_claim(index))


def two_partitions(spec: TableSpec, key: Sequence[Any], lane: Lane, number: int, known: Lane) -> KeyFromTwoPartitions:
    """The error for the event `number` of `lane`, whose key was last written from `known`."""
    hub, partition = lane
    known_hub, known_partition = known
    named = ", ".join(f"{name} = {value!r}" for name, value in zip(ordered_keys(spec), key, strict=True))
    here, there = f"partition {partition}", f"partition {known_partition}"
    if hub != known_hub:
        here, there = f"{here} of hub {hub}", f"{there} of hub {known_hub}"
    return KeyFromTwoPartitions(
        f"the entity {named} of the table {spec.name} was last written from {there}, and event "
        f"{number} of {here} is about it too. Sequence numbers of two partitions cannot be "
        "compared, so nobody can say which event is later. Nothing of the batch was applied. Give sequence_by, "
        "an expression that grows with each event of an entity (a version, or a time), and to a table that a handler "
        "fills spread=True with it; a table that has been filled without it has to be read anew with it (`leasehold "
        "reset PIPELINE.toml --to earliest`). Or send all events of an entity with one partition key"
    )


def write_rows(table: SqliteRows, order: Order) -> Written:
    """Write all rows, in the quickest way that has the outcome of one after the other. Raises as `RowWriter.write`."""
    count = len(table.rows)
    if table.takes_last_alone:
        step = order.judge(0, count)
        if step.stop == count and table.attempt_last(_left_by(step, table.rows)) is None:
            order.accept(step)
            return Written(len(step.winners), step.superseded)
    return RowWriter(table, count, order).write()


def _left_by(step: Step, rows: Rows) -> LastRows:
    last = [index for _, index in sorted(step.written.items())]
    deletes = rows.deletes
    gone = {} if deletes is None else {rows.keys[index]: index for index in step.winners if deletes[index]}
    return LastRows(pa.array(last, pa.int64()), pa.array(gone.values(), pa.int64()))


class SqliteRows:
    """Rows to be written to the table of `spec` in SQLite, on a connection that is in a transaction."""

    def __init__(self, connection: sqlite3.Connection, spec: TableSpec, layout: Layout, rows: Rows) -> None:
        self._connection = connection
        self._spec = spec
        self._layout = layout
        self.rows = rows

    @property
    def takes_last_alone(self) -> bool:
        """Whether the last row of each key may be written alone."""
        return self._layout.last_alone

    def attempt(self, winners: Sequence[int]) -> str | None:
        return self._attempt(lambda: self._execute(winners))

    def attempt_last(self, left: LastRows) -> str | None:
        """Write what is left of each key, or nothing: then the table's reason is returned."""
        return self._attempt(lambda: self._execute_last(left))

    def _attempt(self, write: Callable[[], None]) -> str | None:
        execute = self._connection.execute
        execute("SAVEPOINT leasehold_rows")
        try:
            write()
        except ROW_ERRORS as error:
            layout = self._layout
            statements = (layout.upsert, len(layout.columns)), (layout.delete, len(layout.keys))
            if not is_the_rows(self._connection, error, statements):
                raise
            if not self._connection.in_transaction:
                raise SinkError(
                    f"the table {self._spec.name} ended the transaction of the batch: {error}. Nothing of the batch "
                    "was applied. Let its triggers RAISE(ABORT) and its constraints not say ON CONFLICT ROLLBACK; "
                    f"then the event alone goes to {self._spec.rejected}"
                ) from error
            execute("ROLLBACK TO leasehold_rows")
            execute("RELEASE leasehold_rows")
            return str(error)
        execute("RELEASE leasehold_rows")
        return None

    def _execute(self, winners: Sequence[int]) -> None:
        values, deletes = self.rows.values, self.rows.deletes
        if deletes is None or self._layout.delete is None:
            some = values[winners.start : winners.stop] if isinstance(winners, range) else [values[i] for i in winners]
            self._connection.executemany(self._layout.upsert, some)
            return
        for is_delete, run in groupby(winners, deletes.__getitem__):
            if is_delete:
                self._connection.executemany(self._layout.delete, [self.rows.keys[i] for i in run])
            else:
                self._connection.executemany(self._layout.upsert, [values[i] for i in run])

    def _execute_last(self, left: LastRows) -> None:
        """An entity that was deleted on the way is deleted first: columns that are not bound begin anew."""
        rows, last = self.rows, left.last
        if self._layout.delete is not None and len(left.deleted):
            self._connection.executemany(self._layout.delete, rows.keys_of(left.deleted))
            last = last.filter(pc.invert(pa.array(rows.deletes, pa.bool_()).take(last)))
        self._connection.executemany(self._layout.upsert, rows.values_of(last))

    def conflict(self, index: int, known: Claim) -> KeyFromTwoPartitions:
        rows, (hub, partition) = self.rows, known
        return two_partitions(self._spec, rows.keys[index], rows.lanes[index], rows.numbers[index], (hub, partition))
