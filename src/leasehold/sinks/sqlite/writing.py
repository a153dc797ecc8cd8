"""Writes the rows of a batch one after the other, quickly, and sets aside those that the table refuses.

Owns the savepoints of rows. Rows are tried in chunks (`rules.row_by_row`). Where no rule of the table could see a row
that a later one of its key replaces (`sinks.sqlite.rules`), the last row of each key is written alone, in the order of
the keys, which touches each page of the table once. That takes no savepoint, under which SQLite would copy each page
that changes: if the table refuses one, the transaction is undone, and another one tries the rows in chunks.
Refuses to go on when the table has ended the transaction itself (RAISE(ROLLBACK), ON CONFLICT ROLLBACK): by then the
watermarks are undone too.

Runs inside the one transaction of a batch, so nobody else can come between its steps; killed at any line
it leaves nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.errors import KeyFromTwoPartitions, SinkError, Verdict
from leasehold.sinks.rules.ordering import Claim
from leasehold.sinks.rules.row_by_row import RowOrder, RowWriter, Written, two_partitions
from leasehold.sinks.rules.rows import LastRows, Rows
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite import memory
from leasehold.sinks.sqlite.blame import ROW_ERRORS, is_the_rows, refuse_own_columns
from leasehold.sinks.sqlite.inserts import insert
from leasehold.sinks.sqlite.shape import TableShape
from leasehold.sinks.transactions import EachRowNeeded


class SqliteWriting:
    """Writes the rows of one batch to the table of `spec`, on a connection that is in a transaction.

    Each way has the outcome of writing one row after the other. Unless `each_row` is asked for, `EachRowNeeded` is
    raised, with some rows written, where the table refuses a last row, and where `write_last` finds in the memory of
    keys that one is of another partition.
    """

    def __init__(self, connection: sqlite3.Connection, spec: TableSpec, layout: TableShape, *, each_row: bool) -> None:
        self._connection = connection
        self._spec = spec
        self._layout = layout
        self._takes_last_alone = layout.last_alone and not each_row

    def write_last(self, rows: Rows) -> Written | None:
        """Write the last row of each key, and remember it, with no look at what is known of the keys.

        For a batch that no value puts in order. None, with nothing written, where the table or the types of its keys
        do not let that be done, and where the batch itself has a key from two partitions.
        """
        if not self._takes_last_alone:
            return None
        one_lane = not self._spec.spread
        left = rows.last_of_keys(one_lane=one_lane)
        if left is None:
            return None
        noted = rows.remembered(left)
        if memory.remember(self._connection, self._spec, noted, one_lane=one_lane) != len(left.last):
            raise EachRowNeeded
        self._table_of(rows).write_last(left)
        return Written(len(rows))

    def write_rows(self, rows: Rows, order: RowOrder) -> Written:
        """Write all rows, in the quickest way that is left. Raises what `RowWriter.write` raises as well."""
        table, count = self._table_of(rows), len(rows)
        if self._takes_last_alone:
            step = order.judge(0, count)
            if step.stop == count:
                table.write_last(rows.left_by(step))
                order.accept(step)
                return Written(len(step.winners), step.superseded)
        return RowWriter(table, count, order, rejects=self._spec.rejects_strangers).write()

    def _table_of(self, rows: Rows) -> SqliteRows:
        return SqliteRows(self._connection, self._spec, self._layout, rows)


class SqliteRows:
    """Rows to be written to the table of `spec` in SQLite, on a connection that is in a transaction."""

    def __init__(self, connection: sqlite3.Connection, spec: TableSpec, layout: TableShape, rows: Rows) -> None:
        self._connection = connection
        self._spec = spec
        self._layout = layout
        self.rows = rows

    def attempt(self, winners: Sequence[int]) -> str | None:
        execute = self._connection.execute
        execute("SAVEPOINT leasehold_rows")
        try:
            self._execute(winners)
        except ROW_ERRORS as error:
            if not self._is_the_rows(error):
                raise
            if not self._connection.in_transaction:
                raise SinkError(
                    f"the table {self._spec.name} ended the transaction of the batch: {error}. Nothing of the batch "
                    "was applied. Let its triggers RAISE(ABORT) and its constraints not say ON CONFLICT ROLLBACK; "
                    f"then the event alone goes to {self._spec.rejected}",
                    verdict=Verdict.ROWS,
                ) from error
            execute("ROLLBACK TO leasehold_rows")
            execute("RELEASE leasehold_rows")
            refuse_own_columns(self._connection, self._spec.name, self._layout.columns, error)
            return str(error)
        execute("RELEASE leasehold_rows")
        return None

    def write_last(self, last_rows: LastRows) -> None:
        """Write what is left of each key. Raises `EachRowNeeded`, with some of it written, where one is refused."""
        try:
            self._execute_last(last_rows)
        except ROW_ERRORS as error:
            if not self._is_the_rows(error):
                raise
            raise EachRowNeeded from error

    def _is_the_rows(self, error: sqlite3.Error) -> bool:
        layout = self._layout
        statements = (layout.upsert, len(layout.columns)), (layout.delete, len(layout.keys))
        return is_the_rows(self._connection, error, statements)

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

    def _execute_last(self, last_rows: LastRows) -> None:
        """An entity that was deleted on the way is deleted first: columns that are not bound begin anew."""
        rows, last = self.rows, last_rows.last
        if self._layout.delete is not None and len(last_rows.deleted):
            self._connection.executemany(self._layout.delete, rows.keys_of(last_rows.deleted))
            last = last.filter(pc.invert(pa.array(rows.deletes, pa.bool_()).take(last)))
        insert(self._connection, self._layout.insert, rows.columns_of(last))

    def conflict(self, index: int, claim: Claim) -> KeyFromTwoPartitions:
        rows, (hub, partition) = self.rows, claim
        return two_partitions(self._spec, rows.keys[index], rows.lanes[index], rows.numbers[index], (hub, partition))
