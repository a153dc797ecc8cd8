"""A batch of a streaming query, as its function is given it: which events it holds, and for whom they were read.

Owns the question to the running query, and the refusal of rows that are not of its batch: a watermark that they raised
would hide events which nobody has applied. A query of `format("leasehold")` says what it has read in its offset, so
the values of the rows are compared with that, whatever the function has done to them: rows that were unioned in, and
columns `hub` and `partition` that were computed anew, do not pass unless they say the truth. Over Spark Connect nobody
can be asked; there the marks tell which columns are still as the source gave them. Promises that nothing is written
before the check.

Of a query that reads another source too only the hubs that its offsets name are checked.

Concurrency: asked in the thread that runs the function, in which the query's offset stands still.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError

from leasehold.errors import SchemaMismatch, StaleBatch
from leasehold.model import EventRange
from leasehold.sinks.rules.batch import Batch, fence_of
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.table_spec import (
    FENCE_COLUMNS,
    HUB,
    OWNER_LEVEL,
    PARTITION,
    SEQUENCE_NUMBER,
    TableSpec,
    folded,
)
from leasehold.spark.plan.offsets import decode
from leasehold.spark.plan.origins import MARK, Origin, origin_of
from leasehold.spark.session.endings import signals
from leasehold.spark.session.versions import schema_of
from leasehold.spark.stream.foreach import (
    APPLIED,
    STALL,
    query_of,
    run_of,
    say_what_cannot_be_computed,
    unless_stopped,
    watched,
)
from leasehold.spark.stream.stream_tables import check_origin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

_OURS, _MORE = {"hub", "ranges"}, {"enqueued"}
"""What an offset of the source has, and what it may have beside."""

_REMEDY = (
    "Nothing of the batch was applied. Carry hub, partition, sequenceNumber and ownerLevel through as the source gives "
    "them, and give rows from elsewhere a table of their own"
)


@dataclass(frozen=True, slots=True)
class ReadByQuery:
    """What a running query has read for its present batch; `all` says that it reads nothing else."""

    ranges: tuple[EventRange, ...]
    all: bool

    @classmethod
    def of(cls, offsets: Sequence[str]) -> ReadByQuery | None:
        """What these offsets of sources say, as JSON. None where none of them is of `format("leasehold")`."""
        found = [one for one in map(_parsed, offsets) if isinstance(one, dict) and one.keys() - _MORE == _OURS]
        if not found:
            return None
        ranges = tuple(
            EventRange(one["hub"], it.partition, it.owner_level, it.start, it.end, enqueued_time=it.enqueued)
            for one in found
            for it in decode(one, one["hub"])
        )
        return cls(ranges, len(found) == len(offsets))

    def times(self) -> dict[Lane, tuple[int, float]]:
        """By partition the number of the last event that was read, and when it was enqueued, where that is known."""
        known = ((one, one.enqueued_time) for one in self.ranges)
        return {(one.hub, one.partition): (one.end - 1, at) for one, at in known if at is not None}

    def check(self, table: str, batch: Batch) -> None:
        """Raise `StaleBatch` if `batch` has rows of other events."""
        hubs = {one.hub for one in self.ranges}
        for hub, partition, level, first, last in _extents(batch):
            if not self.all and hub not in hubs:
                continue
            mine = [one for one in self.ranges if (one.hub, one.partition) == (hub, partition)]
            if any(one.owner_level == level and one.begin <= first and last < one.end for one in mine):
                continue
            read = ", ".join(f"[{one.begin}, {one.end}) at level {one.owner_level}" for one in mine) or "nothing"
            raise StaleBatch(
                f"the DataFrame for the table {table} holds rows of other events than this batch of the query: of "
                f"partition {partition!r} of hub {hub!r}, events {first} to {last}, at owner level {level}. Of this "
                f"partition the query has read {read}. {_REMEDY}"
            )


def _parsed(offset: str) -> object:
    try:
        return json.loads(offset)
    except ValueError:
        return None


def _extents(batch: Batch) -> Iterator[tuple[str, str, int, int, int]]:
    """Hub, partition and owner level of the rows, with the first and the last event of each."""
    fences = [fence_of(batch.rows, "the DataFrame")]
    if batch.rejected is not None:
        fences.append(fence_of(batch.rejected, "the DataFrame of rejected events"))
    place = [HUB, PARTITION, OWNER_LEVEL]
    found = pa.concat_tables(fences).group_by(place).aggregate([(SEQUENCE_NUMBER, "min"), (SEQUENCE_NUMBER, "max")])
    columns = (*place, f"{SEQUENCE_NUMBER}_min", f"{SEQUENCE_NUMBER}_max")
    ordered = found.take(pc.sort_indices(found, [(name, "ascending") for name in columns]))
    for row in ordered.to_pylist():
        hub, partition, level, first, last = (row[name] for name in columns)
        yield hub, partition, level, first, last


class QueryBatch:
    """A batch of a query, under way to a table: `check` before the write, `done` after it."""

    def __init__(self, table: str, read: ReadByQuery | None, done: Callable[[], None]) -> None:
        self._table, self._read = table, read
        self.done = done

    def check(self, batch: Batch) -> Batch:
        """The same rows, with `Batch.times`. Raises `StaleBatch` for those of other events than the query has read."""
        if self._read is None:
            return batch
        self._read.check(self._table, batch)
        return replace(batch, times=self._read.times())


class QueryBatches:
    """The batches of queries for the table of `spec`, whose identity `identity` gives."""

    def __init__(self, spec: TableSpec, identity: Callable[[], str]) -> None:
        self._spec, self._identity = spec, identity
        self._met: Origin | None = None

    def check_origin(self, schema: StructType) -> Origin | None:
        """Refuse rows that a stream has read for something else. Returns their mark, None if they have none."""
        marks = {folded(one.name): one.metadata for one in schema}
        return self._checked(origin_of(marks.get(folded(HUB), {})))

    def _checked(self, origin: Origin | None) -> Origin | None:
        if origin is not None and origin != self._met:
            check_origin(origin, self._spec, self._identity)
            self._met = origin
        return origin

    @contextmanager
    def around(self, df: DataFrame, batch: int) -> Iterator[QueryBatch]:
        """Around what is done with the batch of this number. Raises what `EntityTable.apply` does."""
        schema = schema_of(df)
        origin = self.check_origin(schema)
        run, identity = run_of(df), ""
        read = None
        if run:
            identity = self._identity()
            APPLIED.check(run, identity, str(self._spec.called), batch)
            read = _read_by_query(df)
        if read is None:
            check_marks(str(self._spec.called), schema)
        elif origin is None:
            origin = next(map(self._checked, _origins_of_query(df)), None)
        before = signals()
        try:
            with watched(df, batch, STALL if origin is None else origin.stall_timeout), unless_stopped(df, batch):
                yield QueryBatch(str(self._spec.called), read, lambda: APPLIED.note(run, identity, batch))
        except Exception as error:
            say_what_cannot_be_computed(error, batch, before)
            raise


def check_marks(table: str, schema: StructType) -> None:
    """Refuse rows of which the source has marked some columns of the fence, and others were computed since.

    Rows without any mark pass: they are of another source, or of a function over whole batches.
    """
    fence = {folded(name): name for name in FENCE_COLUMNS}
    marked = {fence[folded(one.name)]: MARK in one.metadata for one in schema if folded(one.name) in fence}
    if any(marked.values()) and not all(marked.values()):
        anew = ", ".join(name for name, is_marked in marked.items() if not is_marked)
        raise SchemaMismatch(
            f"the DataFrame for the table {table} has columns that are not those of the source: {anew}. What was "
            f"computed anew, cast or unioned there does not tell which events the rows are of. {_REMEDY}"
        )


def _read_by_query(df: DataFrame) -> ReadByQuery | None:
    """What the query has read in whose function this thread is; None where that cannot be told."""
    try:
        query = query_of(df)
        return (
            None if query is None else ReadByQuery.of([one.json() for one in _all(query.availableOffsets().values())])
        )
    except (Py4JError, TypeError, AttributeError) as error:  # a platform's own Spark: there the marks have to do
        logger.debug("what the query has read cannot be told: %s", error)
        return None


def _origins_of_query(df: DataFrame) -> Iterator[Origin]:
    """For whom the query reads: the marks on what its sources give."""
    for leaf in _all(query_of(df).logicalPlan().collectLeaves()):
        for column in _all(leaf.output()):
            if folded(column.name()) == folded(HUB) and (mark := origin_of(json.loads(column.metadata().json()))):
                yield mark


def _all(them: Any) -> Iterator[Any]:
    """Those of a collection of Scala's."""
    iterator = them.iterator()
    while iterator.hasNext():
        yield iterator.next()
