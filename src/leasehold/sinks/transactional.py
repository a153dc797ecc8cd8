"""What every sink with transactions does the same: a batch is one transaction, with the watermarks that fence it.

Owns the order of what happens in the transaction. Promises that a batch is applied whole or not at all, that no event
is applied twice or left out, whichever owner brings the batch and however often. Works on Arrow tables and knows
nothing of Spark, nor of SQL: a database brings a `TableTransaction`.

In the transaction, in this order: see whose the table is; make or check the tables; lock the watermarks of the batch's
partitions, read them and raise them to its owner levels; only then read which of its events a person has had skipped,
and what is known of its keys (of a spread table: lock the versions of its entities, and have those computed anew that
have moved); write related rows with the states that they belong to, rows, rejected events, the memory of keys and the
watermarks' new places.

Whether a refused range is a zombie's is asked of the ownership store, which may take seconds. That is never
done under the lock: the transaction is rolled back, the question put, and the transaction started anew.
A zombie stays one, so the answer keeps. It is also started anew, once, where a database has tried to write the rows of
the batch in a way that does not tell which one is wrong. The time of what was undone is in no `seconds` of the result.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from leasehold.clock import Clock, SystemClock
from leasehold.counts import Counts
from leasehold.errors import ConfigError, OwnerLevelWentBack, UsageError
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.base import Features, LevelOf, SinkFeature
from leasehold.sinks.beside.changes import BesideRows
from leasehold.sinks.beside.moved_in import uncounted_rows
from leasehold.sinks.beside.skipping.passing import NotesToPass
from leasehold.sinks.features import DUPLICATES, OUTBOX, PARKING, RELATED, SKIPPING, VERSIONS, require
from leasehold.sinks.rules import claims, fence
from leasehold.sinks.rules.batch import Arrangement, Batch, arrange
from leasehold.sinks.rules.columns import qualified
from leasehold.sinks.rules.content import kind_of_order
from leasehold.sinks.rules.counting import counts_of
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.remembered_order import check_order, check_spec, order_of, unordered_rows
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec
from leasehold.sinks.transactions import EachRowNeeded, TableTransaction

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=TableTransaction)


class _Unjudged(Exception):
    """Ranges were refused, and it has not been asked yet whether they are zombies'."""

    def __init__(self, refusals: tuple[fence.Refusal, ...]) -> None:
        super().__init__(refusals)
        self.refusals = refusals


class _Violated(Exception):
    """The database has refused what these events make of their entities; undoes the transaction."""

    def __init__(self, events: Mapping[int, str]) -> None:
        super().__init__(events)
        self.events = events


class TransactionalSink(ABC, Generic[T]):
    """The entity table of `spec` in a database with transactions; `where` names the database in messages.

    A database's class says its `features`, and writes `_transaction`, `row_count` and `close`. It may use `_claimed`, a
    transaction on the table once it is known to be this pipeline's, `_clock`, and `_log_added`, for the columns that a
    transaction has added; it may override `_committed`, and what is public. All else here is no database's.
    """

    features: Features
    """What the sink does beside: the empty set for one that does nothing."""

    def __init__(self, spec: TableSpec, where: str, clock: Clock | None) -> None:
        self.spec = spec
        self._where = where
        self._clock = clock or SystemClock()
        self._identity: str | None = None
        self._untimely_said = False
        self._noted = NotesToPass()
        self._none_whole = False  # as far as this object knows: then a batch of nothing has nothing to say
        self._seen = fence.SeenMarks()
        self._fitted: pa.Schema | None = None  # the schema of the last batch that was applied

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[T]:
        """A transaction on the table, committed at the end of the block and rolled back if it raises."""

    @abstractmethod
    def row_count(self) -> int:
        """See `Sink`."""

    @abstractmethod
    def close(self) -> None:
        """See `Sink`."""

    def _committed(self, transaction: T) -> None:
        """Whatever `transaction` has found out holds from now on: a rollback would have undone tables too."""

    def apply(self, batch: Batch, level_of: LevelOf | None = None) -> BatchResult:
        """Apply what is new in `batch`, in one transaction.

        A range below the watermark's owner level is dropped if `level_of` says that it is a zombie's, and else
        raises `OwnerLevelWentBack`; without `level_of` it is dropped with a warning. Raises `SchemaMismatch`,
        `KeyFromTwoPartitions`, `StaleBatch` and `EventsMissing` with nothing applied.
        """
        arrangement = arrange(batch)
        if not self.spec.keys and (batch.sequence_by is not None or batch.delete is not None):
            raise ConfigError(
                "mode", self.spec.mode, "appended events have no order and are never deleted", "Use upsert"
            )
        if self.spec.spread != (batch.versioned is not None) and batch.rows.num_rows:
            raise ConfigError(
                "spread",
                self.spec.spread,
                "a batch of such a table says which versions of its entities it has read, and no other batch does",
                "Give Batch(versioned=…) with TableSpec(spread=True), or neither",
            )
        self._check_features(batch)
        fitted = self._fitted
        if not arrangement.stretches and self._none_whole and fitted and fitted.equals(batch.rows.schema):
            return BatchResult()  # nothing to write, so no writer to wait for
        judged: set[fence.Range] = set()
        each_row = False
        while True:
            try:
                with self._claimed() as transaction:
                    transaction.fit(batch.rows.schema)
                    known = judged if level_of else None
                    result, left = self._apply(transaction, batch, arrangement, known, each_row=each_row)
            except EachRowNeeded:
                if each_row:
                    raise
                each_row = True
                continue
            except _Unjudged as unjudged:
                assert level_of is not None
                for refusal in unjudged.refusals:
                    self._judge(refusal, level_of)
                    judged.add(refusal.range)
                continue
            except _Violated as violated:
                return BatchResult(violations=violated.events)
            self._seen.note(left)  # only now: a rollback undoes them
            self._fitted = batch.rows.schema
            self._none_whole = batch.ranges is None
            self._log(result, certain=level_of is not None)
            return result

    def _check_features(self, batch: Batch) -> None:
        """Refuse a batch that has more to write beside the table than this sink says that it does."""
        asked: dict[SinkFeature[Any], object] = {
            VERSIONS: batch.versioned,
            DUPLICATES: batch.identities,
            RELATED: batch.related,
            PARKING: batch.parking,
            OUTBOX: batch.outbox or None,
        }
        for feature in (feature for feature, some in asked.items() if some is not None):
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

    def identity(self) -> str:
        """The UUID of this pipeline's table, made on first use and lost only with the database."""
        with self._claimed() as transaction:
            return transaction.claim()

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """The watermark of each partition of `hub` that has one."""
        with self._claimed() as transaction:
            marks = transaction.watermarks([hub])
        self._seen.note(marks)
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
            if SKIPPING in self.features:
                transaction.drop_notes(places)
            if PARKING in self.features:
                transaction.unpark_above(places)
            if DUPLICATES in self.features:
                transaction.identities_reach(None)
            transaction.set_watermarks({(hub, name): mark for name, mark in marks.items()})
        self._seen.forget((hub, name) for name in marks)

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
        self._check_reader(transaction, [hub])
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

    def _apply(
        self,
        transaction: T,
        batch: Batch,
        arrangement: Arrangement,
        judged: set[fence.Range] | None,
        *,
        each_row: bool,
    ) -> tuple[BatchResult, Mapping[fence.Lane, Watermark]]:
        """What becomes of the batch, and the watermarks that it leaves."""
        ranges = [stretch.range for stretch in arrangement.stretches]
        hubs = sorted({each.hub for each in ranges})
        self._check_reader(transaction, hubs)
        transaction.lock_watermarks({each.lane for each in ranges}, whole_table=batch.ranges is None)
        stored = transaction.watermarks(hubs)
        new = all(mark.sequence_number == BEFORE_FIRST for mark in stored.values())
        if new and (queue := transaction.queue_beside()) is not None:
            raise claims.filled_by_queue(self.spec, queue)
        if batch.read_under is not None and fence.outdated(stored, batch.read_under):
            return BatchResult(outdated=True), {}
        plan = fence.plan(stored, ranges, self._seen.lost(stored))
        fence.check_disputes(plan)
        unjudged = tuple(each for each in plan.refused if judged is not None and each.range not in judged)
        if unjudged:
            raise _Unjudged(unjudged)
        fence.check_gaps(str(self.spec.called), plan)
        # Levels first: from here on, no batch of a lower one gets past the watermark.
        transaction.set_watermarks(fence.at_new_levels(stored, plan))

        beside = BesideRows(transaction)
        if plan.admitted and batch.parking is not None and not beside.has_what_was_tried(batch.parking):
            return BatchResult(outdated=True), {}
        if batch.versioned is not None and plan.admitted:
            if (now := beside.of_last_versions(batch)) is None:
                return BatchResult(outdated=True), {}
            batch, arrangement = now, arrange(now)
        notes = self._noted.of(transaction, stored, plan) if SKIPPING in self.features else []
        kept = arrangement.admitted(plan).without(left_out := {note.event for note in notes})
        verdict = None
        if batch.identities is not None:
            verdict = beside.judge_duplicates(batch.identities, plan, self._clock.wall(), left_out)
            kept = kept.without(verdict.dropped)
        kind = kind_of_order(batch)
        if batch.related is not None and plan.admitted and (violations := beside.relate(batch.related)):
            raise _Violated(violations)
        recorded = transaction.recorded_order()
        table_order = order_of(self.spec, kind, deletes=batch.delete is not None)
        check_order(recorded, self.spec, table_order)
        table_order = recorded.after(table_order)
        written = transaction.write(batch, kept, plan, table_order, self._clock.wall(), each_row=each_row)
        if batch.read_under is not None and (unwritten := written.refused(batch)):
            raise _Violated(unwritten)
        if notes:
            transaction.pass_notes(notes, self._clock.wall())
        if batch.parking is not None and plan.admitted:
            beside.park(batch.parking, self._clock.wall())
        if batch.outbox:
            beside.emit(batch.outbox, plan, self._clock.wall())
        transaction.set_watermarks(plan.watermarks)
        if batch.ranges is None:
            transaction.leave_none_whole()
        dropped, untimely = (0, 0) if verdict is None else (len(verdict.dropped), verdict.untimely)
        known = Counts(
            *(written.applied, written.superseded, len(written.set_aside)), duplicates=dropped, untimely=untimely
        )
        result = BatchResult(
            **asdict(counts_of(batch, arrangement, plan, kept, notes, known)),
            refused_ranges=arrangement.refused(plan),
            skipped_events=tuple(note.said for note in notes),
            seconds=written.seconds,
        )
        return result, plan.watermarks

    def _log_added(self, columns: tuple[str, ...]) -> None:
        """Say what the table was given, once that is committed."""
        if columns:
            logger.info("table %s: the columns %s were added (schema_evolution)", self.spec.called, ", ".join(columns))

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

    def _check_reader(self, transaction: T, hubs: Iterable[str]) -> None:
        for hub in hubs:
            if (group := transaction.reader_beside(hub)) is not None:
                raise claims.another_reader(self.spec, group)

    @contextmanager
    def _claimed(self) -> Iterator[T]:
        """A transaction on this pipeline's table, in the database where it has been since this object first saw it.

        A database that was deleted under a running instance may be there again, empty: made by another one that
        was started meanwhile. Going on in it would leave out all that the first one held.
        """
        with self._transaction() as transaction:
            identity = transaction.claim()
            if self._identity not in (None, identity):
                raise claims.was_replaced(self.spec, self._where)
            yield transaction
        self._identity = identity  # only now: a rollback undoes a new one
        self._committed(transaction)
