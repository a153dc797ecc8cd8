"""From the ranges of a batch to its rows: the action that computes them, and the plan that it executes.

Owns which plan that is. The plan is made once for each number of tasks and executed again for every batch where that is
right: where each row is computed from nothing but that row, and tasks find their order in the job. Elsewhere it is made
anew for each batch, from the transform on: a shuffle's files, the time and the seeds of a plan belong to one execution.
Whatever was chosen, a batch whose tasks have not all run for this very order is refused (`orders.check_receipts`).

Runs in a thread of its own (`runner.py`) or in the user's (`batch.py`), one evaluation at a time; another thread may
cancel it by the batch's name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.logs import about
from leasehold.registries.known_schemas import KnownSchemas
from leasehold.sinks.rules.batch import Batch
from leasehold.spark.loop.jobs import Jobs
from leasehold.spark.loop.orders import Order, Receipt, title
from leasehold.spark.loop.producers import put_together
from leasehold.spark.loop.tasks import events_of, last_times, parts, sizes, timed, with_transform
from leasehold.spark.plan.picking import Picked, picked
from leasehold.spark.plan.reading import CARRIED, REASON
from leasehold.spark.session.versions import to_arrow
from leasehold.spark.table.expressions import Prepared, with_rejected
from leasehold.spark.table.identities import identities_of
from leasehold.spark.table.of_loop import Collect, EvaluatesRows, batch_id

Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The rows of a batch, and what an event of each partition weighs in bytes, as far as it was told.

    `seconds` is how long reading and transforming took, `parts` what tasks can tell of it, `producers` the trace
    contexts of its events, where asked for, `times` when the last event of each partition was enqueued (`Receipt`).
    """

    batch: Batch
    weights: dict[str, float]
    seconds: float = 0.0
    producers: tuple[tuple[str, str], ...] = ()
    parts: dict[str, float] = field(default_factory=dict)
    times: dict[str, tuple[int, float]] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()
    """Numbers of schemas that tasks needed and had not: nothing of this counts, and the order is to be read anew."""


def evaluated(
    table: EvaluatesRows,
    prepared: Prepared,
    source: DataFrame,
    good: DataFrame,
    order: Order,
    jobs: Jobs,
    collect: Collect = to_arrow,
) -> Evaluated:
    """The rows that `prepared` gives for this order: the action that computes them.

    `source` are the events as the tasks read them, `good` those of them that have been read from their bodies.
    `collect` gives the rows. Raises `StaleBatch` where a task of the order has not run, and whatever the evaluation
    raises.
    """
    batch = replace(table.evaluate(prepared, collect), identities=identities_of(table.deduplication, good))
    if good is source and not batch.rows.num_rows:
        jobs.read_what_is_left_out(source, prepared.df)
    told = jobs.receipts(order) or {}
    if good is source:
        set_aside = rejected_of(told.values())
    else:  # without receipts: read again, whole or not at all
        bad = source.where(F.col(REASON).isNotNull()).select(*CARRIED, "body", F.col(REASON).alias("reason"))
        set_aside = to_arrow(bad)
    if set_aside is not None and set_aside.num_rows:
        batch = with_rejected(batch, set_aside)
    times = last_times(told)
    batch = replace(batch, ranges=timed(order.ranges, times), read=events_of(told.values()) if told else None)
    producers = put_together(receipt.producers for receipt in told.values())
    unknown: frozenset[int] = frozenset().union(*(receipt.unknown for receipt in told.values()))
    return Evaluated(batch, sizes(told), producers=producers, parts=parts(told.values()), times=times, unknown=unknown)


def collecting(picks: Picked | None, order: Order, jobs: Jobs) -> Collect:
    """How the rows of this order come here: as tasks read them, where a plan only picks columns, or from the JVM."""
    if picks is None:
        return to_arrow

    def collect(df: DataFrame) -> pa.Table:
        events = jobs.read(order)
        return picks.schema.empty_table() if events is None else picks.of(events)

    return collect


def rejected_of(receipts: Iterable[Receipt]) -> pa.Table | None:
    """What these receipts say was rejected, None if it is nothing."""
    streams = [receipt.rejected for receipt in receipts if receipt.rejected is not None]
    tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
    return pa.concat_tables(tables) if tables else None


class Evaluation:
    """Evaluates batches for a table. `lasting`: whether the transform's plan may be executed again.

    Where bodies name schemas of a registry, tasks tell which they have not; this thread fetches them from `schemas`,
    and has the batch read anew.
    """

    def __init__(
        self,
        jobs: Jobs,
        transform: Transform,
        table: EvaluatesRows,
        *,
        name: str,
        lasting: bool,
        schemas: KnownSchemas | None = None,
    ) -> None:
        self._schemas = schemas
        self._jobs, self._transform, self._table, self._name = jobs, transform, table, name
        self._lasting = lasting and jobs.plan_lasts
        self._plans: dict[int, tuple[Prepared, Picked | None]] = {}

    def __call__(self, order: Order) -> Evaluated:
        """Read, transform and fetch what this order says. Raises whatever that raises."""
        if self._schemas is None:
            return self._once(order)
        found = self._once(order := order.with_schemas(self._schemas.all()))
        while found.unknown:
            found = self._once(order := order.with_schemas(self._schemas.of(found.unknown)))
        return found

    def _once(self, order: Order) -> Evaluated:
        group = batch_id(order.ranges)
        self._jobs.begin(order, group, title(self._name, order.ranges))
        started = time.monotonic()
        try:
            with about(batch=group):
                evaluated = self._evaluated(order)
            seconds = time.monotonic() - started
            return replace(evaluated, seconds=seconds, parts=with_transform(evaluated.parts, seconds))
        finally:
            self._jobs.end()

    def _evaluated(self, order: Order) -> Evaluated:
        source = self._jobs.events(order)
        good = source.where(F.col(REASON).isNull()).drop(REASON) if REASON in source.columns else source
        prepared, picks = self._plan(order, good)
        return evaluated(self._table, prepared, source, good, order, self._jobs, collecting(picks, order, self._jobs))

    def _plan(self, order: Order, events: DataFrame) -> tuple[Prepared, Picked | None]:
        """The plan for this many tasks, and what it only picks of the events, where it lasts."""
        tasks = len(order.tasks)
        if tasks in self._plans:
            return self._plans[tasks]
        prepared = self._table.prepare(self._transform(events))
        if not self._lasting:
            return prepared, None
        self._plans[tasks] = prepared, picked(prepared.df, events)
        return self._plans[tasks]
