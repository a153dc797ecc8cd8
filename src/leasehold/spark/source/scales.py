"""What events weigh, where nobody tells: a streaming query's source plans batches, and its tasks report nothing back.

Owns the sampling: a few events at both ends of what would be read next. Promises an estimate that follows
the events at hand, so that a batch of large ones is cut before it is read. Refuses nothing: a hub that is away, or
gives a partition to one reader only, is not asked, and what was found before counts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from leasehold.errors import LeaseholdError
from leasehold.hubs.base import Hub
from leasehold.spark.offsets import ReadRange

logger = logging.getLogger(__name__)

FEW = 16
"""Ranges of so few events are not weighed anew."""
SAMPLE = 2
"""Events that are read at each end."""


class Scales:
    """Mean bytes of an event, by partition, with these columns. `one_reader`: the hub is not asked at all."""

    def __init__(self, hub: Hub, columns: Sequence[str], *, one_reader: bool) -> None:
        self._hub, self._one_reader = hub, one_reader
        self._columns = [name for name in columns if name != "ownerLevel"] or ["sequenceNumber"]
        self._mean: dict[str, float] = {}

    def weigh(self, ranges: Sequence[ReadRange]) -> dict[str, float]:
        """What is known now, after a look at these ranges."""
        for one in ranges:
            if not self._one_reader and (len(one) > FEW or (len(one) > 1 and one.partition not in self._mean)):
                self._look(one)
        return dict(self._mean)

    def _look(self, one: ReadRange) -> None:
        places = ((one.start, min(one.start + SAMPLE, one.end)), (max(one.start, one.end - SAMPLE), one.end))
        size = count = 0
        try:
            for begin, end in places:
                for batch in self._hub.read(one.partition, begin, end, columns=self._columns, batch_rows=SAMPLE):
                    size, count = size + batch.nbytes, count + batch.num_rows
        except LeaseholdError as error:
            logger.debug("partition %s is not weighed: %s", one.partition, error)
        if count:
            self._mean[one.partition] = size / count
