"""Rejected events, for an operator: which are meant, trying them again, dropping them.

Owns how a choice is written, and the work on any number of events: in pieces of whole events, each piece read,
transformed and brought into the table by itself. The rules of a single event are the sink's (`sinks.beside.set_aside`).
What needs the transform is handed in.

Concurrency: beside running instances, and beside others who do the same. Killed, or stopped for a minute, at any line:
the pieces that were done are done, of the others nothing is changed; run it again. Whoever stops between listing and
trying is told by the sink what was changed meanwhile, and leaves that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leasehold.errors import ConfigError, UsageError
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.set_aside.contract import (
    EventId,
    RejectedRow,
    RejectedRows,
    RetryResult,
    Selection,
)
from leasehold.sinks.features import COMPARISON, REJECTED, offered, require

if TYPE_CHECKING:
    from leasehold.sinks.rules.batch import Batch

AT_A_TIME = 1000
"""Rows that are tried again, or dropped, together."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What the transform makes of `events` now. Those that are `lost` cannot be computed again, each with why."""

    batch: Batch
    events: Sequence[EventId]


@dataclass(frozen=True, slots=True)
class LostEvent:
    """An event that cannot be tried again: neither the hub nor the table has all that the transform needs of it."""

    event: EventId
    reason: str


Recompute = Callable[[Sequence[RejectedRow]], Iterable[Recomputed | LostEvent]]
"""Reads rejected events and sends them through the transform, in one piece or several, each event in one."""


@dataclass(frozen=True, slots=True)
class Retried:
    """What became of all events that were chosen."""

    result: RetryResult
    lost: tuple[LostEvent, ...]


def check_there(sink: Sink) -> None:
    """Raise `UsageError` for a table that has not been made yet, as far as the sink can tell without making it."""
    if (compares := offered(sink, COMPARISON)) is not None and not compares.compare(None).there:
        raise UsageError(
            f"there is no table {sink.spec.called} in the database of the pipeline file, and none was made: no "
            "instance has filled it yet, or sink.url is not the one that they use"
        )


def rejected_rows_of(sink: Sink) -> RejectedRows:
    """What the sink offers for its rejected rows. Raises `ConfigError` where it is nothing."""
    remedy = f"Look into the table {sink.spec.beside(sink.spec.rejected)} itself"
    return require(sink, REJECTED, "leasehold rejected", remedy).rejected_rows


def parse_event(text: str) -> tuple[str, int]:
    """`PARTITION:SEQUENCE_NUMBER` as its two parts. Raises `ConfigError`."""
    partition, colon, number = text.rpartition(":")
    digits = number.isascii() and number.isdigit() and len(number) <= 19
    if not (colon and partition and digits and int(number) < 2**63):
        raise ConfigError(
            "--event", text, "an event is PARTITION:SEQUENCE_NUMBER", "For example 3:1042, as the list has it"
        )
    return partition, int(number)


def retry(
    sink: Sink, selection: Selection, recompute: Recompute, done: Callable[[int], None] = lambda rows: None
) -> Retried:
    """Try all events of a selection again. `done` is told how many rows have been gone through."""
    total, lost, seen = RetryResult(), [], 0
    for some in pieces(rejected_rows_of(sink), selection):
        for part in recompute(some):
            if isinstance(part, LostEvent):
                lost.append(part)
            else:
                result = sink.apply(replace(part.batch, again=part.events)).again
                total = total if result is None else total.plus(result)
        seen += len(some)
        done(seen)
    return Retried(total, tuple(lost))


def drop(rows: RejectedRows, selection: Selection, reason: str) -> int:
    """Drop all rows of the selection as they are listed now. How many there were."""
    return sum(rows.drop(some, reason) for some in pieces(rows, selection))


def pieces(rows: RejectedRows, selection: Selection, size: int = AT_A_TIME) -> Iterator[list[RejectedRow]]:
    """The rows of a selection, about `size` at a time; the rows of one event stay together, unless they are more."""
    after: EventId | None = None
    while some := rows.rows(selection, size, after):
        last = some[-1].event
        if len(some) == size and some[0].event != last:
            some = [row for row in some if row.event != last]
        after = some[-1].event
        yield some
