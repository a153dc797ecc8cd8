"""Parked events of a hub that the pipeline does not read any more: a person has them tried at once.

A hub that was made anew, or another one in its place, leaves its parked events without an owner of their partition;
those of the new hub take care of them after a while (`handlers.parking.left_behind`). Owns which
events are meant, and that they are tried as an owner would try them: by the same code, each in one transaction with its
effect, for the events that are due.

Concurrency: beside running instances, and beside others who do the same. The owner level of the old hub's partitions
stays as it is, so that an instance which reads that hub after all goes on: each commit of parked events raises the
watermark's count of changes, and whoever has read before it computes again. So a handler may be called for an event
by two at once, and only one of the calls has an effect. Stopped for a minute, or killed, at any line: what was
committed is done, the rest is parked as before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leasehold.errors import KeyFromTwoPartitions
from leasehold.handlers.table import HandledTable
from leasehold.operations.aside.contract import AT_A_TIME
from leasehold.processors.events.delivery import EventBatch
from leasehold.processors.events.stopping import StopReason
from leasehold.sinks.beside.parking.contract import ParkedRow
from leasehold.sinks.features import KeepsStates
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.set_aside import EventId, Selection


@dataclass(slots=True)
class _Caller:
    """A partition of the old hub, as a handled table and its outbox know who calls."""

    hub: str
    partition: str
    owner_level: int
    start: int = 0
    trusted: bool = True
    due: float = math.inf

    def call_again(self, seconds: float) -> None:
        self.due = min(self.due, seconds)


def try_left(table: HandledTable, parked: KeepsStates, events: Sequence[EventId]) -> list[tuple[ParkedRow, str]]:
    """Try what is due of the partitions of these events, until nothing changes any more.

    Gives those of them that stay parked, each with why: what the handler raised, or why the events of its partition
    cannot be applied. So do those of a partition of which this table has no watermark, as of one that another consumer
    group has read; others go on.
    """
    lanes = sorted({(one.hub, one.partition) for one in events})
    wanted = frozenset(events)
    chosen = Selection(frozenset((one.partition, one.sequence_number) for one in events))
    before = None
    while True:
        refused = {lane: why for lane in lanes if (why := _tried(table, lane)) is not None}
        still = [row for row in _each(parked, chosen) if row.id in wanted]
        if not still or len(still) == before:
            break
        before = len(still)  # what has gone may have been before another partition's
    return [
        (row, refused.get((row.id.hub, row.id.partition)) or row.event.error or "it waits behind another of its entity")
        for row in still
    ]


def _each(parked: KeepsStates, chosen: Selection) -> Iterator[ParkedRow]:
    after: EventId | None = None
    while some := parked.parked_rows(chosen, AT_A_TIME, after):
        after = some[-1].id
        yield from some


def _tried(table: HandledTable, lane: Lane) -> str | None:
    """Try what is due of a partition; why it cannot be applied, if it cannot."""
    hub, partition = lane
    mark = table.sink.watermarks(hub).get(partition)
    if mark is None or mark.disputed:
        return f"the watermark of partition {partition} of hub {hub} does not let them be applied"
    caller = _Caller(hub, partition, mark.owner_level, due=0.0)
    try:
        while caller.due <= 0:
            caller.due = math.inf
            table.on_events(EventBatch(hub, partition, mark.owner_level), caller)
    except KeyFromTwoPartitions as error:
        return str(error)
    finally:
        table.on_partition_stop(caller, StopReason.SHUTDOWN)
    return None
