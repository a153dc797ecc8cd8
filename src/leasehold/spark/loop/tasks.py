"""What a task of a batch does: read its ranges whole, and turn bodies into columns where it is told to.

Owns the worker's side. Promises that a task reads each of its ranges to the end or fails with an error of ours that
names the partition: another has taken it (`PartitionTaken`), events are gone (`DataLoss`), the hub is away
(`HubUnavailable`), there is more than a batch may weigh (`RangeTooLarge`). So a second evaluation sees the same
events, or none. Bodies that cannot be read leave the batch here, with a reason, in the task's receipt: one reading
gives the good and the bad. So do events that a person has had skipped, without a trace: the table sets them aside.

Nothing here knows the session: what to read comes in a local property of the job (`jobs.py`) or with the function. A
worker is used by many tasks; its connections to hub and store are kept (`reading.py`). What it has imported is set
aside from the garbage collector once, since PySpark collects after every task. The driver runs small tasks itself
(`driver_reads.py`).
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.errors import PartitionTaken, RangeTooLarge, ReaderDisconnected
from leasehold.hubs.base import Hub
from leasehold.model import EventRange
from leasehold.spark.loop.orders import Receipt, TaskOrder
from leasehold.spark.loop.producers import Producers, note_producers
from leasehold.spark.plan.offsets import IN_LOOP, ReadRange
from leasehold.spark.plan.reading import (
    CARRIED,
    HEADERS,
    PAUSES,
    REASON,
    ReadFor,
    check_complete,
    owned_batches,
    pause_before_reading_on,
    shared_hub,
    superseded,
    taken_by_others,
    with_level,
)

if TYPE_CHECKING:
    from leasehold.formats import BodyReader

CHUNK_BYTES = 8 * 2**20
"""About how many bytes a worker holds of a range at a time."""
FIRST_EVENTS = 256
"""How many events are read first of a partition of which nobody knows yet what an event weighs."""


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """How the tasks of a loop read, whatever the batch.

    `columns` are the source's that come out, in order, after those of `bodies`. Events that `bodies` cannot read go
    into the receipt, or, with `inline`, come out too, with the column `REASON`. With `links` the receipt has the trace
    contexts of the events, for which their properties are read too.
    """

    url: str
    columns: tuple[str, ...]
    batch_rows: int
    read_for: ReadFor | None = None
    bodies: BodyReader | None = None
    inline: bool = False
    links: bool = False

    @property
    def headers(self) -> tuple[str, ...]:
        """The columns by which bodies are read, and which are kept of rejected events."""
        return HEADERS if self.bodies is not None and self.bodies.reads_headers else ()

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """What is kept of an event that cannot be computed, beside its body and its place."""
        return tuple(dict.fromkeys((*self.headers, *self.columns)))


@dataclass(slots=True)
class Tally:
    """What a task has read so far."""

    events: dict[str, int]
    size: dict[str, int]
    rejected: list[pa.RecordBatch]
    producers: Producers = field(default_factory=dict)
    reading: float = 0.0
    times: dict[str, tuple[int, float]] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)


def run_task(
    spec: ReadSpec, order: TaskOrder, tally: Tally, *, pause: Callable[[float], object] = time.sleep
) -> Generator[pa.RecordBatch, None, None]:
    """All events of the task's ranges, in order within each. `pause` waits before a reader connects anew."""
    hub = shared_hub(spec.url, order.hub)
    if spec.bodies is not None:
        spec = replace(spec, bodies=spec.bodies.given(order.schemas))
    for one in order.ranges:
        rows = 0
        for batch in _timed(_events(hub, spec, one, order.mean.get(one.partition), pause), tally):
            rows += batch.num_rows
            _weigh(batch, one, order, tally)
            _note_time(batch, one, tally)
            if spec.links:
                note_producers(batch.column("properties"), tally.producers)
            if skipped := order.skipped.get(one.partition):
                batch = _without(batch, skipped)
            if batch.num_rows:
                yield from _out(spec, batch, one.owner_level, tally)
        if rows < len(one):
            check_complete(hub, one, IN_LOOP)


def _timed(batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    """The batches, with the time counted for which they are waited for."""
    while True:
        started = time.monotonic()
        batch = next(batches, None)
        tally.reading += time.monotonic() - started
        if batch is None:
            return
        yield batch


def _without(batch: pa.RecordBatch, skipped: Sequence[int]) -> pa.RecordBatch:
    """The events but for those that a person has had skipped."""
    out = pc.is_in(batch.column("sequenceNumber"), pa.array(skipped, pa.int64()))
    return batch.filter(pc.invert(out))


def receipt_of(order: TaskOrder, tally: Tally) -> Receipt:
    """What the task tells the driver once all has been read."""
    rejected = None
    if tally.rejected:
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, tally.rejected[0].schema) as writer:
            for batch in tally.rejected:
                writer.write_batch(batch)
        rejected = stream.getvalue().to_pybytes()
    producers = tuple(tally.producers)
    return Receipt(
        *(order.token, order.task, tally.events, tally.size, rejected, producers, tally.reading, tally.times),
        frozenset(tally.unknown),
    )


def _events(
    hub: Hub, spec: ReadSpec, range_: ReadRange, mean: float | None, pause: Callable[[float], object]
) -> Iterator[pa.RecordBatch]:
    """The events of a range in chunks that fit in memory, read on after a pause if somebody has come between."""
    wanted = [name for name in spec.columns if name != "ownerLevel"]
    if spec.bodies is not None:
        read = ("body", *CARRIED, *spec.headers)
        wanted += [name for name in read if name not in wanted and name != "ownerLevel"]
    if spec.links and "properties" not in wanted:
        wanted.append("properties")
    wanted += [name for name in ("sequenceNumber", "enqueuedTime") if name not in wanted]
    pauses = iter(PAUSES)
    left = range_
    while len(left):
        part = left
        if mean is None and len(left) > FIRST_EVENTS:
            part = replace(left, end=left.start + FIRST_EVENTS)
        rows = min(spec.batch_rows, FIRST_EVENTS if mean is None else max(1, int(CHUNK_BYTES / max(mean, 1.0))))
        size = count = 0
        try:
            for batch in owned_batches(hub, part, wanted, rows, spec.read_for):
                size, count = size + batch.nbytes, count + batch.num_rows
                yield batch
        except ReaderDisconnected as error:
            if spec.read_for is not None and _is_taken(hub, range_, spec.read_for):
                raise PartitionTaken(range_.partition, range_.owner_level) from error
            pause_before_reading_on(pauses, error, pause)
            left = replace(left, start=error.position)
        else:
            left = replace(left, start=part.end)
            mean = size / count if count else mean


def _is_taken(hub: Hub, range_: ReadRange, read_for: ReadFor) -> bool:
    return superseded(hub, range_, read_for) or taken_by_others(hub, range_, read_for)


def _weigh(batch: pa.RecordBatch, range_: ReadRange, order: TaskOrder, tally: Tally) -> None:
    events = tally.events[range_.partition] = tally.events.get(range_.partition, 0) + batch.num_rows
    size = tally.size[range_.partition] = tally.size.get(range_.partition, 0) + batch.nbytes
    if order.most_bytes is not None and events > 1 and sum(tally.size.values()) > 2 * order.most_bytes:
        raise RangeTooLarge(range_.partition, events, size, order.most_bytes)


def _note_time(batch: pa.RecordBatch, range_: ReadRange, tally: Tally) -> None:
    """Note when the last of these events was enqueued, for the checkpoint behind it."""
    if batch.num_rows and (at := batch.column("enqueuedTime")[-1].as_py()) is not None:
        tally.times[range_.partition] = batch.column("sequenceNumber")[-1].as_py(), at.timestamp()


def _out(spec: ReadSpec, batch: pa.RecordBatch, owner_level: int, tally: Tally) -> Iterator[pa.RecordBatch]:
    if spec.bodies is None:
        yield with_level(batch, owner_level, spec.columns)
        return
    read = spec.bodies.read(batch.column("body"), batch)
    tally.unknown |= read.unknown
    out = with_level(batch, owner_level, spec.columns)
    arrays = [*read.columns.columns, *out.columns]
    names = [*read.columns.schema.names, *out.schema.names]
    if spec.inline:
        reasons = pa.nulls(batch.num_rows, pa.string()) if read.reasons is None else read.reasons
        rows = pa.RecordBatch.from_arrays([*arrays, reasons], names=[*names, REASON])
        yield rows if read.passed is None else rows.filter(pc.invert(read.passed))
        return
    rows = pa.RecordBatch.from_arrays(arrays, names=names)
    if read.reasons is not None:
        carried = dict.fromkeys((*CARRIED, "body", *spec.headers, *spec.columns))
        set_aside = with_level(batch, owner_level, tuple(carried))
        set_aside = pa.RecordBatch.from_arrays([*set_aside.columns, read.reasons], names=[*carried, "reason"])
        tally.rejected.append(set_aside.filter(read.reasons.is_valid()))
    if read.good is not None:
        rows = rows.filter(read.good)
    if rows.num_rows or read.good is None:
        yield rows


@functools.cache
def set_aside_imports() -> None:
    """In a worker: what is imported stays. Without this, each task ends with a garbage collection of all of it."""
    gc.collect()
    gc.freeze()


def parts(receipts: Iterable[Receipt]) -> dict[str, float]:
    """What tasks can tell of a batch's time: the longest that one of them has waited for the hub, as `read`."""
    reading = [receipt.reading for receipt in receipts]
    return {"read": max(reading)} if reading else {}


def with_transform(seconds: Mapping[str, float], computing: float) -> dict[str, float]:
    """What `parts` tells, and the rest of the seconds of `computing` as `transform`; not where tasks tell nothing."""
    return {**seconds, "transform": max(0.0, computing - seconds["read"])} if "read" in seconds else dict(seconds)


def events_of(receipts: Iterable[Receipt]) -> int:
    """How many events these tasks have read, with those that were skipped."""
    return sum(sum(receipt.events.values()) for receipt in receipts)


def sizes(receipts: Mapping[int, Receipt]) -> dict[str, float]:
    """What an event of each partition weighs in the mean, in bytes, by these receipts."""
    events: dict[str, int] = {}
    size: dict[str, int] = {}
    for receipt in receipts.values():
        for partition, count in receipt.events.items():
            events[partition] = events.get(partition, 0) + count
            size[partition] = size.get(partition, 0) + receipt.size[partition]
    return {partition: size[partition] / count for partition, count in events.items() if count}


def last_times(receipts: Mapping[int, Receipt]) -> dict[str, tuple[int, float]]:
    """By partition, the number of the last event that was read, and when it was enqueued."""
    return latest(receipt.times for receipt in receipts.values())


def latest(times_of_tasks: Iterable[Mapping[str, tuple[int, float]]]) -> dict[str, tuple[int, float]]:
    """By partition, the last of the events that are told of, and when it was enqueued."""
    found: dict[str, tuple[int, float]] = {}
    for times in times_of_tasks:
        for partition, last in times.items():
            found[partition] = max(last, found.get(partition, last))
    return found


def timed(ranges: Iterable[EventRange], times: Mapping[str, tuple[int, float]]) -> tuple[EventRange, ...]:
    """The ranges with the times of their last events, where one of theirs is among `times` (`last_times`)."""
    found = []
    for one in ranges:
        number, at = times.get(one.partition, (-1, 0.0))
        found.append(replace(one, enqueued_time=at) if one.begin <= number < one.end else one)
    return tuple(found)
