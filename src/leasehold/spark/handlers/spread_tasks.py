"""What tasks do where an entity's events are in several partitions: they sort them by entity, and compute them.

Owns the shuffle. A task for each partition reads its bodies and sorts the events by the entity's key. Then each task
has all events of its entities, of all partitions of the batch, and computes them partition by partition, each from what
the ones before it leave (`handlers.spread`, rule 5). As with other tables nothing is written here, and a task may run
twice.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from leasehold.clock import SystemClock
from leasehold.handlers.columns import columns_of
from leasehold.handlers.contract import Key
from leasehold.handlers.given import Given, given_events
from leasehold.handlers.spread import SpreadComputed, SpreadEntities, joined
from leasehold.sinks.features import STATES, require
from leasehold.sinks.rules.batch import OrderValue
from leasehold.spark.handlers.jobs import HandlerTasks
from leasehold.spark.handlers.leased import TaskLeases
from leasehold.spark.handlers.tasks import HandlerCall, TaskPiece, calling, sink_at, told


@dataclass(slots=True)
class _Portion:
    """Of the piece at a place in the batch, the events of some entities in order, with their `sequence_by`."""

    place: int
    given: list[Given] = field(default_factory=list)
    values: dict[int, OrderValue] = field(default_factory=dict)


def answered(tasks: HandlerTasks, call: HandlerCall, pieces: Sequence[TaskPiece]) -> list[SpreadComputed]:
    """What the events of each piece come to, if the pieces are committed in this order."""
    count = min(tasks.cores, sum(len(piece.events) for piece in pieces))
    split, compute = functools.partial(_split, call, count), functools.partial(_computed, call)
    parts: list[list[SpreadComputed]] = [[] for _ in pieces]
    for place, done in tasks.sorted_out(split, compute, list(enumerate(pieces)), count):
        parts[place].append(done)
    return [joined(each) for each in parts]


def _split(call: HandlerCall, tasks: int, numbered: tuple[int, TaskPiece]) -> Iterable[tuple[int, _Portion]]:
    """The portions of a piece, each with the number of the task that computes it."""
    place, piece = numbered
    given, rows = given_events(call.reader, call.handler, piece, piece.events, [1] * len(piece.events), piece.batch_id)
    valued, values = _entities(call).valued(given, rows)
    found: dict[int, _Portion] = {}
    for one in valued:
        key, event, _ = one
        portion = found.setdefault(zlib.crc32(_text(key)) % tasks, _Portion(place))
        portion.given.append(one)
        if event.sequence_number in values:
            portion.values[event.sequence_number] = values[event.sequence_number]
    return found.items()


def _text(key: Key) -> bytes:
    """The same for equal keys, in each process: -0.0 is 0.0."""
    return repr(tuple(part + 0.0 if isinstance(part, float) else part for part in key)).encode(errors="replace")


def _computed(call: HandlerCall, portions: Iterable[tuple[int, _Portion]]) -> Iterator[tuple[int, SpreadComputed]]:
    """What the events of a task's portions come to, each with its piece's place."""
    mine = sorted((portion for _, portion in portions), key=attrgetter("place"))
    if not mine:
        return
    lanes = [(one.given, one.values) for one in mine]
    assert call.spec.sequence_by is not None
    ordered = call.reader.schema.field(call.spec.sequence_by).type
    if call.leases is None:
        with calling(call) as compute:
            found = _entities(call).computed_in_turn(lanes, ordered, compute)
    else:
        leases = TaskLeases(call.leases)
        with leases.living_on(), calling(call, leases.within) as compute:
            found = _entities(call).computed_in_turn(lanes, ordered, compute, leases.take)
    yield from ((portion.place, told(done)) for portion, done in zip(mine, found, strict=True))


def _entities(call: HandlerCall) -> SpreadEntities:
    sink = require(sink_at(call.url, call.spec), STATES, "entities whose events are in several partitions")
    assert call.spec.sequence_by is not None
    return SpreadEntities(
        *(sink, call.state, columns_of(call.state)),
        sequence_by=call.spec.sequence_by,
        late=call.late,
        exclusive=call.leases is not None,
        clock=SystemClock(),
    )
