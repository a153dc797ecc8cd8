"""`EntityTable`: a table of entities, kept up to date exactly once by `MicroBatches` or `foreachBatch`.

Owns what of the sink needs Spark: the evaluation of `sequence_by` and `delete_when`, and the way from a DataFrame to
Arrow. All other rules are in `leasehold.sinks`. Refuses rows that do not carry the columns of the fence. Does not look
at the plan: that the transform is row-wise, as a replay row by row needs it, is for whoever builds the query to see to.

Concurrency: `apply` and `apply_query_batch` may be called by several threads and, on one database, by any number of
processes at once, also for the same batch; `leasehold.sinks.sqlite.sink` and `leasehold.sinks.postgres.sink` say what
happens when one of them stops at any line. The DataFrame is evaluated, and the store asked, outside the database's
lock: whoever is paused there holds up nobody, and finds out in its transaction whether it still counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigError, UsageError
from leasehold.notices import Notice
from leasehold.runtime import Runtime
from leasehold.sinks import open_sink
from leasehold.sinks.base import LevelOf
from leasehold.sinks.features import BOOKKEEPING, EVOLUTION, offered, require
from leasehold.sinks.rules.batch import Batch, check_fence_names, check_names
from leasehold.sinks.rules.content import kind_of_order
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec, Totals
from leasehold.spark.session.versions import check_release, no_rows_of, schema_of, to_arrow
from leasehold.spark.stream.foreach import run_of
from leasehold.spark.stream.query_batches import QueryBatches
from leasehold.spark.stream.records import GroupRecords
from leasehold.spark.stream.stream_tables import options_of
from leasehold.spark.table.counting import Counting
from leasehold.spark.table.expressions import Prepared, batch_of, check_types, with_expression, with_rejected
from leasehold.spark.table.identities import deduplication, identities_of, refuse_beside_others
from leasehold.spark.table.of_loop import Collect, LoopBatch, MetTable
from leasehold.spark.table.settings import OwnershipRecords, RowRules, Writing
from leasehold.spark.table.telling import apply_and_tell
from leasehold.spark.table.unseen import Piece, Unseen, pieces_of
from leasehold.stores import open_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


class EntityTable:
    """The table `table` in the database at `url`, filled by `MicroBatches` or by a streaming query.

    In the loop of `MicroBatches`: `entities.apply(df, batch)`; of a query: `.foreachBatch(entities.apply_query_batch)`.

    `url` is `sqlite:///relative/to/base` (default: the working directory), `sqlite:////absolute` or
    `postgresql://…`. A file and the table are made when they are missing, the table from the columns of the first
    DataFrame. In Postgres the name of the table may have its schema before it: `sales.flights` (docs/table.md).

    pipeline        the table belongs to the pipeline of this name; another one is refused
    mode, keys      `upsert`, the default, keeps the last event of each key; `append` every event, and takes no keys
    consumer_group  the watermarks are kept for this reader of the hub
    rules           what becomes of a row: `RowRules(…)` says which event of a key is later, which deletes its entity,
                    which is rejected, and which is a duplicate. Default: the events of a key count in the order of
                    their partition, and none is deleted, rejected or dropped
    writing         how rows are written: `Writing(…)` has the columns that are stored as well or may be added, and the
                    time-out. Default: `Writing()`
    ownership       for `foreachBatch`: `OwnershipRecords(…)`, so that a zombie's batch is told from a store that was
                    wiped. Default: both are dropped with a warning. A batch of `MicroBatches` brings them with it
    runtime         what a relative path in a URL is relative to, and notices, which are the table's `notices`. Over
                    Spark Connect the server gets the former alone

    Raises `ConfigError` at once for settings that do not go together.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        pipeline: str,
        keys: Sequence[str] | None = None,
        mode: str = "upsert",
        consumer_group: str = "$Default",
        rules: RowRules | None = None,
        writing: Writing | None = None,
        ownership: OwnershipRecords | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "runtime")}
        rules, writing, runtime = rules or RowRules(), writing or Writing(), runtime or Runtime()
        self._again = partial(_made_again, runtime.base, given)
        check_release()
        spec = TableSpec(
            name=table,
            pipeline=pipeline,
            consumer_group=consumer_group,
            mode=mode,
            keys=keys or (),
            keep=writing.keep,
            only_columns=writing.only_columns,
            except_columns=writing.except_columns,
            unavailable_value=writing.unavailable_value,
            sequence_by=rules.sequence_by,
            on_two_partitions=rules.on_two_partitions,
            schema_evolution=writing.schema_evolution,
        )
        rules.check_mode(mode)
        self._url, self._base = url, runtime.base or Path.cwd()
        self._rules = rules
        self.deduplication = deduplication(rules)
        self._records = None if ownership is None else _opened(ownership, consumer_group, self._base)
        self._sink = open_sink(url, spec, base=self._base, timeout=writing.timeout)
        if writing.schema_evolution is not None:
            require(self._sink, EVOLUTION, "schema_evolution")
        if self.deduplication is not None:
            require(self._sink, BOOKKEEPING, "deduplicate_by")
        self.met_by_loop = MetTable(spec, self.sink_identity, self.watermarks, self.noted)
        """Whose it is, for a loop."""
        self.notices = runtime.notices
        """Who hears of each batch of a query that is applied (`TableApplied`). A loop tells its own subscribers."""
        self._counting = Counting(spec)
        self._of_queries = QueryBatches(spec, self.sink_identity)

    def __reduce__(self) -> tuple[Any, ...]:
        """Spark Connect sends the function of `foreachBatch` to its server; totals and notices start anew there."""
        return self._again, ()

    @property
    def totals(self) -> Totals:
        """The sum of what has become of all batches that this object has applied."""
        return self._counting.totals

    def apply(self, df: DataFrame, batch: LoopBatch) -> BatchResult:
        """Apply what is new in `df`, in one transaction, and say what became of it.

        `batch` is the batch of `MicroBatches` that `df` was made of. Nothing of it is applied when this raises:
        `SchemaMismatch`, `KeyFromTwoPartitions`, `OwnerLevelWentBack`, `StaleBatch`, `SinkUnavailable` (try again),
        `SinkError`, or `UsageError` where the loop has applied the batch to the table already.

        A batch that cannot be read whole, since another instance has taken a partition of it or the hub, the store or
        the database is away, raises nothing: nothing of it is applied, the result says so with zeros, and the loop
        gives its events again.
        """
        return self._apply_of_loop(lambda: batch.rows(self, df), batch)

    def apply_query_batch(self, df: DataFrame, number: int) -> None:
        """Apply what is new in a batch of a streaming query: the function for `foreachBatch`.

        The `number` that Spark gives says nothing of the rows: the watermark decides. Raises as `apply` does, where
        the hub, the store or the database is away too, and nothing of the batch is applied then. Raises `ConfigError`
        for rows that `format("leasehold")` has not read for this table (`stream_options`), and `StaleBatch` for rows of
        events that the query has not read for this batch.
        """
        with self._of_queries.around(df, number) as query:
            result = self.write(query.check(self._rows_of_query(df)))
            query.done()
        logger.debug("table %s: batch %d: %s", self._sink.spec.called, number, result)

    def unseen(self, df: DataFrame, batch: LoopBatch | int) -> Unseen:
        """What of `df` the table has not seen, evaluated now, for another sink beside the table.

        Write its pieces elsewhere, each under its name, then call its `apply` in place of the table's: it applies just
        these rows. docs/extending.md says how both come out exact. Raises what `apply` raises; where a batch of
        `MicroBatches` cannot be read whole there are no pieces, and its `apply` applies nothing.
        """
        refuse_beside_others(self.deduplication)
        return self._unseen_of_query(df, batch) if isinstance(batch, int) else self._unseen_of_loop(df, batch)

    def _unseen_of_query(self, df: DataFrame, batch: int) -> Unseen:
        with self._of_queries.around(df, batch) as query:
            rows = query.check(self.evaluate(self.prepare(df)))
            pieces = pieces_of(rows, self._sink)

        def apply() -> BatchResult:
            with self._of_queries.around(df, batch) as query:
                result = self.write(rows)
                query.done()
            return result

        return Unseen(pieces, apply)

    def _unseen_of_loop(self, df: DataFrame, batch: LoopBatch) -> Unseen:
        def look() -> tuple[Batch, tuple[Piece, ...]]:
            rows = batch.rows(self, df)
            return rows, pieces_of(rows, self._sink)

        found = batch.with_table(self.met_by_loop, look)
        if found is None:
            return Unseen((), BatchResult)
        rows, pieces = found
        return Unseen(pieces, lambda: self._apply_of_loop(lambda: rows, batch))

    def _apply_of_loop(self, rows: Callable[[], Batch], batch: LoopBatch) -> BatchResult:
        """Apply rows of a batch of `MicroBatches`; zeros where it is abandoned."""

        def apply() -> BatchResult:
            result = self.write(rows(), batch.level_of, batch.tell)
            batch.end_apply(self.met_by_loop)
            return result

        return batch.with_table(self.met_by_loop, apply) or BatchResult()

    def apply_batch(self, df: DataFrame, rejected: DataFrame | None = None) -> BatchResult:
        """Apply what is new in `df`, whose rows say which events they are of; there are no ranges.

        `rejected` are events that could not be parsed, with the columns hub, partition, sequenceNumber,
        ownerLevel, body and reason: they are set aside in the same transaction, under the same watermark. They have to
        be of events that cannot change: rows that a query on `format("leasehold")` has read are refused, since they may
        be fewer when they are read again (`apply` with `reject_by` takes both at once). Raises as `apply` does.
        """
        if rejected is not None and self._of_queries.check_origin(schema_of(rejected)) is not None and run_of(rejected):
            raise UsageError(
                f"the rejected events for the table {self._sink.spec.called} would be read by themselves, also where "
                "the DataFrame is persisted and Spark has lost a part of it. Where the partition is taken away, or "
                "events are removed, between the two, those that come too late would be lost. Give apply() one "
                "DataFrame of all events, and the table reject_by"
            )
        batch = self._rows_of_query(df)
        if rejected is not None:
            batch = with_rejected(batch, to_arrow(rejected))
        return self.write(batch)

    def _rows_of_query(self, df: DataFrame) -> Batch:
        return replace(self.evaluate(self.prepare(df)), identities=identities_of(self.deduplication, df))

    def prepare(self, df: DataFrame) -> Prepared:
        """What is evaluated of `df`: with the values of the expressions. May be evaluated again where its plan may."""
        schema = schema_of(df)
        self._of_queries.check_origin(schema)
        names = schema.names
        check_names(names)
        check_fence_names(names)
        check_types(schema)
        return self.widened(df, df)

    @property
    def expressions(self) -> tuple[str, ...]:
        """The settings whose expressions `prepare` adds the values of."""
        return tuple(self._rules.expressions())

    def widened(self, df: DataFrame, rows: DataFrame) -> Prepared:
        """`df` with the values of the expressions, which are over the columns of `rows`, its first ones."""
        names = schema_of(rows).names
        for setting, expression in self._rules.expressions().items():
            df = with_expression(df, names, setting, expression, None if setting == "when" else self._rules.when)
        return Prepared(df, self.expressions)

    def evaluate(self, prepared: Prepared, collect: Collect = to_arrow) -> Batch:
        """Compute the rows, by one action of Spark."""
        return self.batch_of(collect(prepared.df))

    def batch_of(self, rows: pa.Table) -> Batch:
        """The batch of evaluated rows, whose last columns are the values of the expressions."""
        return batch_of(rows, self.expressions, self._rules)

    def write(
        self, batch: Batch, level_of: LevelOf | None = None, tell: Callable[[Notice], None] | None = None
    ) -> BatchResult:
        """Apply a batch that was evaluated, in one transaction.

        `level_of` gives the owner level in the ownership record of a partition of a hub. `tell` is told what became of
        it, in place of the subscribers of `notices`.
        """
        if self._records is not None:
            self._records.check_hub(batch)
            level_of = level_of or self._records.owner_level
        return self._counting.add(apply_and_tell(self._sink, batch, level_of, tell or self.notices.publish), batch)

    def check(self, df: DataFrame) -> None:
        """Check what a query is going to apply before it is started; `df` may be a stream.

        Makes the table if it is missing. Raises `SchemaMismatch`, and `ConfigError` for expressions.
        """
        batch = self.evaluate(self.prepare(df), collect=no_rows_of)
        kind_of_order(batch)
        self._sink.check(batch.rows.schema)

    def stream_options(self, *further_tables: EntityTable) -> dict[str, str]:
        """What a stream of `format("leasehold")` is to be told of the table, for `.options(**table.stream_options())`.

        The options `pipeline`, `consumerGroup` and `tables`. `further_tables` are filled by the same query.
        With them the source ties the consumer group to the pipeline and this table, asks the tables how far they are,
        and marks its rows. Opens the database, and makes it if it is missing.
        """
        tables = (self, *further_tables)
        return options_of([(one._sink.spec, one.sink_identity(), one._url, one._base) for one in tables])

    def sink_identity(self) -> str:
        """The UUID of this pipeline's table, made on first use: another one means another table, or a new file."""
        return self._sink.identity()

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """How far each partition of `hub` has been applied, and the highest owner level that has been there."""
        return self._sink.watermarks(hub)

    def noted(self, hub: str) -> dict[str, frozenset[int]]:
        """By partition of `hub`, the sequence numbers of the events that a person has noted to be skipped."""
        skips = offered(self._sink, BOOKKEEPING)
        return {} if skips is None else skips.noted(hub)

    def set_watermarks(self, hub: str, watermarks: Mapping[str, Watermark], *, anew: bool = False) -> None:
        """Write the watermarks of these partitions as given, also lower ones: for a person's reset only.

        `anew` says that all events of the hub will be read again: what is known of keys is forgotten, with what they
        were ordered by. Raises `UsageError` where an appended table would hold events twice.
        """
        self._sink.set_watermarks(hub, watermarks, anew=anew)

    def row_count(self) -> int:
        """How many rows the table has; 0 if it has not been made yet."""
        return self._sink.row_count()

    def close(self) -> None:
        """Close this thread's connection to the database. The table may be used again afterwards."""
        self._sink.close()


def _made_again(base: Path | None, arguments: Mapping[str, Any]) -> EntityTable:
    """A table of what another one was given. Time and who hears of notices are not sent with it: they have locks."""
    return EntityTable(**arguments, runtime=Runtime(base=base))


def _opened(ownership: OwnershipRecords, consumer_group: str, base: Path) -> GroupRecords:
    """The records of the table's own consumer group. Raises `ConfigError` for those of another one."""
    store, group = ownership.store, ownership.group
    if group.name != consumer_group:
        raise ConfigError(
            "group",
            str(group),
            f"not the consumer group {consumer_group!r} that the watermarks are kept for",
            f"Add consumer_group={group.name!r}",
        )
    return GroupRecords(open_store(store, base=base) if isinstance(store, str) else store, group)
