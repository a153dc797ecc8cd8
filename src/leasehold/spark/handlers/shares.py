"""The events of one partition, divided among several tasks by entity: pure.

Owns two rules.

1. How many tasks: as many as there is work for. A task should have `LEAST` seconds of it, by what an event took in the
   last batch; and all partitions together have no more tasks than Spark runs at once, but for one each. So a quick
   handler has a task for each partition, and a slow one has all cores, however few the partitions are.
2. Which task: all events of an entity go to one, in order. The driver looks at the keys alone. An event without a key
   that can be read goes to the first.

Refuses spread tables: their tasks have the entities of all partitions (`spread_tasks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from leasehold.formats.bodies import BodyReader
from leasehold.handlers.given import RejectedInput
from leasehold.spark.handlers.tasks import EventOfPartition, TaskPiece

LEAST = 0.2
"""Seconds of work that are worth a task."""


def shares_of(events: Sequence[int], seconds: float, cores: int) -> list[int]:
    """Rule 1: the tasks of each piece, by the numbers of their events; an event takes this many `seconds`."""
    together = sum(events)
    return [max(1, min(count, int(count * seconds / LEAST), cores * count // together)) for count in events]


def divided(piece: TaskPiece, keys: BodyReader, shares: int) -> list[TaskPiece]:
    """Rule 2: pieces with the events of different entities, at most this many. `keys` reads the columns of a key."""
    if shares == 1:
        return [piece]
    read = keys.read(pa.array([event.body for event in piece.events], pa.binary())).columns
    names = zip(*(read.column(name).to_pylist() for name in keys.names), strict=True)
    parts: list[list[EventOfPartition | RejectedInput]] = [[] for _ in range(shares)]
    for event, key in zip(piece.events, names, strict=True):
        parts[0 if None in key else hash(key) % shares].append(event)
    return [replace(piece, events=tuple(part)) for part in parts if part]
