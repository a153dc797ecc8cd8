"""Rejected events that are tried again, as values: what names an event, what is kept of it, and what
became of those of a batch.

The rules are in `sinks.set_aside`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["EventId", "RejectedRow", "RetryResult"]


@dataclass(frozen=True, slots=True, order=True)
class EventId:
    """An event of a hub, by the hub's identity."""

    hub: str
    partition: str
    sequence_number: int


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that was set aside.

    place        which of the rows that the transform made of the event, from 0
    body         the event's body where the event could not be read or computed, and else the row, as JSON
    source       what else the event had, as a JSON object; None for a row that could be read and does not fit the table
    rejected_at  when, in UTC, as ISO 8601 text
    """

    event: EventId
    place: int
    body: object
    reason: str
    source: str | None
    rejected_at: str


@dataclass(frozen=True, slots=True)
class RetryResult:
    """What became of events that were tried again.

    applied     rows written or deleted
    superseded  rows left out, since a later event of their key has been applied
    rejected    rows that are rejected still
    filtered    events of which the transform makes no row now: no longer rejected
    unread      events above the watermark, left alone: they are going to be read again
    gone        events left alone, since they were not among the rejected any more
    duplicates  events left out, since a producer has sent them before: no longer rejected
    """

    applied: int = 0
    superseded: int = 0
    rejected: int = 0
    filtered: int = 0
    unread: int = 0
    gone: int = 0
    duplicates: int = 0

    def plus(self, other: RetryResult) -> RetryResult:
        """The sum of both."""
        return RetryResult(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))
