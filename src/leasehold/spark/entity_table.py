"""`EntityTable`: a table of entities that a stream keeps up to date exactly once, for `MicroBatches` and
`foreachBatch`.

Owns what of the sink needs Spark: the evaluation of `sequence_by` and `delete_when`, the way from a
DataFrame to Arrow, and the question to the ownership store whether a refused range is a zombie's. All
other rules are in `leasehold.sinks`. Refuses rows that do not carry the columns of the fence. Does not look at
the plan: that the transform is row-wise, as a replay row by row needs it, is for whoever builds the query to see to.

Concurrency: `apply` may be called by several threads and, on one database, by any number of processes at
once, also for the same batch; `leasehold.sinks.sqlite` says what happens when one of them stops at any
line. The DataFrame is evaluated, and the store asked, outside the database's lock: whoever is paused there
holds up nobody, and finds out in its transaction whether it still counts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program
from pyspark.sql import types as T  # noqa: N812 -- likewise

from leasehold.errors import ConfigError, SchemaMismatch
from leasehold.model import ConsumerGroup
from leasehold.sinks import open_sink
from leasehold.sinks.base import FENCE_COLUMNS, HUB, BatchResult, TableSpec, Totals, folded
from leasehold.sinks.batch import Batch, check_fence_names, check_names, find
from leasehold.sinks.content import kind_of_order
from leasehold.sinks.fence import Watermark
from leasehold.sinks.values import Column as Values
from leasehold.sinks.values import as_json
from leasehold.spark.loop.batch import MetTable, MicroBatch, rejected_of
from leasehold.spark.loop.orders import Receipt
from leasehold.spark.versions import check_release, schema_of, to_arrow, types_named
from leasehold.stores import OwnershipStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

logger = logging.getLogger(__name__)

# What Arrow would not convert, or would pass on in a disguise; the sink refuses all others that it cannot store.
_UNSTORABLE = types_named(
    "VariantType", "YearMonthIntervalType", "CalendarIntervalType", "GeometryType", "GeographyType"
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A DataFrame with the values of the table's expressions as last columns, and which expressions those are."""

    df: DataFrame
    added: tuple[str, ...]


class EntityTable:
    """The table `table` in the database at `url`, to be filled by `MicroBatches` or `.foreachBatch(entities.apply)`.

    `url` is `sqlite:///relative/to/base` (default: the working directory) or `sqlite:////absolute`. File and
    table are made when they are missing, the table from the columns of the first DataFrame.

    keys            `upsert` keeps the last event of each key; `append` every event, and takes no keys
    pipeline        the table belongs to the pipeline of this name; another one is refused
    sequence_by     a Spark SQL expression: of two events of a key the one with the higher value counts.
                    Needed where events of one key come from several partitions. The table remembers it: another one,
                    or a delete_when where there was none, is refused until all events are read again
    delete_when     a Spark SQL condition: an event for which it is true deletes its entity
    reject_by       a Spark SQL expression that gives the reason why a row is rejected, null where it is good: rejected
                    rows go to `<table>_rejected`, in the same transaction. A column of this name is not stored
    keep            which of hub, partition, sequenceNumber and ownerLevel are stored as well
    store, group    for `foreachBatch`: the ownership store, or its URL, and the consumer group of the hub that is read.
                    With them a zombie's batch is told from a store that was wiped; without, both are dropped with a
                    warning. A batch of `MicroBatches` brings them with it
    timeout         seconds to wait for another writer of the database

    Raises `ConfigError` at once for settings that do not go together.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        keys: Sequence[str] | None = None,
        mode: str = "upsert",
        pipeline: str,
        consumer_group: str = "$Default",
        sequence_by: str | None = None,
        delete_when: str | None = None,
        reject_by: str | None = None,
        keep: Sequence[str] = (),
        store: OwnershipStore | str | None = None,
        group: ConsumerGroup | None = None,
        base: Path | None = None,
        timeout: float = 10.0,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name != "self"}
        check_release()
        spec = TableSpec(
            name=table,
            pipeline=pipeline,
            consumer_group=consumer_group,
            mode=mode,
            keys=keys or (),
            keep=keep,
            sequence_by=sequence_by,
        )
        for name, expression in (("sequence_by", sequence_by), ("delete_when", delete_when)):
            _check_expression(name, expression, mode)
        if not timeout > 0:
            raise ConfigError("timeout", timeout, "a number of seconds above zero", "10 is the default")
        if (store is None) != (group is None):
            raise ConfigError(
                "store" if store is None else "group",
                None,
                "store and group go together: the store is asked for the ownership records of the group",
                "Give both; the group is hub.consumer_group(name)",
            )
        if group is not None and group.name != consumer_group:
            raise ConfigError(
                "group",
                str(group),
                f"not the consumer group {consumer_group!r} that the watermarks are kept for",
                f"Add consumer_group={group.name!r}",
            )
        base = base or Path.cwd()
        if reject_by is not None and not reject_by.strip():
            raise ConfigError("reject_by", reject_by, "a Spark SQL expression", "Leave it out if there is none")
        self._sequence_by, self._delete_when, self._group = sequence_by, delete_when, group
        self._reject_by = reject_by
        self._store = open_store(store, base=base) if isinstance(store, str) else store
        self._sink = open_sink(url, spec, base=base, timeout=timeout)
        self._totals = Totals()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Spark Connect sends the function of `foreachBatch` to its server; totals start anew there."""
        return _rebuilt, (self._arguments,)

    @property
    def totals(self) -> Totals:
        """The sum of what has become of all batches that this object has applied."""
        with self._lock:
            return self._totals

    @overload
    def apply(self, df: DataFrame, batch: MicroBatch) -> BatchResult: ...

    @overload
    def apply(self, df: DataFrame, batch: int) -> None: ...

    def apply(self, df: DataFrame, batch: MicroBatch | int) -> BatchResult | None:
        """Apply what is new in `df`, in one transaction, and say what became of it.

        `batch` is the batch of `MicroBatches` that `df` was made of, or the number that `foreachBatch` gives, which is
        only logged: the watermark decides. Nothing of the batch is applied when this raises: `SchemaMismatch`,
        `KeyFromTwoPartitions`, `OwnerLevelWentBack`, `StaleBatch`, `SinkUnavailable` (try again), or `SinkError`.

        A batch of `MicroBatches` that cannot be read whole, since another instance has taken a partition of it or the
        hub, the store or the database is away, raises nothing: nothing of it is applied, the result says so with
        zeros, and the loop gives its events again.
        """
        if isinstance(batch, int):
            result = self.apply_batch(df)
            logger.debug("table %s: batch %d: %s", self._sink.spec.name, batch, result)
            return None
        spec = self._sink.spec
        batch.begin_apply(MetTable(spec.name, spec.pipeline, spec.consumer_group, self.sink_identity, self.watermarks))
        try:
            evaluated = self.evaluate(self.prepare(df))
            result = self.write(replace(evaluated, ranges=batch.ranges), batch.receipts(), batch.level_of)
        except Exception as error:
            if batch.abandon(error):
                logger.info("batch %s is given up and planned again: %s", batch.id, batch.failure)
                return BatchResult()
            raise
        batch.end_apply(spec.name)
        return result

    def apply_batch(self, df: DataFrame, rejected: DataFrame | None = None) -> BatchResult:
        """Apply what is new in `df`, whose rows say which events they are of; there are no ranges.

        `rejected` are events that could not be parsed, with the columns hub, partition, sequenceNumber,
        ownerLevel, body and reason: they are set aside in the same transaction, under the same watermark. They have to
        come from the same evaluation as `df`, or be of events that cannot change. Raises as `apply` does.
        """
        batch = self.evaluate(self.prepare(df))
        if rejected is not None:
            batch = with_rejected(batch, to_arrow(rejected))
        return self.write(batch)

    def prepare(self, df: DataFrame) -> Prepared:
        """What is evaluated of `df`: with the values of the expressions. May be evaluated again where its plan may."""
        schema = schema_of(df)
        names = schema.names
        check_names(names)
        check_fence_names(names)
        _check_types(schema)
        added = []
        for setting, expression in (
            ("sequence_by", self._sequence_by),
            ("delete_when", self._delete_when),
            ("reject_by", self._reject_by),
        ):
            if expression is not None:
                df = _with(df, names, setting, expression)
                added.append(setting)
        return Prepared(df, tuple(added))

    def evaluate(self, prepared: Prepared) -> Batch:
        """Compute the rows: the one action of a batch."""
        table = to_arrow(prepared.df)
        width = table.num_columns - len(prepared.added)
        extra = {setting: table.column(width + place) for place, setting in enumerate(prepared.added)}
        if "delete_when" in extra and not pa.types.is_boolean(extra["delete_when"].type):
            raise ConfigError("delete_when", self._delete_when, "not a condition", "It has to be true or false")
        stored = [place for place in range(width) if folded(table.schema.names[place]) != folded(self._reject_by or "")]
        rows = table.select(stored)
        batch = Batch(rows, None, extra.get("sequence_by"), extra.get("delete_when"))
        return batch if "reject_by" not in extra else _parted(batch, extra["reject_by"], self._reject_by)

    def write(
        self,
        batch: Batch,
        receipts: Mapping[int, Receipt] | None = None,
        level_of: Callable[[str, str], int | None] | None = None,
    ) -> BatchResult:
        """Apply an evaluated batch in one transaction, with the events that its tasks have set aside.

        `level_of` gives the owner level in the ownership record of a partition of a hub.
        """
        set_aside = rejected_of(dict(receipts or {}))
        if set_aside is not None:
            batch = with_rejected(batch, set_aside)
        self._check_hub(batch)
        judge = level_of or (self._owner_level if self._store is not None else None)
        result = self._sink.apply(batch, judge)
        with self._lock:
            self._totals = self._totals.plus(result)
        return result

    def check(self, df: DataFrame) -> None:
        """Check what a query is going to apply before it is started; `df` may be a stream.

        Makes the table if it is missing. Raises `SchemaMismatch`, and `ConfigError` for expressions.
        """
        empty = df.sparkSession.createDataFrame([], schema_of(df))  # a stream cannot say its Arrow types, this can
        batch = self.evaluate(self.prepare(empty))
        kind_of_order(batch)
        self._sink.check(batch.rows.schema)

    def sink_identity(self) -> str:
        """The UUID of this pipeline's table, made on first use: another one means another table, or a new file."""
        return self._sink.identity()

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """How far each partition of `hub` has been applied, and the highest owner level that has been there."""
        return self._sink.watermarks(hub)

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

    def _check_hub(self, batch: Batch) -> None:
        """The ownership store is asked about one hub, so there may be no rows of another."""
        if self._group is None:
            return
        hubs = set()
        for table in (batch.rows, batch.rejected):
            if table is not None and (name := find(table.schema, HUB)) is not None:
                hubs.update(pc.unique(table[name]).to_pylist())
        if len(hubs) > 1:
            raise ConfigError(
                "group",
                str(self._group),
                f"the DataFrame has rows of {len(hubs)} hubs, and store and group are for one",
                "Give each hub an EntityTable of its own, or leave store and group out",
            )

    def _owner_level(self, hub: str, partition: str) -> int | None:
        assert self._store is not None
        assert self._group is not None
        records = self._store.list_ownership(self._group).records
        return next((each.owner_level for each in records if each.partition == partition), None)


def with_rejected(batch: Batch, rejected: pa.Table) -> Batch:
    """The batch with more events that are set aside."""
    if batch.rejected is not None:
        rejected = pa.concat_tables([batch.rejected, rejected], promote_options="default")
    return replace(batch, rejected=rejected)


def _parted(batch: Batch, reasons: Values, expression: str | None) -> Batch:
    """The good rows of a batch, and the others with their reasons and all that they carry."""
    if not (pa.types.is_string(reasons.type) or pa.types.is_large_string(reasons.type)):
        raise ConfigError("reject_by", expression, f"gives a {reasons.type}, and not a text", "Cast it to a string")
    good, bad = reasons.is_null(), reasons.is_valid()
    rows = batch.rows.filter(bad)
    fence = [name for each in FENCE_COLUMNS if (name := find(rows.schema, each)) is not None]
    body = find(rows.schema, "body")
    bodies = (
        as_json({name: rows[name] for name in rows.schema.names if name not in fence}) if body is None else rows[body]
    )
    set_aside = rows.select(fence).rename_columns(list(FENCE_COLUMNS))
    set_aside = set_aside.append_column(
        "body", pa.chunked_array([pa.array(bodies, pa.string())]) if body is None else bodies
    )
    set_aside = set_aside.append_column("reason", reasons.filter(bad).cast(pa.string()))
    return Batch(
        batch.rows.filter(good),
        set_aside,
        None if batch.sequence_by is None else batch.sequence_by.filter(good),
        None if batch.delete is None else batch.delete.filter(good),
    )


def _rebuilt(arguments: dict[str, Any]) -> EntityTable:
    return EntityTable(**arguments)


def _check_expression(name: str, expression: str | None, mode: str) -> None:
    if expression is None:
        return
    if not expression.strip():
        raise ConfigError(name, expression, "a Spark SQL expression", "Leave it out if there is none")
    if mode == "append":
        raise ConfigError(
            name, expression, "mode append keeps every event as it is", 'Leave it out, or use mode="upsert" with keys'
        )


def _with(df: DataFrame, names: Sequence[str], setting: str, expression: str) -> DataFrame:
    """`df` with the value of `expression` as its last column, under a name that is not taken."""
    name = f"_leasehold_{setting}"
    while any(each.lower() == name for each in names):
        name += "_"
    try:
        column: Column = F.expr(expression).alias(name)
        wider = df.select("*", column)
        type_ = schema_of(wider)[-1].dataType  # over Spark Connect, analysis comes only when somebody asks
    except AnalysisException as error:
        raise ConfigError(
            setting,
            expression,
            f"not an expression over the columns {', '.join(names)}: {str(error).splitlines()[0]}",
            "Correct the expression, or carry the columns that it needs through the projection",
        ) from error
    except SchemaMismatch as error:
        raise ConfigError(setting, expression, str(error), "Cast it to a number or a string") from error
    if any(isinstance(each, _UNSTORABLE) for each in _all_types(type_)):
        raise ConfigError(setting, expression, f"gives a {type_.simpleString()}", "Cast it to a number or a string")
    return wider


def _check_types(schema: T.StructType) -> None:
    """Refuse columns that hold anything in `_UNSTORABLE`."""
    wrong = [
        f"  {field.name}: is of type {field.dataType.simpleString()}, which SQLite cannot hold: cast it to a string"
        for field in schema
        if any(isinstance(each, _UNSTORABLE) for each in _all_types(field.dataType))
    ]
    if wrong:
        raise SchemaMismatch("\n".join(["the DataFrame does not fit an entity table:", *wrong]))


def _all_types(type_: T.DataType) -> Iterator[T.DataType]:
    yield type_
    if isinstance(type_, T.StructType):
        inner = [field.dataType for field in type_]
    elif isinstance(type_, T.ArrayType):
        inner = [type_.elementType]
    elif isinstance(type_, T.MapType):
        inner = [type_.keyType, type_.valueType]
    else:
        inner = []
    for each in inner:
        yield from _all_types(each)
