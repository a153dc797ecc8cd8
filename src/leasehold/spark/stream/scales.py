"""What events weigh, and when the last one was enqueued: a streaming query's tasks report nothing back to its source.

Owns the sampling: a few events at both ends of what would be read next. Promises an estimate that follows
the events at hand, so that a batch of large ones is cut before it is read, and the time of a range's last event where
that costs little: of a range of few events it is asked for now and then. Refuses nothing: a hub that is away, or
gives a partition to one reader only, is not asked, and what was found before counts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from leasehold.errors import LeaseholdError
from leasehold.hubs.base import Hub
from leasehold.model import PartitionProperties
from leasehold.spark.plan.offsets import ReadRange

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

FEW = 16
"""Ranges of so few events are not weighed anew."""
SAMPLE = 2
"""Events that are read at each end."""
EVERY = 5.0
"""Seconds between two looks at the last event of a partition whose ranges are not weighed."""
_PLACE = ("sequenceNumber", "enqueuedTime")


class Scales:
    """Mean bytes of an event, by partition, with these columns. `one_reader`: the hub is not asked at all."""

    def __init__(self, hub: Hub, columns: Sequence[str], *, one_reader: bool) -> None:
        self._hub, self._one_reader = hub, one_reader
        self._columns = [name for name in columns if name != "ownerLevel"] or ["sequenceNumber"]
        self._mean: dict[str, float] = {}
        self._last: dict[str, tuple[int, float]] = {}
        self._looked: dict[str, float] = {}

    def weigh(self, ranges: Sequence[ReadRange]) -> dict[str, float]:
        """What is known now, after a look at these ranges."""
        for one in ranges:
            if not self._one_reader and (len(one) > FEW or (len(one) > 1 and one.partition not in self._mean)):
                self._look(one)
        return dict(self._mean)

    def _look(self, range_: ReadRange) -> None:
        places = (
            (range_.start, min(range_.start + SAMPLE, range_.end)),
            (max(range_.start, range_.end - SAMPLE), range_.end),
        )
        columns = [*self._columns, *(name for name in _PLACE if name not in self._columns)]
        size = count = 0
        try:
            for begin, end in places:
                for batch in self._hub.read_sample(range_.partition, begin, end, columns=columns):
                    size, count = size + batch.select(self._columns).nbytes, count + batch.num_rows
                    self._note_last(range_, batch)
        except LeaseholdError as error:
            logger.debug("partition %s is not weighed: %s", range_.partition, error)
        if count:
            self._mean[range_.partition] = size / count

    def timed(
        self, ranges: Sequence[ReadRange], now: float, places: Mapping[str, PartitionProperties]
    ) -> tuple[ReadRange, ...]:
        """The same ranges, with when the last event of each was enqueued where that is known. `now` is monotonic.

        `places` may tell it of ranges that end where their partition does: also of a hub that is not asked.
        """
        return tuple(
            replace(one, enqueued=self._enqueued(one, now, places.get(one.partition))) if len(one) else one
            for one in ranges
        )

    def _enqueued(self, range_: ReadRange, now: float, place: PartitionProperties | None) -> float | None:
        if place is not None and place.end == range_.end and place.last_enqueued is not None:
            return place.last_enqueued
        known = self._last.get(range_.partition, (None, 0.0))
        due = now - self._looked.get(range_.partition, -math.inf) >= EVERY
        if known[0] != range_.end and due and not self._one_reader:
            self._looked[range_.partition] = now
            try:
                for batch in self._hub.read_sample(range_.partition, range_.end - 1, range_.end, columns=_PLACE):
                    self._note_last(range_, batch)
            except LeaseholdError as error:
                logger.debug("partition %s does not tell when its last event was enqueued: %s", range_.partition, error)
            known = self._last.get(range_.partition, known)
        return known[1] if known[0] == range_.end else None

    def _note_last(self, range_: ReadRange, batch: pa.RecordBatch) -> None:
        """Note the last of some events of a range; what was read up to its end is the last one that there is."""
        if batch.num_rows and (at := batch.column("enqueuedTime")[-1].as_py()) is not None:
            self._last[range_.partition] = range_.end, at.timestamp()
