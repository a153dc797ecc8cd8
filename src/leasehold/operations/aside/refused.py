"""Emitted events that their receiver has refused, for an operator: sent again, or dropped.

Owns the work on any number of them. The rules of a single event are the outbox's (`sinks.beside.outbox`). An event is
sent under the id that it had, so its body stays: who knows the id would take another body for the same event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from leasehold.operations.aside.contract import Aside, Done, Entry, EntryFilter, Left, pieces
from leasehold.operations.aside.exported import ExportedFile, body_as_json
from leasehold.printable import utc
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.outbox.contract import Outbox
from leasehold.sinks.features import STATES, require

AT_A_TIME = 100
"""Events that are read, or changed, together: what is refused for its size is large."""


def refused_of(sink: Sink) -> Outbox:
    """What the sink offers for refused events. Raises `ConfigError` where it is nothing."""
    return require(sink, STATES, "leasehold aside --kind refused").outbox


class RefusedAside(Aside):
    """The refused events of an outbox."""

    kind, noun = "refused", "refused event"
    names = ("number", "id")

    def __init__(self, where: str, outbox: Outbox) -> None:
        self.where, self._outbox = where, outbox

    def _entries(self, choice: EntryFilter) -> Iterator[Entry]:
        after = 0
        while some := self._outbox.refused(AT_A_TIME, after):
            after = some[-1].event.number
            for one in some:
                event = one.event
                record = {
                    **{"number": event.number, "id": event.id, "key": event.key, "emittedAt": utc(one.emitted_at)},
                    **{"reason": one.reason, "hub": one.hub, "partition": one.partition},
                    **{"properties": dict(event.properties), **body_as_json(event.body)},
                }
                numbered = event.number, one.reason, one.emitted_at, event.body
                yield Entry(*numbered, record, one, one.hub, one.partition)

    def _about(self, key: Sequence[str]) -> Callable[[Entry], bool]:
        return lambda entry: entry.record["key"] in key

    def retry(self, choice: EntryFilter, file: ExportedFile | None, say: Callable[[int], object]) -> Done:
        """Let the events be sent again by the owners of their partitions, under the ids that they had."""
        left: list[Left] = []
        return Done({"retried": _changed(self._outbox.send_again, self.taken(choice, file, left))}, left)

    def drop(self, choice: EntryFilter, because: str) -> Done:
        """Drop the events; nothing is kept of them."""
        return Done({"dropped": _changed(self._outbox.drop_refused, self.chosen(choice))})


def _changed(change: Callable[[Collection[int]], int], entries: Iterable[Entry]) -> int:
    """Change all of these, which are listed before the first is changed, by a method of the outbox."""
    return sum(change(some) for some in pieces([entry.number for entry in entries], AT_A_TIME))
