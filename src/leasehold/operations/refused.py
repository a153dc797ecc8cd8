"""Events of the outbox that their receiver has refused, for an operator: the work on any number of them.

Owns the pieces in which that is done, and how events are chosen. The rules of a single event are the outbox's
(`sinks.beside.outbox`). Killed, or stopped for a minute, at any line: the pieces that were done are done, of
the others nothing is changed; run it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from leasehold.sinks.base import Sink
from leasehold.sinks.beside.outbox.contract import Outbox, RefusedEvent
from leasehold.sinks.features import OUTBOX, require

AT_A_TIME = 100
"""Events that are read, or changed, together: what is refused for its size is large."""


def refused_of(sink: Sink) -> Outbox:
    """What the sink offers for refused events. Raises `ConfigError` where it is nothing."""
    return require(sink, OUTBOX, "leasehold outbox").outbox


def each(outbox: Outbox, numbers: Collection[int] = (), reason_has: str | None = None) -> Iterator[RefusedEvent]:
    """The refused events with these numbers, if any are given, and with this text in their reason."""
    after = 0
    while some := outbox.refused(AT_A_TIME, after):
        after = some[-1].event.number
        for one in some:
            if (not numbers or one.event.number in numbers) and (reason_has is None or reason_has in one.reason):
                yield one


def changed(change: Callable[[Collection[int]], int], events: Iterator[RefusedEvent]) -> int:
    """Change all of these, by a method of the outbox. How many there were."""
    numbers = [one.event.number for one in events]
    return sum(change(numbers[start : start + AT_A_TIME]) for start in range(0, len(numbers), AT_A_TIME))
