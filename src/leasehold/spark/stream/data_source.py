"""The Spark data source `leasehold`, batch and streaming.

Owns the mapping from Spark's calls to the rest: options in, offsets and tasks out. Promises that making a
reader has no side effect (Spark also makes one where it only plans, and pickles it to executors) and that
`partitions` emits what the offset says, always. The facts about Spark that shape this file:

- `latestOffset(start, limit)` is the one call that comes on every trigger, and `start` is the end of the last
  batch that Spark has committed: so it is where checkpoints are written.
- A query's stop reaches this process as SIGTERM, not as `stop()`: a handler turns it into an exit that does. Or the
  socket to Spark is closed first: then PySpark calls `stop()`, which a SIGTERM that comes later must not cut short.
- An exception in a driver-side call fails the query, so a store or hub that is away for a moment is not one.
"""

from __future__ import annotations

import atexit
import signal
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from leasehold.errors import ConfigError, DataLoss
from leasehold.hubs import Hub, open_hub
from leasehold.model import EARLIEST, PartitionProperties, PositionKind, Positions
from leasehold.ownership.consumed import NO_END
from leasehold.signal_handlers import handle
from leasehold.spark.plan.offsets import ReadRange, decode, encode, pack
from leasehold.spark.plan.options import (
    SourceOptions,
    check_stores,
    parse_options,
    require_store,
    require_stores,
)
from leasehold.spark.plan.reading import ReadFor, read_ranges, reads_for
from leasehold.spark.plan.task_errors import as_data
from leasehold.spark.session.daemon import hush_this_worker
from leasehold.spark.session.endings import say_nothing_of_a_closed_socket
from leasehold.spark.stream.live import LiveStream
from leasehold.spark.stream.refusals import said_plainly
from leasehold.stores import open_store
from leasehold.stores.closing import close_store
from leasehold.stores.stand_ins import check_known

if TYPE_CHECKING:
    import pyarrow as pa

AVAILABLE_NOW_POLL = 0.2
"""Seconds between two looks at the progress of others, while a run with AvailableNow waits for them."""

hush_this_worker()

_TYPES: Mapping[str, DataType] = {
    "body": BinaryType(),
    "sequenceNumber": LongType(),
    "enqueuedTime": TimestampType(),
    "properties": MapType(StringType(), StringType()),
    "systemProperties": MapType(StringType(), StringType()),
    "ownerLevel": LongType(),
    **dict.fromkeys(("partition", "offset", "publisher", "partitionKey", "hub"), StringType()),
}
"""As `reading.schema_of` writes them; here there may be no session to read that text."""


@dataclass
class Task(InputPartition):
    """What one Spark task reads, of the hub with this identity."""

    ranges: tuple[ReadRange, ...]
    hub: str


class LeaseholdDataSource(DataSource):
    """`format("leasehold")`. See `leasehold.settings.table` for its options."""

    @said_plainly
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(dict(options))

    @classmethod
    def name(cls) -> str:
        return "leasehold"

    def schema(self) -> StructType:
        marks = self._parsed.origin.marks()
        return StructType([StructField(name, _TYPES[name], True, marks.get(name)) for name in self._parsed.columns])

    @said_plainly
    def reader(self, schema: StructType) -> BatchReader:
        check_stores(self._parsed)
        return BatchReader(self._parsed)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(self._parsed)


def _tasks(ranges: Sequence[ReadRange], options: SourceOptions, hub: str, *, cut: bool = True) -> list[Task]:
    packed = pack(ranges, events_per_task=options.events_per_task, at_least=options.min_partitions, cut=cut)
    return [Task(group, hub) for group in packed]


def _read(
    options: SourceOptions, partition: InputPartition, read_for: ReadFor | None = None
) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, Task)
    with as_data():
        yield from read_ranges(
            options.hub,
            partition.ranges,
            options.columns,
            batch_rows=options.batch_rows,
            fail_on_data_loss=options.fail_on_data_loss,
            identity=partition.hub,
            read_for=read_for,
        )


class BatchReader(DataSourceReader):
    """Reads each partition from its starting to its ending position, as they are when the job is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @said_plainly
    def partitions(self) -> Sequence[InputPartition]:
        with closing(open_hub(self._options.hub)) as hub:
            if self._options.partitions is not None:
                check_known(self._options.partitions, hub.partition_ids())
            committed = self._committed(hub)
            places = hub.partition_properties(self._options.partitions)
            ranges = [self._range(hub, place, committed.get(partition)) for partition, place in places.items()]
            identity = hub.identity
        # Without any, Spark would call read(None).
        return _tasks(ranges, self._options, identity) or [Task((), identity)]

    def _range(self, hub: Hub, place: PartitionProperties, committed: int | None) -> ReadRange:
        """What is read of a partition, whose checkpoint says to go on at `committed`."""

        def resolve(positions: Positions) -> int:
            position = positions.of(place.partition)
            if position.kind is not PositionKind.COMMITTED:
                return hub.resolve(place.partition, position)
            return hub.resolve(place.partition, EARLIEST) if committed is None else committed

        start = resolve(self._options.starting_position)
        if start < place.begin and self._options.fail_on_data_loss:
            raise DataLoss(place.partition, start, place.begin)
        start = max(start, place.begin)
        end = min(resolve(self._options.ending_position), place.end)
        return ReadRange(place.partition, start, max(start, end), 0)

    def _committed(self, hub: Hub) -> dict[str, int]:
        """Where the checkpoint of each partition says to go on, if it is asked for."""
        both = self._options.starting_position, self._options.ending_position
        kinds = {one.kind for many in both for one in (many.default, *dict(many.by_partition).values())}
        if PositionKind.COMMITTED not in kinds:
            return {}
        url = require_store(self._options.checkpoint_store, "checkpointStore", "committed is kept in a store")
        store = open_store(url)
        try:
            checkpoints = store.list_checkpoints(hub.consumer_group(self._options.consumer_group))
            return {one.partition: one.next_sequence_number for one in checkpoints}
        finally:
            close_store(store)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming reader. One instance lives in the query's source process, copies of it in tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._live: LiveStream | None = None
        self._bounds: dict[str, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_live": None, "_bounds": None}

    @said_plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        # Asked again after a restart while the first batch is uncommitted, so it names nothing: where to
        # start is in the checkpoint store, and from there in the first offset that has ranges.
        return encode(self._running().hub.identity, ())

    @said_plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        if require_stores(self._options)[1] is None:
            raise ConfigError("trigger", "availableNow", NO_END, "Name a checkpointStore, or take another trigger")
        self._bounds = self._running().ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        limit = self._options.max_events_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    @said_plainly
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        live = self._running()
        last = decode(start, live.hub.identity)
        live.begin(last)
        at_most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        while True:
            live.record_committed(last)
            planned = live.plan(last, at_most, self._bounds)
            if planned is not None:
                return encode(live.hub.identity, planned.ranges)
            if self._bounds is None or live.all_reached(self._bounds):
                return dict(start)
            live.manager.wait_for_cycle(live.manager.cycles + 1, AVAILABLE_NOW_POLL)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return None if self._live is None else self._live.report()

    @said_plainly
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        hub = self._running().hub
        one_reader = hub.one_reader_per_partition(self._options.consumer_group)
        return _tasks(decode(end, hub.identity), self._options, hub.identity, cut=not one_reader)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition, reads_for(self._options))

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing: it comes a batch late, and never for the last one. `latestOffset` says what is committed."""

    def stop(self) -> None:
        if self._live is not None:
            handle(signal.SIGTERM, signal.SIG_IGN)
            self._live.close()
            self._live = None

    def _running(self) -> LiveStream:
        """The running part, made at the first driver-side call: never in a task or where Spark only plans.

        It holds nothing before `latestOffset` says what Spark has committed.
        """
        if self._live is None:
            require_stores(self._options)  # not in `streamReader`: PySpark loses what that raises
            check_stores(self._options)
            self._live = LiveStream(self._options)
            atexit.register(self.stop)  # for a signal in the moment before `stop()` ignores it
            handle(signal.SIGTERM, _exit_once)
            handle(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which stops the query or does not
            say_nothing_of_a_closed_socket()
        return self._live


def _exit_once(signum: int, frame: object) -> None:
    """Leave by way of `stop()`. Spark sends the signal twice; the second must not cut the first one's work."""
    handle(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)
