"""From the rows of a batch to the events of each partition, as a handled table takes them.

Owns that nothing of a batch gets lost on this way: an event that was set aside before is an event like the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from leasehold.handlers.given import RejectedInput
from leasehold.model import EventRange
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks.rules.batch import Batch
from leasehold.spark.handlers.tasks import EventOfPartition
from leasehold.spark.table.of_loop import batch_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("body", "hub", "partition", "sequenceNumber", "ownerLevel", "enqueuedTime")


@dataclass(frozen=True, slots=True)
class RangeEvents:
    """The events of one range, in order; without any, it is for what is parked. Goes on at `start`.

    `last_enqueued` is when the hub received the last of them, in seconds since 1970, 0 where that is not known.
    """

    hub: str
    partition: str
    owner_level: int
    events: tuple[EventOfPartition | RejectedInput, ...] = ()
    first: int = 0
    end: int = 0
    start: int = 0
    last_enqueued: float = 0.0
    batch_id: str = ""

    @property
    def last(self) -> int:
        """The last number of the range, whether there is an event of it or not."""
        return self.end - 1

    def __iter__(self) -> Iterator[EventOfPartition | RejectedInput]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def __bool__(self) -> bool:
        return self.end > self.first


def events_only(events: DataFrame) -> DataFrame:
    """Of a batch's events what handlers need."""
    return events.select(*COLUMNS)


def read_raw(file: PipelineFile) -> PipelineFile:
    """The file with which events are read as they are: handlers' tasks read the bodies, as a plain process does."""
    section = replace(
        file.transform,
        schema=None,
        format="json",
        writer_schema=None,
        registry=None,
        message=None,
        envelope=None,
        content_encoding="identity",
        rescue=None,
        skipped_operations=(),
        decimal_handling_mode="precise",
        timestamps="exact",
        sql=None,
        python=None,
    )
    return replace(file, transform=section)


def lanes_of(batch: Batch, *, transformed: bool = False) -> list[RangeEvents]:
    """The ranges of a batch with their events.

    What was set aside before is an event like the others; where they are `transformed`, it stays set aside.
    """
    found: dict[tuple[str, str, int], list[EventOfPartition | RejectedInput]] = {}
    for table in (batch.rows, batch.rejected):
        if table is None:
            continue
        times = table["enqueuedTime"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        names = ("hub", "partition", "ownerLevel", "sequenceNumber", "body")
        values = [table[name].to_pylist() for name in names]
        aside = transformed and table is batch.rejected
        reasons = table["reason"].to_pylist() if aside else [""] * len(times)
        for hub, partition, level, number, body, time, reason in zip(*values, times, reasons, strict=True):
            place = found.setdefault((hub, partition, level), [])
            one = EventOfPartition(body, number, (time or 0) / 1e6)
            place.append(RejectedInput(*one, reason) if aside else one)
    ranges = batch.ranges or ()
    name = batch_id(ranges)
    return [_lane(its, found.get((its.hub, its.partition, its.owner_level), []), name) for its in ranges]


def _lane(range_: EventRange, events: list[EventOfPartition | RejectedInput], name: str) -> RangeEvents:
    mine = sorted((one for one in events if range_.begin <= one.sequence_number < range_.end), key=_number)
    start = range_.begin if range_.left_out_from is None else range_.left_out_from
    return RangeEvents(
        range_.hub,
        range_.partition,
        range_.owner_level,
        tuple(mine),
        range_.begin,
        range_.end,
        start,
        range_.enqueued_time or 0.0,
        name,
    )


def _number(event: EventOfPartition | RejectedInput) -> int:
    return event.sequence_number
