"""An entity table in a SQLite file: one transaction a batch, together with the watermarks that fence it.

Owns the transaction and the order of what happens in it. Promises that a batch is applied whole or not at
all, that no event is applied twice or left out, whichever owner brings the batch and however often, and that what
`apply` returned for is on disk. Works on Arrow tables and knows nothing of Spark.

In the transaction, in this order: lock the database; make or check the tables; read the watermarks of the
batch's partitions and raise them to its owner levels; only then read what is known of its keys; write rows,
rejected events, the memory of keys and the watermarks' new places.

Concurrency: any number of threads and processes may apply batches to one table at once, also the same
batch. BEGIN IMMEDIATE makes them follow one another, so the second writer finds the first writer's
watermarks. A process that is paused inside a transaction keeps the others waiting, for at most `timeout`
seconds, after which they raise `SinkUnavailable`; when it goes on, it commits what no other writer could have
overtaken. One that is paused before its transaction finds out in it: its events are at or below the
watermark, or its level is. One that is killed at any line before COMMIT has done nothing, and the next
owner's batch starts where the watermark says; killed after COMMIT, its batch comes again and is dropped.

Whether a refused range is a zombie's is asked of the ownership store, which may take seconds. That is never
done under the lock: the transaction is rolled back, the question put, and the transaction started anew.
A zombie stays one, so the answer keeps.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from leasehold.backends import local_file_of
from leasehold.clock import Clock, SystemClock
from leasehold.errors import (
    AlreadyInUse,
    ConfigError,
    OwnerLevelWentBack,
    SinkError,
    SinkUnavailable,
    UsageError,
)
from leasehold.sinks import bookkeeping, fence, rejected
from leasehold.sinks.base import LevelOf, Sink, TableContents
from leasehold.sinks.batch import Arrangement, Batch, arrange
from leasehold.sinks.content import content_of, kind_of_order
from leasehold.sinks.contents import contents_of_file
from leasehold.sinks.fence import Watermark
from leasehold.sinks.remembered_order import check_order, check_spec, order_of, record
from leasehold.sinks.shape import Layout, exists, fit, quoted
from leasehold.sinks.table import BatchResult, RefusedRange, TableSpec
from leasehold.sinks.writing import RowWriter
from leasehold.sqlite_file import DatabaseFile

logger = logging.getLogger(__name__)


def open_sqlite_sink(url: str, spec: TableSpec, base: Path, timeout: float) -> Sink:
    """Open `sqlite:///PATH`, relative to `base` unless it is absolute."""
    return SqliteSink(local_file_of(url, base, "url"), spec, timeout=timeout)


class _Unjudged(Exception):
    """Ranges were refused, and it has not been asked yet whether they are zombies'."""

    def __init__(self, refusals: tuple[fence.Refusal, ...]) -> None:
        super().__init__(refusals)
        self.refusals = refusals


class SqliteSink:
    """The entity table of `spec` in the SQLite file at `path`; file and table are made when they are missing.

    `timeout` is the longest to wait for another writer, in seconds. Every method may raise `SinkUnavailable`,
    and `AlreadyInUse` when the table belongs to another pipeline or was made with another mode or keys.
    """

    def __init__(self, path: Path, spec: TableSpec, *, timeout: float = 10.0, clock: Clock | None = None) -> None:
        self.spec = spec
        self._path = path
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._file = DatabaseFile(
            path,
            schema=bookkeeping.SCHEMA,
            unavailable=SinkUnavailable,
            broken=SinkError,
            create=True,
            timeout=timeout,
        )
        self._identity: str | None = None
        self._none_whole = False  # as far as this object knows: then a batch of nothing has nothing to say
        # The layout last checked, with what it was checked against. Replaced whole, so threads may race for it.
        self._checked: tuple[sqlite3.Connection, int, pa.Schema, Layout] | None = None

    def apply(self, batch: Batch, level_of: LevelOf | None = None) -> BatchResult:
        """Apply what is new in `batch`, in one transaction.

        A range below the watermark's owner level is dropped if `level_of` says that it is a zombie's, and else
        raises `OwnerLevelWentBack`; without `level_of` it is dropped with a warning. Raises `SchemaMismatch`,
        `KeyFromTwoPartitions`, `StaleBatch` and `EventsMissing` with nothing applied.
        """
        if not self.spec.keys and (batch.sequence_by is not None or batch.delete is not None):
            raise ConfigError(
                "mode", self.spec.mode, "appended events have no order and are never deleted", "Use upsert"
            )
        arrangement = arrange(batch)
        checked = self._checked
        if not arrangement.stretches and self._none_whole and checked and checked[2].equals(batch.rows.schema):
            return BatchResult()  # nothing to write, so no writer to wait for
        judged: set[fence.Range] = set()
        while True:
            try:
                with self._claimed() as connection:
                    version, layout = self._layout(connection, batch.rows.schema)
                    result = self._apply(connection, layout, batch, arrangement, judged if level_of else None)
            except _Unjudged as unjudged:
                assert level_of is not None
                for refusal in unjudged.refusals:
                    self._judge(refusal, level_of)
                    judged.add(refusal.range)
                continue
            self._checked = (connection, version, batch.rows.schema, layout)  # only now: a rollback undoes tables too
            self._none_whole = batch.ranges is None
            self._log(result, certain=level_of is not None)
            return result

    def _judge(self, refusal: fence.Refusal, level_of: LevelOf) -> None:
        """Return if the range is a zombie's; else put the partition into dispute, for good, and raise."""
        lane = refusal.range.lane
        try:
            fence.judge(refusal, level_of(*lane))
        except OwnerLevelWentBack:
            with self._claimed() as connection:
                mark = bookkeeping.watermarks(connection, self.spec, [lane[0]]).get(lane)
                if mark is not None and mark.owner_level == refusal.watermark_level:  # else a reset came between
                    bookkeeping.set_watermarks(connection, self.spec, {lane: replace(mark, disputed=True)})
            raise

    def check(self, schema: pa.Schema) -> None:
        """Make the table, or compare it with what is there, before there is any row.

        Raises `SchemaMismatch`, and `ConfigError` for another `sequence_by` than the table's.
        """
        with self._claimed() as connection:
            check_spec(connection, self.spec)
            version, layout = self._layout(connection, schema)
        self._checked = (connection, version, schema, layout)

    def identity(self) -> str:
        """The UUID of this pipeline's table, made on first use and lost only with the file."""
        with self._claimed() as connection:
            return bookkeeping.claim(connection, self.spec)

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """The watermark of each partition of `hub` that has one."""
        with self._claimed() as connection:
            marks = bookkeeping.watermarks(connection, self.spec, [hub])
        return {partition: mark for (_, partition), mark in marks.items()}

    def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool = False) -> None:
        """Write the watermarks of these partitions as they are given, also lower ones: for a person's reset.

        The rows of the table stay, and events above a lowered watermark are applied again. `anew` says that all
        events of the hub will be: then what is known of keys is forgotten, with what they were ordered by, and the
        outcome is that of a first reading into the table (`remembered_order`, rule 3). If the table has been
        dropped, it will be made anew.

        Raises `UsageError`, with nothing changed, where a higher owner level has been, since its owner goes on from
        there; and where a watermark is lowered below events that an appended table holds, and would hold twice.
        """
        with self._claimed() as connection:
            stored = self._check_set(
                connection, hub, {partition: mark.owner_level for partition, mark in marks.items()}
            )
            self._check_appended(connection, stored, marks)
            bookkeeping.forget_dropped(connection, self.spec)
            if anew:
                bookkeeping.forget_keys(connection, self.spec)
            bookkeeping.set_watermarks(connection, self.spec, {(hub, name): mark for name, mark in marks.items()})

    def check_watermarks(self, hub: str, marks: Mapping[str, Watermark]) -> None:
        """Raise the `UsageError` that `set_watermarks` would."""
        with self._claimed() as connection:
            stored = self._check_set(
                connection, hub, {partition: mark.owner_level for partition, mark in marks.items()}
            )
            self._check_appended(connection, stored, marks)

    def raise_owner_levels(self, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
        """Announce owner levels, so that batches of lower ones are refused; return the watermarks as they now stand.

        A partition that has no watermark gets one, before the first event. Raises `UsageError`, with nothing changed,
        where a higher level has been.
        """
        with self._claimed() as connection:
            stored = self._check_set(connection, hub, levels)
            raised = {
                partition: replace(stored.get(partition, Watermark()), owner_level=level)
                for partition, level in levels.items()
            }
            bookkeeping.set_watermarks(connection, self.spec, {(hub, name): mark for name, mark in raised.items()})
        return {**stored, **raised}

    def _check_set(self, connection: sqlite3.Connection, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
        """The watermarks of `hub`, after a look whether those of these partitions may be set at these levels."""
        bookkeeping.check_reader(connection, self.spec, [hub])
        marks = bookkeeping.watermarks(connection, self.spec, [hub])
        stored = {partition: mark for (_, partition), mark in marks.items()}
        for partition, level in levels.items():
            if partition in stored and (highest := stored[partition].owner_level) > level:
                raise UsageError(
                    f"partition {partition}: the watermarks of the table {self.spec.name} are to be set at owner "
                    f"level {level}, and level {highest} has been here meanwhile. Nothing was changed. "
                    "Stop every instance and try again"
                )
        return stored

    def _check_appended(
        self, connection: sqlite3.Connection, stored: Mapping[str, Watermark], marks: Mapping[str, Watermark]
    ) -> None:
        name = self.spec.name
        if self.spec.keys or not exists(connection, name):
            return
        if not connection.execute(f"SELECT 1 FROM {quoted(name)} LIMIT 1").fetchone():
            return
        for partition, mark in marks.items():
            before = stored.get(partition)
            if before is not None and mark.sequence_number < before.sequence_number:
                raise UsageError(
                    f"partition {partition}: the table {name} holds its events up to sequence number "
                    f"{before.sequence_number}, and reading them again would append them twice. Empty the table first: "
                    f"DELETE FROM {name}"
                )

    def row_count(self) -> int:
        """How many rows the table has; 0 if it has not been made yet."""
        with self._explained(), self._file.reading() as connection, self._inner():
            if not exists(connection, self.spec.name):
                return 0
            (count,) = connection.execute(f"SELECT count(*) FROM {quoted(self.spec.name)}").fetchone()
        return int(count)

    def contents(self) -> TableContents:
        """How much the table holds. Makes nothing, not even the file."""
        with self._explained(), self._inner():
            return contents_of_file(self._path, self.spec, self._timeout)

    def close(self) -> None:
        """Close this thread's connection. The sink may be used again afterwards."""
        self._checked = None
        self._file.close()

    def _layout(self, connection: sqlite3.Connection, schema: pa.Schema) -> tuple[int, Layout]:
        """The layout for `schema`, checked unless neither it nor any table has changed since."""
        (version,) = connection.execute("PRAGMA schema_version").fetchone()
        checked = self._checked
        if checked and checked[0] is connection and checked[1] == version and checked[2].equals(schema):
            return version, checked[3]
        bookkeeping.check_still_there(connection, self.spec)
        layout = fit(connection, self.spec, schema)
        bookkeeping.make_companions(connection, self.spec)
        (version,) = connection.execute("PRAGMA schema_version").fetchone()
        return version, layout

    def _apply(
        self,
        connection: sqlite3.Connection,
        layout: Layout,
        batch: Batch,
        arrangement: Arrangement,
        judged: set[fence.Range] | None,
    ) -> BatchResult:
        ranges = [stretch.range for stretch in arrangement.stretches]
        hubs = sorted({each.hub for each in ranges})
        bookkeeping.check_reader(connection, self.spec, hubs)
        stored = bookkeeping.watermarks(connection, self.spec, hubs)
        plan = fence.plan(stored, ranges)
        fence.check_disputes(plan)
        unjudged = tuple(each for each in plan.refused if judged is not None and each.range not in judged)
        if unjudged:
            raise _Unjudged(unjudged)
        fence.check_gaps(self.spec.name, plan)
        nowhere = Watermark()
        # Levels first: from here on, no batch of a lower one gets past the watermark.
        raised = {
            lane: replace(stored.get(lane, nowhere), owner_level=mark.owner_level)
            for lane, mark in plan.watermarks.items()
            if lane not in stored or mark.owner_level > stored[lane].owner_level
        }
        bookkeeping.set_watermarks(connection, self.spec, raised)

        kept = arrangement.admitted(plan)
        kind = kind_of_order(batch)
        table_order = order_of(self.spec, kind, deletes=batch.delete is not None)
        check_order(connection, self.spec, table_order)
        content = content_of(batch, layout, kept)
        order = content.order(
            lambda keys: bookkeeping.known_claims(connection, self.spec, keys, by_value=kind is not None),
            keyed=bool(self.spec.keys),
        )
        written = RowWriter(connection, self.spec, layout, content.rows, order).write()
        set_aside = content.rejected(written.broken)
        rejected.replace(connection, self.spec, plan.admitted, set_aside, self._now())
        if remembered := list(content.remembered(order)):
            bookkeeping.remember_keys(connection, self.spec, remembered)
            record(connection, self.spec, table_order)
        bookkeeping.set_watermarks(connection, self.spec, plan.watermarks)
        if batch.ranges is None:
            bookkeeping.leave_none_whole(connection, self.spec)
        sizes = {stretch.range: stretch.end - stretch.begin for stretch in arrangement.stretches}
        refused = tuple(
            RefusedRange(*each.range.lane, each.range.owner_level, each.watermark_level, sizes[each.range])
            for each in plan.refused
        )
        return BatchResult(written.applied, kept.replayed, refused, written.superseded, len(set_aside))

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.wall(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _log(self, result: BatchResult, *, certain: bool) -> None:
        """A zombie that is fenced out is normal; a refusal that was not looked into may be a wiped store."""
        for each in result.refused:
            logger.log(
                logging.INFO if certain else logging.WARNING,
                "table %s: dropped %d rows of partition %s, read under owner level %d: level %d has been here%s",
                self.spec.name,
                each.rows,
                each.partition,
                each.owner_level,
                each.watermark_level,
                "" if certain else ". Without a store it cannot be said whether that is a former owner's late batch",
            )

    @contextmanager
    def _claimed(self) -> Iterator[sqlite3.Connection]:
        """A transaction on this pipeline's table, in the database where it has been since this object first saw it.

        A database that was deleted under a running instance may be there again, empty: made by another one that
        was started meanwhile. Going on in it would leave out all that the first one held.
        """
        with self._writing() as connection:
            identity = bookkeeping.claim(connection, self.spec)
            if self._identity not in (None, identity):
                raise AlreadyInUse(
                    f"{self._path}: the table {self.spec.name} is not the one that this instance has written to: the "
                    "database was deleted or replaced while it was running. Stop all instances and put the database "
                    "back, or fill the new table from the beginning: leasehold reset PIPELINE.toml --to earliest"
                )
            yield connection
        self._identity = identity  # only now: a rollback undoes a new one

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._explained(), self._file.writing() as connection, self._inner():
            yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What SQLite says of the file or at COMMIT, in the sink's words; a locked file is the file's to tell."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise SinkError(
                f"the table {self.spec.name} refused the batch when it was committed: {error}. Nothing of it was "
                "applied. Make its foreign keys immediate: those that are DEFERRABLE INITIALLY DEFERRED cannot tell "
                "which event is wrong"
            ) from error
        except sqlite3.DatabaseError as error:
            raise SinkError(f"{self._path}: {error}") from error

    @contextmanager
    def _inner(self) -> Iterator[None]:
        """An error in the SQL itself, such as a trigger on a table that is gone: trying again will not help."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR:
                raise
            raise SinkError(f"{self._path}: the table {self.spec.name} cannot be written: {error}") from error
