"""Batches of events that say which ranges of their partitions they were read from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from leasehold.model import EventRange
from leasehold.sinks.rules.batch import Batch
from tests.sinks.events import E, batch


def read(begin: int, end: int, level: int = 1, partition: str = "0", left_out_from: int | None = None) -> EventRange:
    """The events `[begin, end)`, read whole."""
    return EventRange("h", partition, level, begin, end, left_out_from)


def of(ranges: Iterable[EventRange], events: Iterable[E], rejected: Iterable[E] = ()) -> Batch:
    """The events as a batch that was read from these ranges."""
    return replace(batch(events, rejected=rejected), ranges=list(ranges))
