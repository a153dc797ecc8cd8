"""Parked events, for an operator: those that wait for their handler are tried at once, or dropped.

Owns the work on any number of them. The rules of a single event are the sink's (`sinks.beside.parking`): an event that
was applied between listing and changing is left alone, since it is not among the parked ones any more. Those of a hub
that the pipeline does not read any more have no owner: they are tried here (`left_parked`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from leasehold.errors import HubUnavailable
from leasehold.handlers import handled_table
from leasehold.handlers.of_file import is_transformed
from leasehold.hubs import open_hub
from leasehold.operations.aside.contract import AT_A_TIME, Aside, Done, Entry, EntryFilter, Left, check_because, pieces
from leasehold.operations.aside.exported import ExportedFile, body_as_json
from leasehold.operations.aside.left_parked import try_left
from leasehold.pipeline_file import PipelineFile
from leasehold.printable import utc
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.forgetting import parse_key
from leasehold.sinks.beside.parking.contract import ParkedRow
from leasehold.sinks.features import STATES, KeepsStates, require
from leasehold.sinks.set_aside import EventId

logger = logging.getLogger(__name__)


def parked_of(sink: Sink) -> KeepsStates:
    """What the sink offers for its parked events. Raises `ConfigError` where it is nothing."""
    return require(sink, STATES, "leasehold aside --kind parked")


class ParkedAside(Aside):
    """The parked events of a pipeline's table; beside them, how many messages of queues are parked there."""

    kind, noun = "parked", "parked event"
    names = ("hub", "partition", "sequenceNumber", "parkedAt")

    def __init__(self, pipeline: PipelineFile, sink: Sink) -> None:
        self.where = pipeline.name
        self._pipeline, self._sink, self._parked = pipeline, sink, parked_of(sink)

    def _entries(self, choice: EntryFilter) -> Iterator[Entry]:
        after: EventId | None = None
        while some := self._parked.parked_rows(choice.selection, AT_A_TIME, after):
            after = some[-1].id
            yield from map(_entry, some)

    def _about(self, key: Sequence[str]) -> Callable[[Entry], bool]:
        spec = self._sink.spec
        values = parse_key(spec, key)
        return lambda entry: [str(value) for value in entry.kept.event.key] == [values[name] for name in spec.keys]

    def beside(self) -> Iterator[tuple[str, tuple[str, str], Sequence[Mapping[str, object]]]]:
        """How many messages of which queue are parked, and since when: their processors try them."""
        waiting = self._parked.parked_messages.waiting()
        records = [{"queue": name, "messages": of[0], "oldest": utc(of[1])} for name, of in waiting.items()]
        yield "queues", ("queue", "with parked messages"), records

    def retry(self, choice: EntryFilter, file: ExportedFile | None, say: Callable[[int], object]) -> Done:
        """Let all events be tried at once; those without an owner are tried here, if the handler is at hand."""
        left: list[Left] = []
        identity, count = self._hub(), 0
        others: list[EventId] = []
        for some in pieces(self.taken(choice, file, left)):
            events: list[EventId] = [entry.kept.id for entry in some]
            gone = [] if identity is None else [event for event in events if event.hub != identity]
            count += self._parked.hurry_parked(events)
            others += gone
        counts = {"retried": count}
        if others and (self._pipeline.sink.handler is None or is_transformed(self._pipeline)):
            counts |= {"leftToInstances": len(others)}
        elif others:
            table = handled_table(self._pipeline)
            try:
                tried = try_left(table, self._parked, others)
            finally:
                table.close()
            still = [Left(row.id.hub, row.id.partition, row.id.sequence_number, why) for row, why in tried]
            counts |= {"triedHere": len(others), "stillParked": len(still)}
            left += still
        return Done(counts, left)

    def drop(self, choice: EntryFilter, because: str) -> Done:
        """Drop all events as they are listed now; their entities go on as if they had never been."""
        check_because(because)
        some = pieces(entry.kept.id for entry in self.chosen(choice))
        return Done({"dropped": sum(self._parked.drop_parked(events, because) for events in some)})

    def _hub(self) -> str | None:
        """The identity of the hub that the pipeline reads; None, with a warning, if it is away."""
        try:
            hub = open_hub(self._pipeline.hub_url)
        except HubUnavailable as error:
            logger.warning("whether events are parked of another hub, which nobody reads, is not known: %s", error)
            return None
        identity = hub.identity
        hub.close()
        return identity


def _entry(row: ParkedRow) -> Entry:
    event, place = row.event, row.id
    record = {
        **{"hub": place.hub, "partition": place.partition, "sequenceNumber": place.sequence_number},
        **{"key": list(event.key), "tries": event.deliveries},
        "next": utc(event.next_at or row.parked_at) if row.first else None,
        **{"parkedAt": utc(row.parked_at), "reason": event.error, "enqueuedTime": utc(event.enqueued_time)},
        **body_as_json(event.body),
    }
    return Entry(
        *(place.sequence_number, event.error, row.parked_at, event.body, record, row), place.hub, place.partition
    )
