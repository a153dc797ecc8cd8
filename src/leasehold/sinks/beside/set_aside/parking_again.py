"""Rejected events of a handler's table are parked again: what happens in the transaction, in which order.

Owns rule 8 of `set_aside`. The watermarks of the events' partitions are locked first, so that their owners' batches
come before or after: one that was computed before finds another count of changes, and is computed again. In a spread
table the versions of the entities rise too, for the batches of other partitions. Does no I/O of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.parking import ParkedEvent, Parking
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import ParkedAgain, RejectedRow
from leasehold.sinks.transactions import TableTransaction


def park_again(
    transaction: TableTransaction,
    spec: TableSpec,
    remove: Callable[[Sequence[RejectedRow]], Sequence[RejectedRow]],
    events: Sequence[tuple[RejectedRow, ParkedEvent]],
    now: float,
) -> ParkedAgain:
    """See `RejectedRows.park`. `remove` removes rejected rows, and returns those that were there as listed."""
    marks = transaction.watermarks(sorted({row.event.hub for row, _ in events}))
    read = [(row, event) for row, event in events if _is_read(row, marks)]
    there = set(remove([row for row, _ in read]))
    put: dict[Lane, list[ParkedEvent]] = {}
    for row, event in read:
        if row in there:
            put.setdefault((row.event.hub, row.event.partition), []).append(event)
    keys = {event.key for its in put.values() for event in its}
    if spec.spread and keys:
        transaction.lock_entities(keys)
    for (hub, partition), its in put.items():
        transaction.park(Parking(hub, partition, its, retried=True), now)
    if spec.spread and keys:
        transaction.raise_versions(keys, {})
    return ParkedAgain(len(there), len(events) - len(read), len(read) - len(there))


def _is_read(row: RejectedRow, marks: Mapping[Lane, Watermark]) -> bool:
    mark = marks.get((row.event.hub, row.event.partition))
    return mark is not None and row.event.sequence_number <= mark.sequence_number
