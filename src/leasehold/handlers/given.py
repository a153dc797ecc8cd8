"""From the events of a partition to what a handler is given of them.

Owns the reading of bodies, and which of them cannot be given to a handler, or are passed over. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from leasehold.formats.bodies import BodyReader
from leasehold.handlers.contract import PASSED_OVER, EntityEvent, EntityHandler, Key, PassedOver
from leasehold.handlers.places import Place, Sent

Given = tuple[Key, EntityEvent, str | PassedOver | None]
"""The key of an event's entity, the event, and why it cannot be given to the handler: None if it can, `PASSED_OVER` if
it is nothing to give, as a tombstone of Debezium's is."""


class RejectedInput(NamedTuple):
    """An event that was rejected on its way here, and why; `enqueued_time` in seconds since 1970."""

    body: bytes
    sequence_number: int
    enqueued_time: float
    reason: str


def given_events(
    reader: BodyReader,
    handler: EntityHandler,
    place: Place,
    events: Sequence[Sent],
    deliveries: Iterable[int],
    batch_id: str = "",
) -> tuple[list[Given], pa.Table]:
    """The events of one partition, each at the try that `deliveries` says, and their bodies' columns."""
    read = reader.read(pa.array([event.body for event in events], pa.binary()))
    rows = read.columns.to_pylist()
    reasons = [None] * len(events) if read.reasons is None else read.reasons.to_pylist()
    passed = [False] * len(events) if read.passed is None else read.passed.to_pylist()
    given: list[Given] = []
    for event, row, reason, passes, delivery in zip(events, rows, reasons, passed, deliveries, strict=True):
        key = tuple(row[name] for name in handler.keys)
        if isinstance(event, RejectedInput):
            reason = event.reason
        elif passes:
            reason = PASSED_OVER
        elif reason is None and None in key:
            reason = f"{handler.keys[key.index(None)]} is null, and names the entity"
        one = EntityEvent(
            key[0] if len(key) == 1 else key,
            event.body,
            row,
            place.hub,
            place.partition,
            event.sequence_number,
            event.enqueued_time,
            place.owner_level,
            delivery=delivery,
            batch_id=batch_id,
        )
        given.append((key, one, reason))
    return given, read.columns
