"""A table that a handler fills, on Spark: tasks call the handler, the driver commits what it answers.

    orders = HandledOnSpark(order, "postgresql://…", table="orders", pipeline="orders",
                            schema="order_id STRING, amount LONG", state="order_id STRING, total LONG")
    with MicroBatches(spark, hub, store=store, pipeline="orders", table=orders) as batches:
        for batch in batches:
            orders.apply(batch)

Owns the way of a batch: its events come to the driver, as rows do; it reads each partition's watermark and which
entities wait; one job, a task for each partition, or several where there is work for them (`shares`), reads states and
calls the handler (`tasks`; for a spread table a task for each share of the entities, `spread_tasks`); then the driver
commits partition by partition, by the same code as the plain processor (`handlers.table`), each with its states,
watermark, related rows, outbox, rejected and parked events in one transaction. Where a watermark is not what it was
before the job (an operator has retried an event, another owner came), the driver reads the states and calls the handler
again by itself. Parked events are tried again in the driver, also while nothing arrives (`try_parked`, for which
`loop.between` says when), and what handlers emit is sent by a thread beside (`handlers.outbox`).

Why a transaction for each partition, and not one for the batch: nothing of a batch has to be seen together, since an
entity's events are in one partition, or, in a spread table, commits come one after the other by its versions. So an
outage, a refused row or a watermark that has moved is one partition's, which alone is held up or computed again; and
what a commit locks is locked for a part of the batch. One transaction would save all commits but one, and would have to
join what is told by partition today: what is parked, and which versions it was computed from (`Parking`, `Versioned`).

Why two jobs for a batch, and not one that reads and calls: reading the next batch does not depend on what the one
before comes to, and runs while that is committed; a call depends on its states, on the watermark and on what waits. The
way of the bodies through the driver costs less than that saves: 400,000 events take about as long as in a plain
processor, which has no such way (`bench/entities.py`).

Refuses a SQLite table unless all tasks are on this machine, which nothing tells over Spark Connect, and what handlers
on Spark have not.

One thread works with a table: the loop's. Stopped for a minute, or killed, at any line before a partition's commit,
nothing of it has happened; of a batch some partitions may be committed and others not, and what comes again of the
former is passed by.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.backends import absolute, names_file
from leasehold.counts import NONE
from leasehold.errors import ConfigError, HandlerUnavailable, LeaseholdError, UsageError
from leasehold.handlers.contract import Computed, EntityHandler, joined
from leasehold.handlers.settings import Bodies, Failures, Spread, Writes
from leasehold.notices import Notice, TableApplied
from leasehold.runtime import Runtime
from leasehold.sinks.base import LevelOf
from leasehold.sinks.features import BOOKKEEPING, offered
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, Totals
from leasehold.spark.handlers.committing import CommittingTable, Trusts
from leasehold.spark.handlers.jobs import HandlerTasks, tasks_of
from leasehold.spark.handlers.lanes import COLUMNS, RangeEvents, events_only, lanes_of
from leasehold.spark.handlers.leased import BatchLeases
from leasehold.spark.handlers.shares import divided, shares_of
from leasehold.spark.handlers.spread_tasks import answered
from leasehold.spark.handlers.tasks import Answer, HandlerCall, TaskPiece
from leasehold.spark.handlers.transformed import check_rows, rows_of
from leasehold.spark.session.versions import is_connect, to_arrow
from leasehold.spark.table.expressions import Prepared
from leasehold.spark.table.of_loop import Collect, LoopBatch, MetTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


logger = logging.getLogger(__name__)

_WORKER_ENDED = "Python worker exited unexpectedly"  # Spark's words, in all its releases
_ROWS = "rows"
AWAY = 10.0
"""Seconds until parked events are looked at again after an error."""


@dataclass(frozen=True, slots=True)
class SettingNames:
    """What settings are called where they were given, and what else there is for what Spark has not."""

    url: str = "url"
    leases: str = "exclusive"
    plain: str = "let a plain processor run the handler (HandledTable)"


class ReadsEvents:
    """Evaluates what a handler is called for: rows that the driver has to have, since calls depend on the watermark."""

    deduplication = None

    def prepare(self, df: DataFrame) -> Prepared:
        """The columns that handlers need."""
        return Prepared(df, ())

    def evaluate(self, prepared: Prepared, collect: Collect = to_arrow) -> Batch:
        """Read the events: the job that may run ahead of a commit."""
        return Batch(collect(prepared.df))


class HandledOnSpark:
    """The states of entities in a table, and the handler that tasks call for the events of `MicroBatches`.

    handler     what `entity` has made of a function. Its module goes to the tasks; what that imports has to be there
    url         of the sink: `postgresql://…`, or `sqlite:///PATH`, which takes a master of this machine
    schema      the columns that the handler is given in `event.row`, or `Bodies(…)`
    spread      as there; `Spread.exclusive` is a URL

    `table`, `pipeline`, `state`, `consumer_group`, `failures` and `runtime` are those of
    `leasehold.handlers.HandledTable`. `level_of` is the loop's.

    Give it to the loop, as `MicroBatches(…, table=…)`, and apply each batch. Raises `ConfigError` for what does not go
    together, and for what handlers on Spark have not: `on_failure="wait"`.
    """

    _named = SettingNames()
    _learns_schema = False
    _reads = ReadsEvents()

    def __init__(
        self,
        handler: EntityHandler,
        url: str,
        *,
        table: str,
        pipeline: str,
        schema: str | Bodies | None,
        state: str | Writes,
        consumer_group: str = "$Default",
        failures: Failures | None = None,
        spread: Spread | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        runtime = runtime or Runtime()
        if failures is not None and failures.on_failure == "wait":
            raise ConfigError(
                "on_failure",
                "wait",
                "on Spark no event holds up its partition",
                f"Leave it out, or {self._named.plain}: it is there",
            )
        if schema is None and not self._learns_schema:
            raise ConfigError(
                "schema",
                None,
                "a handler is given these columns, of the body or of what a transform makes of events",
                'Name them: schema="order_id STRING, amount DECIMAL(12,2)"',
            )
        base = runtime.base or Path.cwd()
        self._leases: str | None = None
        if spread is not None and spread.exclusive is not None:
            if not isinstance(spread.exclusive, str):
                kind = type(spread.exclusive).__name__
                raise ConfigError("exclusive", kind, "tasks open the store by its URL", "Give the URL")
            self._leases = absolute(spread.exclusive, base, "exclusive")
            spread = replace(spread, exclusive=self._leases)
        self._url = absolute(url, base, "url")
        self._table = CommittingTable(
            *(handler, self._url, spread),
            table=table,
            pipeline=pipeline,
            schema=schema,
            state=state,
            consumer_group=consumer_group,
            failures=failures,
            runtime=runtime,
        )
        if not self._table.leases_in_tasks:
            raise ConfigError(
                "exclusive",
                True,
                "on Spark tasks take the leases of one batch, and in this store each process has its own",
                f"Keep leases in aztable://, redis://, postgresql:// or sqlite:///, or {self._named.plain}",
            )
        spec = self._table.sink.spec
        self.met_by_loop = MetTable(spec, self.sink_identity, self.watermarks, self.noted)
        """Whose it is, for a loop."""
        self._tasks: HandlerTasks | None = None
        self._due: dict[tuple[str, int], float] = {}
        self._seconds_an_event = 0.0
        self._totals = Totals()
        self._untold = NONE  # committed since the last batch was

    def apply(self, batch: LoopBatch, rows: DataFrame | None = None) -> BatchResult:
        """Call the handler for the events of a batch, and commit what they come to. What has become of them.

        The handler is given the columns of `schema`, read from the events' bodies; with `rows`, which a transform has
        made of `batch.events`, one row of an event or none, the columns of these rows. They keep hub, partition,
        sequenceNumber, ownerLevel and enqueuedTime as they are.

        A batch that cannot be read whole, or for which the database, the store of the leases or what the handler calls
        is away, raises nothing: the result says so with zeros, and the loop gives its events again. Some partitions of
        it may be committed then; what comes again of them is passed by. Else raises as `EntityTable.apply` does.
        """
        if self._tasks is None:
            raise UsageError(
                f"the loop does not know the table {self.met_by_loop.spec.called}, and has to try its parked events "
                "between batches: give it MicroBatches(…, table=…)"
            )

        if rows is None and (missing := [name for name in COLUMNS if name not in batch.events.columns]):
            raise ConfigError(
                "columns",
                ", ".join(batch.events.columns),
                f"a handler needs {', '.join(COLUMNS)}, and the loop reads no {', '.join(missing)}",
                "Name them too",
            )

        def applied() -> BatchResult:
            events = events_only(batch.events) if rows is None else rows_of(rows, self._table.schema, _ROWS)
            read = batch.rows(self._reads, events)
            result = self.write(read, batch.level_of, batch.tell, transform="" if rows is None else _ROWS)
            batch.end_apply(self.met_by_loop)
            return result

        return batch.with_table(self.met_by_loop, applied) or BatchResult()

    @property
    def totals(self) -> Totals:
        """The sum of what has become of all events."""
        return self._totals.plus(self._untold)

    @property
    def level_of(self) -> LevelOf | None:
        """From a hub and a partition to the owner level in its ownership record."""
        return self._table.level_of

    @level_of.setter
    def level_of(self, level_of: LevelOf | None) -> None:
        self._table.level_of = level_of

    @property
    def trusts(self) -> Trusts:
        """Whether a partition is held at an owner level at this moment, for what sends the outbox."""
        return self._table.trusts

    @trusts.setter
    def trusts(self, trusts: Trusts) -> None:
        self._table.trusts = trusts

    def take_session(self, spark: SparkSession) -> None:
        """Take the session whose tasks are to call the handler. Raises `ConfigError` for one whose tasks cannot."""
        named = self._named
        master = "a server of Spark Connect" if is_connect(spark) else spark.sparkContext.master or ""
        here = master == "local" or master.startswith("local[")
        for key, url, what in ((named.url, self._url, "read states"), (named.leases, self._leases, "take leases")):
            if names_file(url or "") and not here:
                raise ConfigError(
                    key,
                    url,
                    f"tasks {what}, and those of {master} have no file of this machine",
                    'Use Postgres, or master = "local[2]"',
                )
        self._ship_module()
        self._tasks = tasks_of(spark)

    def write(
        self,
        batch: Batch,
        level_of: LevelOf | None = None,
        tell: Callable[[Notice], None] | None = None,
        *,
        transform: str = "",
    ) -> BatchResult:
        """Call the handler for the events of a batch, and commit what they come to, partition by partition.

        `transform` is what has made them, where they are not as they were sent. Raises
        `HandlerUnavailable` where most calls for a partition fail alike, with the other partitions committed.
        """
        started = time.monotonic()
        table, lanes = self._table, lanes_of(batch, transformed=bool(transform))
        if transform:
            given = batch.rows.num_rows + (0 if batch.rejected is None else batch.rejected.num_rows)
            check_rows(lanes, given, transform)
        self.level_of = level_of
        found = {lane.partition: piece for lane in lanes if (piece := table.piece(lane)) is not None}
        outages: list[HandlerUnavailable] = []
        with table.leases(needed=bool(found)) as leases, table.sharing():
            done = self._called([piece for _, piece in found.values()], leases)
            table.ahead = {name: (mark, one) for (name, (mark, _)), one in zip(found.items(), done, strict=True)}
            self._untold = self._untold.plus(table.counted())  # of a batch that has failed in the middle
            for lane in lanes:
                try:
                    self._due[lane.partition, lane.owner_level] = table.take(lane)
                except HandlerUnavailable as error:
                    outages.append(error)
        result = table.counted()
        if not outages:  # else what the transform has filtered is counted with the batch that follows
            read = sum(map(len, batch.ranges or ())) if batch.read is None else batch.read
            result = replace(result, filtered=result.filtered + max(0, read - result.read))
        told, self._untold = result.counts.plus(self._untold), NONE
        self._totals = self._totals.with_batch(told)
        if tell is not None:
            tell(TableApplied(str(table.sink.spec.called), told, time.monotonic() - started, result.seconds))
        if outages:
            raise outages[0]
        return result

    def try_parked(self, hub: str, held: Mapping[str, int]) -> None:
        """Try the parked events that are due, of the partitions that are held at these levels. Raises nothing of ours:
        what is away now is tried again later."""
        now = time.monotonic()
        self._due = {place: at for place, at in self._due.items() if held.get(place[0]) == place[1]}
        with self._table.sharing():
            for place in held.items():
                if self._due.get(place, 0.0) > now:
                    continue
                try:
                    self._due[place] = self._table.take(RangeEvents(hub, *place))
                except LeaseholdError as error:
                    logger.warning("the parked events of partition %s wait: %s", place[0], error)
                    self._due[place] = time.monotonic() + AWAY
                self._untold = self._untold.plus(self._table.counted())

    def sink_identity(self) -> str:
        """The UUID of this pipeline's table."""
        return self._table.sink.identity()

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """How far each partition of `hub` has been applied, and the highest owner level that has been there."""
        return self._table.sink.watermarks(hub)

    def noted(self, hub: str) -> dict[str, frozenset[int]]:
        """By partition of `hub`, the sequence numbers of the events that a person has noted to be skipped."""
        skips = offered(self._table.sink, BOOKKEEPING)
        return {} if skips is None else skips.noted(hub)

    def leave(self) -> None:
        """All partitions are about to be given up: what was emitted is sent before that, in up to 5 s."""
        self._table.leave()

    def close(self) -> None:
        """End what sends and what calls, and close this thread's connection to the database."""
        self._table.close()

    def _called(self, pieces: Sequence[TaskPiece], leases: BatchLeases | None) -> Iterable[Computed]:
        """What tasks make of these pieces, which have the `leases` of the batch's entities."""
        if not pieces:
            return ()
        assert self._tasks is not None
        tasks = self._tasks

        def job(call: HandlerCall) -> Sequence[Computed]:
            if call.spec.spread:
                return answered(tasks, call, pieces)
            return self._joined(parts, tasks.each(call.task(), flat))

        parts = self._divided(pieces, tasks.cores)
        flat = [part for some in parts for part in some]
        rounds = 1 if self._table.sink.spec.spread else math.ceil(len(flat) / tasks.cores)
        call = self._table.call(rounds, leases)
        try:
            return job(call)
        except Exception as error:
            if call.timeout is None or _WORKER_ENDED not in str(error):
                raise
            logger.warning(
                "a worker has ended in the handler %s, by a call that nothing interrupts or by itself: the batch is "
                "computed once more, with calls in processes of their own",
                call.handler.function.__name__,
            )
            return job(replace(call, careful=True))

    def _divided(self, pieces: Sequence[TaskPiece], cores: int) -> list[list[TaskPiece]]:
        """For each piece what its tasks have of it."""
        if self._table.sink.spec.spread:
            return [[piece] for piece in pieces]
        shares = shares_of([len(piece.events) for piece in pieces], self._seconds_an_event, cores)
        return [divided(piece, self._table.keys, count) for piece, count in zip(pieces, shares, strict=True)]

    def _joined(self, parts: Sequence[Sequence[TaskPiece]], answers: Sequence[Answer]) -> list[Computed]:
        """What each piece comes to, from what tasks tell of its parts."""
        events = sum(len(part.events) for some in parts for part in some)
        self._seconds_an_event = sum(answer.seconds for answer in answers) / events
        rest = iter(answers)
        return [joined([next(rest).done for _ in some]) for some in parts]

    def _ship_module(self) -> None:
        """The handler goes to the workers whole: they need not be able to import its module."""
        from pyspark import cloudpickle

        module = sys.modules.get(self._table.call().handler.function.__module__)
        if module is not None and module.__name__.partition(".")[0] not in ("leasehold", "__main__"):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
