"""What may be done with rejected events: the values of it, its rules, and what a sink offers for it.

Owns the rules of `Sink.rejected_rows` and `set_aside_counts`. A sink tries those events again that a batch names
(`Batch.again`). Does no I/O.

An event is the unit: its rejected rows are tried again, and dropped, together. Trying it again is not reading it again:
the watermark has passed it, and stays where it is.

1. An event is tried again only if the watermark of its partition has reached it. One above is going to be read again
   (a reset has lowered the watermark) and would count twice.
2. What the transform makes of it now is judged against the last event of each key, as the memory of keys knows it: by
   `sequence_by`, and without it by sequence number within a partition. It never replaces what a later event wrote. A
   key that was last written from another partition cannot be compared: such a row stays rejected. So does one of a key
   of which nothing is known where memories of keys have been cleared (`forgetting`) up to this event, or further.
3. A table without keys gets the rows that it does not have. Of an event of which nothing could be read or computed
   (`source` is there) that is all. Of another it is the rows at the places of the rejected ones; so the transform has
   to make the same rows of it, in the same order. If it makes too few for that, the event stays as it is.
4. The rows that an event brings, the memory of keys and the rejected rows change in one transaction, and an event is
   applied whole in one transaction. Its rejected rows are gone, or there are those of this try.
5. An event of which nothing could be read or computed keeps its body as long as any row of it is rejected: with keys,
   its one row, with the reason of this try; without keys, until some of its rows are in the table.
6. An event that a producer has sent twice (`duplicates`) is left out and rejected no longer, if the other was applied.
7. Events of which somebody else has dropped or applied the rejected rows meanwhile are left alone.
8. A table that a handler fills has no transform. There a rejected event is parked again (`RejectedRows.park`), by
   rules 1 and 7, in the transaction in which its rejected row goes: the owner of its partition tries it like every
   parked event, so it takes effect once, or is rejected anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from leasehold.sinks.rules.again import EventId, RejectedRow, RetryResult

if TYPE_CHECKING:
    from leasehold.sinks.rules.parking import ParkedEvent

__all__ = [
    "DroppedRow",
    "EventId",
    "OutboxCounts",
    "ParkedAgain",
    "ReasonCount",
    "RejectedRow",
    "RejectedRows",
    "RetryResult",
    "Selection",
    "SetAsideCounts",
]


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many rows were rejected for a reason, and when the first and the last of them."""

    reason: str
    rows: int
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """A rejected row that a person has dropped, without its body."""

    event: EventId
    place: int
    reason: str
    rejected_at: str
    dropped_for: str
    dropped_at: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rejected rows: those that meet all that is said. Without anything: all.

    events  partitions and sequence numbers
    reason  a part of the reason, in the case as given
    hub     the identity of the hub
    """

    events: frozenset[tuple[str, int]] | None = None
    reason: str | None = None
    hub: str | None = None


@dataclass(frozen=True, slots=True)
class ParkedAgain:
    """What became of rejected events that were to be parked again.

    parked  events that wait for their owner now
    unread  events above the watermark, left alone: they are going to be read again
    gone    events left alone, since they were not among the rejected any more
    """

    parked: int = 0
    unread: int = 0
    gone: int = 0

    def plus(self, other: ParkedAgain) -> ParkedAgain:
        """The sum of both."""
        return ParkedAgain(self.parked + other.parked, self.unread + other.unread, self.gone + other.gone)


@dataclass(frozen=True, slots=True)
class OutboxCounts:
    """How many events wait to be sent, since when the first of them (seconds since 1970), and how many were refused."""

    waiting: int = 0
    since: float | None = None
    refused: int = 0


@dataclass(frozen=True, slots=True)
class SetAsideCounts:
    """How much is set aside beside a table, for good and for later.

    rejected       rows
    dead_letters   those of them whose event a handler was called for, as often as it may be
    parked         events
    oldest_parked  when the one that has been parked longest was parked, in seconds since 1970; None where none is
    next_retry     when the next of them is tried, in seconds since 1970; in the past: it waits for its owner
    outbox         events that handlers have emitted, which wait to be sent or were refused
    to_skip        events that a person has noted to be skipped, and that no batch has come to yet
    rejected_of    the rejected rows of each table, by its name, where there are several
    """

    rejected: int = 0
    dead_letters: int = 0
    parked: int = 0
    oldest_parked: float | None = None
    next_retry: float | None = None
    outbox: OutboxCounts = field(default_factory=OutboxCounts)
    to_skip: int = 0
    rejected_of: Mapping[str, int] = field(default_factory=dict)


class RejectedRows(Protocol):
    """The rejected rows of one entity table. May be used by many threads and processes, beside running instances."""

    def reasons(self, selection: Selection, limit: int) -> list[ReasonCount]:
        """The most frequent reasons, at most `limit`, the most frequent first."""
        ...

    def rows(self, selection: Selection, limit: int, after: EventId | None = None) -> list[RejectedRow]:
        """At most `limit` rows of events behind `after`, by hub, partition, sequence number and place."""
        ...

    def drop(self, rows: Sequence[RejectedRow], reason: str) -> int:
        """Remove these rows, in one transaction, and note each with `reason` but without its body. How many there were.

        A row that was rejected anew since it was listed stays.
        """
        ...

    def dropped(self, limit: int) -> list[DroppedRow]:
        """The rows that were dropped last, at most `limit`, the latest first."""
        ...

    def park(self, events: Sequence[tuple[RejectedRow, ParkedEvent]]) -> ParkedAgain:
        """Put these events in place of their rejected rows, in one transaction: rule 8.

        Of a sink that parks events (STATES); others need not have it, and no handler fills their tables.
        """
        ...
