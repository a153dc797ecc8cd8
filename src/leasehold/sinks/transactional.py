"""What every sink with transactions does the same: a batch is one transaction, with the watermarks that fence it.

Promises that a batch is applied whole or not at all, that no event is applied twice or left out, whichever owner brings
the batch and however often. Works on Arrow tables and knows nothing of Spark, nor of SQL: a database brings a
`TableTransaction`. What happens in the transaction, in which order, is the list of steps in `sinks.door.steps`.

Whether a refused range is a zombie's is asked of the ownership store, which may take seconds. That is never
done under the lock: the transaction is rolled back, the question put, and the transaction started anew.
A zombie stays one, so the answer keeps. It is also started anew, once, where a database has tried to write the rows of
the batch in a way that does not tell which one is wrong. The time of what was undone is in no `seconds` of the result.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from leasehold.clock import Clock, SystemClock
from leasehold.errors import ConfigError, OwnerLevelWentBack, SinkError, UsageError
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.base import Compared, LevelOf, Sink, SinkFeature
from leasehold.sinks.beside.moved_in import uncounted_rows
from leasehold.sinks.door import shared, steps
from leasehold.sinks.door.open_batch import BatchKind, OpenBatch, SinkMemory, Unjudged, Violated
from leasehold.sinks.door.together import sum_of
from leasehold.sinks.features import BOOKKEEPING, RELATED, STATES, require
from leasehold.sinks.rules import fence
from leasehold.sinks.rules.batch import NO_ROWS, Batch, arrange
from leasehold.sinks.rules.columns import qualified
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.remembered_order import check_spec, unordered_rows
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec
from leasehold.sinks.transactions import EachRowNeeded, TableTransaction

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=TableTransaction)


class _Looked(Exception):
    """Undoes a transaction that was only to look."""


class TransactionalSink(Sink, Generic[T]):
    """The entity table of `spec` in a database with transactions; `where` names the database in messages.

    A database's class says its `features`, and writes `_transaction`, `row_count`, `rejected_rows` and
    `set_aside_counts` (`BesideSink` has all but the first for a database with SQL). It may use `_claimed`, a
    transaction on the table once it is known to be this pipeline's, and `_clock`; it may override `_committed`, `_try`,
    and what is public. All else here is no database's.
    """

    def __init__(self, spec: TableSpec, where: str, clock: Clock | None) -> None:
        self.spec = spec
        self._where = where
        self._clock = clock or SystemClock()
        self._memory = SinkMemory(spec, where, self.features)
        if spec.unavailable_value is not None:
            require(self, STATES, "unavailable_value")
        self._untimely_said = False
        self._none_whole = False  # as far as this object knows: then a batch of nothing has nothing to say
        self._fitted: pa.Schema | None = None  # the schema of the last batch that was applied

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[T]:
        """A transaction on the table, committed at the end of the block and rolled back if it raises."""

    def _joined(self, transaction: T) -> T:
        """For TOGETHER: the transaction of another table, of the same database and schema, as one on this table."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method _joined, which the feature TOGETHER asks for: write it, or leave "
            "TOGETHER out of the sink's features"
        )

    def _committed(self, transaction: T) -> None:
        """Whatever `transaction` has found out holds from now on: a rollback would have undone tables too."""

    def _try(self, transaction: T, schema: pa.Schema) -> None:
        """Check the table for rows of this schema, in a transaction that is undone. Raises `SchemaMismatch`."""
        transaction.fit(schema)

    def apply(self, batch: Batch, level_of: LevelOf | None = None) -> BatchResult:
        """Apply what is new in `batch`, in one transaction.

        A range below the watermark's owner level is dropped if `level_of` says that it is a zombie's, and else
        raises `OwnerLevelWentBack`; without `level_of` it is dropped with a warning. Raises `SchemaMismatch`,
        `KeyFromTwoPartitions`, `StaleBatch` and `EventsMissing` with nothing applied.
        """
        if batch.beside:
            rule = "a batch for several tables goes to the set of them"
            raise ConfigError("beside", None, rule, "Apply it to a TableSet, or each of batch.each() to its table")
        return self._pass_door([_Work(self, batch)], level_of)

    def apply_together(
        self, batches: Sequence[tuple[TransactionalSink[T], Batch]], level_of: LevelOf | None = None
    ) -> BatchResult:
        """See `FillsTogether`."""
        return self._pass_door([_Work(sink, batch) for sink, batch in batches], level_of)

    def _pass_door(self, works: Sequence[_Work[T]], level_of: LevelOf | None) -> BatchResult:
        """Take the steps of the door once for each of these, in one transaction of this sink's."""
        if all(work.has_nothing_to_say for work in works):
            return BatchResult()  # so no writer has to be waited for
        judged: set[fence.Range] = set()
        each_row = False
        at = works[0]
        while True:
            results: list[BatchResult] = []
            try:
                with self._transaction() as transaction:
                    for at in works:
                        own = transaction if at.sink is self else at.sink._joined(transaction)
                        results.append(at.run(own, judged if level_of else None, each_row))
            except EachRowNeeded:
                if each_row:
                    raise
                each_row = True
                continue
            except Unjudged as unjudged:
                assert level_of is not None
                for refusal in unjudged.refusals:
                    at.sink._judge(refusal, level_of)
                    judged.add(refusal.range)
                continue
            except Violated as violated:
                return BatchResult(violations=violated.events)
            except SinkError as error:
                if len(works) > 1:
                    names = ", ".join(str(work.sink.spec.called) for work in works)
                    error.add_note(f"It was one transaction on the tables {names}, and nothing of it was applied.")
                raise
            for work, result in zip(works, results, strict=True):
                work.committed()
                work.sink._log(result, certain=level_of is not None)
            return results[0] if len(works) == 1 else sum_of([work.opened for work in works], results)

    def _check_form(self, batch: Batch, kind: BatchKind) -> None:
        """Refuse a batch that does not go with the table, or with what this sink says that it does."""
        if not self.spec.keys and (batch.sequence_by is not None or batch.delete is not None):
            raise ConfigError(
                "mode", self.spec.mode, "appended events have no order and are never deleted", "Use upsert"
            )
        if kind is BatchKind.EVENTS and self.spec.spread != (batch.versioned is not None) and batch.rows.num_rows:
            raise ConfigError(
                "spread",
                self.spec.spread,
                "a batch of such a table says which versions of its entities it has read, and no other batch does",
                "Give Batch(versioned=…) with TableSpec(spread=True), or neither",
            )
        self._check_features(batch)

    def _check_features(self, batch: Batch) -> None:
        """Refuse a batch that has more to write beside the table than this sink says that it does."""
        asked: dict[SinkFeature[Any], Sequence[object]] = {
            BOOKKEEPING: [batch.identities],
            RELATED: [batch.related],
            STATES: [batch.versioned, batch.parking, batch.outbox or None, batch.messages],
        }
        for feature, brought in asked.items():
            if any(one is not None for one in brought):
                require(self, feature, "what a batch writes beside its table")

    def _judge(self, refusal: fence.Refusal, level_of: LevelOf) -> None:
        """Return if the range is a zombie's; else put the partition into dispute, for good, and raise."""
        lane = refusal.range.lane
        try:
            fence.judge(refusal, level_of(*lane))
        except OwnerLevelWentBack:
            with self._claimed() as transaction:
                transaction.lock_watermarks([lane])
                mark = transaction.watermarks([lane[0]]).get(lane)
                if mark is not None and mark.owner_level == refusal.watermark_level:  # else a reset came between
                    transaction.set_watermarks({lane: replace(mark, disputed=True)})
            raise

    def check(self, schema: pa.Schema) -> None:
        """Make the table, or compare it with what is there, before there is any row.

        Says how many rows do not count that are there before the first event. Raises `SchemaMismatch`, and
        `ConfigError` for another `sequence_by` than the table's.
        """
        with self._claimed() as transaction:
            transaction.fit(schema)
            check_spec(transaction.recorded_order(), self.spec)  # behind it, as in a batch: both may wait for a lock
            rows = uncounted_rows(transaction, self.spec, schema, self._where)
        self._fitted = schema
        if rows:
            logger.warning("%s", unordered_rows(self.spec, rows))

    def compare(self, schema: pa.Schema | None) -> Compared:
        """As `check`, with all that was made undone, so that a user who may not write is found out too."""
        there, added, rows = False, tuple[str, ...](), 0
        with suppress(_Looked), self._claimed() as transaction:
            there = transaction.is_there()
            transaction.check_still_there()
            if schema is not None:
                self._try(transaction, schema)
                added = transaction.added
                rows = uncounted_rows(transaction, self.spec, schema, self._where) if there else 0
            check_spec(transaction.recorded_order(), self.spec)
            raise _Looked
        return Compared(there, added, rows)

    def identity(self) -> str:
        """The UUID of this pipeline's table, made on first use and lost only with the database."""
        with self._claimed() as transaction:
            return transaction.claim()

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """The watermark of each partition of `hub` that has one."""
        with self._claimed() as transaction:
            marks = transaction.watermarks([hub])
        self._memory.seen.note(marks)
        return {partition: mark for (_, partition), mark in marks.items()}

    def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool = False) -> None:
        """Write the watermarks of these partitions as they are given, also lower ones: for a person's reset.

        The rows of the table stay, and events above a lowered watermark are applied again. `anew` says that all
        events of the hub will be: then what is known of keys is forgotten, with what they were ordered by, and the
        outcome is that of a first reading into the table (`remembered_order`, rule 3). If the table has been
        dropped, it will be made anew. Parked events that will be read again are parked no more (`parking`, rule 5).

        Raises `UsageError`, with nothing changed, where a higher owner level has been, since its owner goes on from
        there; and where a watermark is lowered below events that an appended or handled table holds.
        """
        with self._claimed() as transaction:
            stored = self._check_set(
                transaction, hub, {partition: mark.owner_level for partition, mark in marks.items()}
            )
            self._check_appended(transaction, stored, marks)
            transaction.forget_dropped()
            if anew:
                transaction.forget_keys()
            places = {(hub, name): mark.sequence_number for name, mark in marks.items()}
            if BOOKKEEPING in self.features:
                transaction.drop_notes(places)
                transaction.identities_reach(None)
            if STATES in self.features:
                transaction.unpark_above(places)
            transaction.set_watermarks({(hub, name): mark for name, mark in marks.items()})
        self._memory.seen.forget((hub, name) for name in marks)

    def begin_at(self, hub: str, marks: Mapping[str, Watermark]) -> None:
        """See `FillsTogether`."""
        lanes = {(hub, name): mark for name, mark in marks.items()}
        with self._claimed() as transaction:
            transaction.lock_watermarks(lanes)
            there = transaction.watermarks([hub])  # also those that only the lock has made
            new = [lane for lane in lanes if there.get(lane, Watermark()).sequence_number == BEFORE_FIRST]
            transaction.set_watermarks({lane: lanes[lane] for lane in new})

    def check_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, is_part: bool = False) -> None:
        """See `Watermarked`."""
        with self._claimed() as transaction:
            if is_part:
                transaction.check_still_there()
            stored = self._check_set(
                transaction, hub, {partition: mark.owner_level for partition, mark in marks.items()}
            )
            self._check_appended(transaction, stored, marks)

    def raise_owner_levels(self, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
        """Announce owner levels, so that batches of lower ones are refused; return the watermarks as they now stand.

        A partition that has no watermark gets one, before the first event. Raises `UsageError`, with nothing changed,
        where a higher level has been.
        """
        with self._claimed() as transaction:
            stored = self._check_set(transaction, hub, levels)
            raised = {
                partition: replace(stored.get(partition, Watermark()), owner_level=level)
                for partition, level in levels.items()
            }
            transaction.set_watermarks({(hub, name): mark for name, mark in raised.items()})
        return {**stored, **raised}

    def _check_set(self, transaction: T, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
        """The watermarks of `hub`, after a look whether those of these partitions may be set at these levels."""
        transaction.lock_watermarks([], whole_table=True)
        shared.check_reader(self.spec, transaction, [hub])
        marks = transaction.watermarks([hub])
        stored = {partition: mark for (_, partition), mark in marks.items()}
        for partition, level in levels.items():
            if partition in stored and (highest := stored[partition].owner_level) > level:
                raise UsageError(
                    f"partition {partition}: the watermarks of the table {self.spec.called} are to be set at owner "
                    f"level {level}, and level {highest} has been here meanwhile. Nothing was changed. "
                    "Stop every instance and try again"
                )
        return stored

    def _check_appended(self, transaction: T, stored: Mapping[str, Watermark], marks: Mapping[str, Watermark]) -> None:
        if (self.spec.keys and not self.spec.handled) or not transaction.has_rows():
            return
        again = "count them twice" if self.spec.handled else "append them twice"
        for partition, mark in marks.items():
            before = stored.get(partition)
            if before is not None and mark.sequence_number < before.sequence_number:
                raise UsageError(
                    f"partition {partition}: the table {self.spec.called} holds its events up to sequence number "
                    f"{before.sequence_number}, and reading them again would {again}. Empty the table first: "
                    f"DELETE FROM {qualified(self.spec.called)}"
                )

    def _log(self, result: BatchResult, *, certain: bool) -> None:
        """A zombie that is fenced out is normal; a refusal that was not looked into may be a wiped store.

        Untimely events are said once: a device whose clock is wrong sends them for as long as it is.
        """
        if result.untimely and not self._untimely_said:
            self._untimely_said = True
            logger.warning(
                "table %s: events (%d of this batch) were applied whose time is missing, in the future, or older than "
                "what deduplicate_by remembers: whether one was sent before is told by when it came. Look at the "
                "clocks of their producers, if these give the time, and at partitions that lag. All count as untimely",
                *(self.spec.called, result.untimely),
            )
        for said in result.skipped_events:
            logger.warning("table %s: %s", self.spec.called, said)
        for each in result.refused_ranges:
            logger.log(
                logging.INFO if certain else logging.WARNING,
                "table %s: dropped %d rows of partition %s, read under owner level %d: level %d has been here%s",
                self.spec.called,
                each.rows,
                each.partition,
                each.owner_level,
                each.watermark_level,
                "" if certain else ". Without a store it cannot be said whether that is a former owner's late batch",
            )

    @contextmanager
    def _claimed(self) -> Iterator[T]:
        """A transaction on this pipeline's table, in the database where it has been since this object first saw it."""
        with self._transaction() as transaction:
            identity = shared.claim(self._memory, transaction)
            yield transaction
        self._note(transaction, identity)

    def _note(self, transaction: T, identity: str) -> None:
        """Remember what holds from now on: a rollback would have undone a new identity."""
        self._memory.identity = identity
        if columns := ", ".join(transaction.added):
            logger.info("table %s: the columns %s were added (schema_evolution)", self.spec.called, columns)
        self._committed(transaction)


class _Work(Generic[T]):
    """A batch for a table, and what its way through the door has found out. Raises what it is refused for by itself."""

    def __init__(self, sink: TransactionalSink[T], batch: Batch) -> None:
        self.sink, self.batch, self.kind = sink, batch, BatchKind.of(batch)
        _check_kind(batch, self.kind)
        self.arrangement = NO_ROWS if self.kind is BatchKind.MESSAGES else arrange(batch)
        sink._check_form(batch, self.kind)

    @property
    def has_nothing_to_say(self) -> bool:
        """Whether it has read nothing, and the table knows already that it may."""
        nothing = self.kind is BatchKind.EVENTS and not self.arrangement.stretches and self.sink._none_whole
        fitted = self.sink._fitted
        return nothing and fitted is not None and fitted.equals(self.batch.rows.schema)

    def run(self, transaction: T, judged: Collection[fence.Range] | None, each_row: bool) -> BatchResult:
        """Take the steps."""
        sink, self.transaction = self.sink, transaction
        wall = sink._clock.wall
        self.opened = OpenBatch(sink._memory, transaction, self.batch, self.arrangement, judged, each_row, wall)
        return steps.run(self.opened)

    def committed(self) -> None:
        """The transaction has ended well: what was found out in it holds."""
        sink = self.sink
        sink._note(self.transaction, self.opened.identity)
        if self.kind is BatchKind.EVENTS:
            sink._memory.seen.note(self.opened.left)  # only now: a rollback undoes them
            sink._fitted = self.batch.rows.schema
            sink._none_whole = self.batch.ranges is None


def _check_kind(batch: Batch, kind: BatchKind) -> None:
    """Refuse a batch that brings what belongs to one of another kind: nobody would write it. Raises `ConfigError`."""
    beside = ("ranges", "read_under", "parking", "versioned", "outbox", "related", "times")
    read = [name for name in beside if getattr(batch, name)]
    if kind is not BatchKind.EVENTS and (read or (batch.again is not None and batch.messages is not None)):
        raise ConfigError(
            str(kind),
            None,
            f"a batch with {kind} has read nothing from a hub, and brings no {', '.join(read) or BatchKind.AGAIN}",
            "Apply each in a batch of its own",
        )
