"""Parked events, for an operator: the work on any number of them.

Owns the pieces in which that is done. The rules of a single event are the sink's (`sinks.beside.parking.listing`).

Concurrency: beside running instances, and beside others who do the same. Killed, or stopped for a minute, at any line:
the pieces that were done are done, of the others nothing is changed; run it again. An event that was applied between
listing and changing is left alone, since it is not among the parked ones any more.
"""

from __future__ import annotations

from collections.abc import Iterator

from leasehold.errors import ConfigError
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.parking.contract import KeepsParked, ParkedRow
from leasehold.sinks.beside.set_aside.contract import EventId, Selection
from leasehold.sinks.features import PARKING, require

AT_A_TIME = 1000
"""Events that are changed together."""


def parked_of(sink: Sink) -> KeepsParked:
    """What the sink offers for its parked events. Raises `ConfigError` where it is nothing."""
    return require(sink, PARKING, "leasehold parked")


def retry(parked: KeepsParked, selection: Selection) -> int:
    """Let all events of a selection be tried at once. How many there were."""
    return sum(parked.hurry_parked(some) for some in pieces(parked, selection))


def drop(parked: KeepsParked, selection: Selection, reason: str) -> int:
    """Drop all events of a selection as they are listed now. How many there were."""
    if not reason.strip():
        raise ConfigError("reason", reason, "a text that is not empty", "Say why these events are not wanted")
    return sum(parked.drop_parked(some, reason) for some in pieces(parked, selection))


def each(parked: KeepsParked, selection: Selection) -> Iterator[ParkedRow]:
    """The events of a selection, as they are when their turn comes."""
    for some in _listed(parked, selection, AT_A_TIME):
        yield from some


def pieces(parked: KeepsParked, selection: Selection, size: int = AT_A_TIME) -> Iterator[list[EventId]]:
    """The events of a selection, this many at a time."""
    for some in _listed(parked, selection, size):
        yield [row.id for row in some]


def _listed(parked: KeepsParked, selection: Selection, size: int) -> Iterator[list[ParkedRow]]:
    after: EventId | None = None
    while some := parked.parked_rows(selection, size, after):
        after = some[-1].id
        yield some
