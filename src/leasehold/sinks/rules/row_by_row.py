"""Writes the rows of a batch in chunks, and row by row where a chunk has a row that the table refuses.

Owns which rows are tried together, and that a row in conflict with another partition's is set aside, where the table
is asked to (`TableSpec.on_two_partitions`). Promises the same outcome as judging and writing every row on its own:
when one of a chunk breaks a constraint, the chunk is undone and redone row by row. So it makes no difference where
batches, or chunks, begin and end. How a row is written, and undone, is the database's: `RowTarget`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from leasehold.errors import KeyFromTwoPartitions
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Claim, Step
from leasehold.sinks.rules.table_spec import TableSpec, ordered_keys

_CHUNK = 1000


class RowOrder(Protocol):
    """What decides which rows count: `KeyOrder`, or `EveryEvent`."""

    def judge(self, start: int, end: int) -> Step: ...

    def accept(self, step: Step) -> None: ...

    def known_claim(self, index: int) -> tuple[Any, ...]: ...


class EveryEvent:
    """The order of a table without keys: every event counts."""

    def judge(self, start: int, end: int) -> Step:
        return Step(range(start, end), 0, end, {})

    def accept(self, step: Step) -> None:
        """There is nothing to remember."""

    def known_claim(self, index: int) -> tuple[Any, ...]:
        raise AssertionError("events without keys are never in conflict")


@dataclass(slots=True)
class Written:
    """What became of the rows; `broken` are those that the table refused, with its words."""

    applied: int = 0
    superseded: int = 0
    broken: dict[int, str] = field(default_factory=dict)


class RowTarget(Protocol):
    """Where rows go, in the transaction of one batch.

    A row that the table refuses is set aside alone, which takes savepoints. A database without them, where an error
    ends the transaction, raises `SinkError` in `attempt`: nothing of the batch is applied, and it comes again.
    """

    def attempt(self, winners: Sequence[int]) -> str | None:
        """Write these rows in order, or none of them: then the table's reason is returned.

        What was written before in the transaction stays.
        """
        ...

    def conflict(self, index: int, claim: Claim) -> KeyFromTwoPartitions:
        """The error for row `index`, whose key was last written with `claim`."""
        ...


class RowWriter:
    """Writes the first `count` rows to `table` as `order` says. For one batch.

    `rejects`: a row in conflict is one that the table refuses; else it ends the batch.
    """

    def __init__(self, table: RowTarget, count: int, order: RowOrder, *, rejects: bool = False) -> None:
        self._table = table
        self._rejects = rejects
        self._count = count
        self._order = order
        self._written = Written()

    def write(self) -> Written:
        """Write all rows. Raises `KeyFromTwoPartitions` and `SinkError`, after which the batch must be undone."""
        start, end = 0, self._count
        while start < end:
            step = self._order.judge(start, min(start + _CHUNK, end))
            if step.stop == start:
                self._refuse(start)
                start += 1
                continue
            if self._attempt(step) is not None:
                for index in range(start, step.stop):
                    self._write_one(index)
            start = step.stop
        return self._written

    def _write_one(self, index: int) -> None:
        step = self._order.judge(index, index + 1)
        if step.stop == index:
            self._refuse(index)
            return
        broken = self._attempt(step)
        if broken is not None:
            self._written.broken[index] = broken

    def _attempt(self, step: Step) -> str | None:
        broken = self._table.attempt(step.winners)
        if broken is None:
            self._order.accept(step)
            self._written.applied += len(step.winners)
            self._written.superseded += step.superseded
        return broken

    def _refuse(self, index: int) -> None:
        """Set a row aside that is in conflict with what is known of its key. Raises `KeyFromTwoPartitions`."""
        known = self._order.known_claim(index)
        if not self._rejects:
            raise self._table.conflict(index, known)
        hub, partition = known
        self._written.broken[index] = not_comparable((hub, partition))


def not_comparable(lane: Lane) -> str:
    """Why a row is rejected whose key was last written from this other partition."""
    return (
        f"the entity was last written from partition {lane[1]}, whose sequence numbers cannot be compared with this "
        "event's: nobody can say which is later"
    )


def two_partitions(
    spec: TableSpec, key: Sequence[Any], lane: Lane, number: int, last_lane: Lane
) -> KeyFromTwoPartitions:
    """The error for the event `number` of `lane`, whose key was last written from `last_lane`."""
    hub, partition = lane
    known_hub, known_partition = last_lane
    named = ", ".join(f"{name} = {value!r}" for name, value in zip(ordered_keys(spec), key, strict=True))
    here, there = f"partition {partition}", f"partition {known_partition}"
    if hub != known_hub:
        here, there = f"{here} of hub {hub}", f"{there} of hub {known_hub}"
    return KeyFromTwoPartitions(
        f"the entity {named} of the table {spec.called} was last written from {there}, and event "
        f"{number} of {here} is about it too. Sequence numbers of two partitions cannot be "
        "compared, so nobody can say which event is later. Nothing of the batch was applied. Give sequence_by, "
        "an expression that grows with each event of an entity (a version, or a time), and to a table that a handler "
        "fills spread=True with it; a table that has been filled without it has to be read anew with it (`leasehold "
        "reset PIPELINE.toml --to earliest`). Or send all events of an entity with one partition key. To set such "
        'events aside, give on_two_partitions="reject", to a table without a handler; to get over this one alone, run '
        f"`leasehold skip PIPELINE.toml --event {partition}:{number} --because …`"
    )
