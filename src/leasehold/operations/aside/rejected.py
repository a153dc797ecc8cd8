"""Rejected rows, for an operator, and the notes of what was dropped.

Owns the work on any number of events: in pieces of whole events, each piece read, transformed and brought into the
table by itself. The rules of a single event are the sink's (`sinks.set_aside`). What needs the transform is
handed in. Where a handler fills the table there is no transform: its events, dead letters among them, are parked again
with the place and time that they came with, as if no try had been made (rule 8), and their owners do the rest. Whoever
stops between listing and trying is told by the sink what was changed meanwhile, and leaves that alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING

from leasehold.handlers.keys import key_reader
from leasehold.handlers.of_file import is_transformed
from leasehold.operations.aside.contract import (
    AT_A_TIME,
    Aside,
    Done,
    Entry,
    EntryFilter,
    Left,
    Survey,
    check_because,
    pieces,
    seconds_of,
)
from leasehold.operations.aside.exported import ExportedFile, body_as_bytes, body_as_json, key_values
from leasehold.operations.aside.reasons import ReasonGroups
from leasehold.pipeline_file import PipelineFile
from leasehold.printable import utc
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.forgetting import is_of, parse_key
from leasehold.sinks.features import BOOKKEEPING, offered
from leasehold.sinks.rules.parking import ParkedEvent
from leasehold.sinks.set_aside import EventId, ParkedAgain, RejectedRow, RetryResult, Selection

if TYPE_CHECKING:
    from leasehold.sinks.rules.batch import Batch

ALL_OF_THEM = 2**31
MOST_REASONS = 50_000
"""Reasons that are read at once: with their values in them there may be as many as rows."""
NO_KEY = "its body does not say which entity it is about"
NO_CALL = "the transform was to make something else of it before the handler was called: send it anew"
IS_A_ROW = (
    "the table keeps the row that the transform has made of the event, and not the event: mend the transform or the "
    "table, and try it again as it is"
)
NO_BODY = "a body is wanted in place of the one that it has"
ANOTHER = "the mended body is about another entity than the one before: send that as an event of its own"


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What the transform makes of `events` now."""

    batch: Batch
    events: Sequence[EventId]


Recompute = Callable[[Sequence[RejectedRow], Mapping[EventId, bytes]], Iterable[Recomputed | Left]]
"""Reads rejected events and sends them through the transform, some with another body, in one piece or several, each
event in one. What is left cannot be computed again: neither the hub nor the table has all that the transform needs."""
Transform = Callable[[PipelineFile], AbstractContextManager[Recompute]]


class RejectedAside(Aside):
    """The rejected rows of a pipeline's table. Trying them again takes `transform`, but where a handler fills it."""

    kind, noun = "rejected", "rejected row"
    names = ("hub", "partition", "sequenceNumber", "place", "rejectedAt")

    def __init__(self, pipeline: PipelineFile, sink: Sink, transform: Transform) -> None:
        self.where = pipeline.name
        self._pipeline, self._sink, self._transform = pipeline, sink, transform
        self._rows = sink.rejected_rows

    def _entries(self, choice: EntryFilter) -> Iterator[Entry]:
        return self._listed(choice.selection, AT_A_TIME)

    def _listed(self, selection: Selection, size: int) -> Iterator[Entry]:
        """Page by page; the rows of one event stay together, however many they are."""
        after: EventId | None = None
        while some := self._rows.rows(selection, size, after):
            last = some[-1].event
            if len(some) == size and some[0].event == last:
                size *= 2  # it may have more
                continue
            if len(some) == size:
                some = [row for row in some if row.event != last]
            after = some[-1].event
            yield from map(entry_of, some)

    def _about(self, key: Sequence[str]) -> Callable[[Entry], bool]:
        values = parse_key(self._sink.spec, key)
        return lambda entry: is_of(entry.kept, values)

    def survey(self, choice: EntryFilter, limit: int) -> Survey:
        """Counted by the database, where it can choose, and the reasons are not too many to be read at once."""
        reasons = self._rows.reasons(choice.selection, MOST_REASONS) if choice.is_of_sink else []
        if not choice.is_of_sink or len(reasons) == MOST_REASONS:
            return super().survey(choice, limit)
        groups = ReasonGroups()
        for one in reasons:
            if choice.has_reason(one.reason):
                groups.add(one.reason, seconds_of(one.first), seconds_of(one.last), one.rows)
        if choice.selection.reason == choice.reason:
            first = [entry_of(row) for row in self._rows.rows(choice.selection, limit)]
        else:
            first = [*islice(filter(choice.has, self._listed(choice.selection, limit)), limit)]
        return Survey(groups.total, list(groups), first)

    def beside(self) -> Iterator[tuple[str, tuple[str, str], Sequence[Mapping[str, object]]]]:
        """The events that a person has noted to be skipped, and that no batch has come to yet."""
        skips = offered(self._sink, BOOKKEEPING)
        notes = () if skips is None else skips.skip_notes()
        yield (
            "toSkip",
            ("event", "to be skipped"),
            [
                {
                    **dict(zip(("hub", "partition", "sequenceNumber"), note.event, strict=True)),
                    **{"because": note.because, "notedBy": note.noted_by, "notedAt": utc(note.noted_at)},
                    **body_as_json(note.body),
                }
                for note in notes
            ],
        )

    def refusal(self, entry: Entry, body: bytes | None) -> str | None:
        """A row that a transform has made is no event, and an event stays its entity's."""
        if entry.kept.source is None:
            return IS_A_ROW
        if body is None:
            return NO_BODY
        names = self._sink.spec.keys
        before, now = key_values(entry.body, names), key_values(body, names)
        return ANOTHER if any(before[name] != now[name] for name in before.keys() & now.keys()) else None

    def retry(self, choice: EntryFilter, file: ExportedFile | None, say: Callable[[int], object]) -> Done:
        """Bring what the transform, or the handler, makes of the events now into the table, in place of the rows."""
        left: list[Left] = []
        by_event = groupby(self.taken(choice, file, left), key=lambda entry: entry.kept.event)
        some: Iterator[list[Entry]] = (list(entries) for _, entries in by_event)
        if self._pipeline.sink.handler is not None:
            return Done(asdict(self._parked_again(some, left)), left)
        if (first := next(some, None)) is None:
            return Done(asdict(RetryResult()), left)  # without a start of Spark
        with self._transform(self._pipeline) as recompute:
            return Done(asdict(tried_again(self._sink, chain([first], some), recompute, left, say)), left)

    def _parked_again(self, events: Iterable[list[Entry]], untouched: list[Left]) -> ParkedAgain:
        keys_of, called_only = key_reader(self._pipeline), is_transformed(self._pipeline)
        result = ParkedAgain()
        for some in pieces(entry for entries in events for entry in entries):
            bodies = [body_as_bytes(entry.body if entry.mended is None else entry.mended) or b"" for entry in some]
            again: list[tuple[RejectedRow, ParkedEvent]] = []
            for entry, body, key in zip(some, bodies, keys_of(bodies), strict=True):
                row, source = entry.kept, _source(entry.kept)
                if None in key:
                    untouched.append(entry.left(NO_KEY))
                elif called_only and source.get("deliveries") is None:
                    untouched.append(entry.left(NO_CALL))
                else:
                    at = seconds_of(source.get("enqueuedTime")) or seconds_of(row.rejected_at)
                    again.append((row, ParkedEvent(key, body, entry.number, at)))
            if again:
                result = result.plus(self._rows.park(again))
        return result

    def drop(self, choice: EntryFilter, because: str) -> Done:
        """Drop the rows as they are listed now, and note each without its body."""
        check_because(because)
        some = pieces(entry.kept for entry in self.chosen(choice))
        return Done({"dropped": sum(self._rows.drop(rows, because) for rows in some)})


class DroppedAside(Aside):
    """The notes of the rejected rows and parked events that a person has dropped, the latest first."""

    kind, noun = "dropped", "dropped row"
    names = ("hub", "partition", "sequenceNumber", "place", "droppedAt")

    def __init__(self, pipeline: PipelineFile, sink: Sink) -> None:
        self.where, self._spec = pipeline.name, sink.spec
        self._rows = sink.rejected_rows

    def _entries(self, choice: EntryFilter) -> Iterator[Entry]:
        for one in self._rows.dropped(ALL_OF_THEM):
            record = {
                **_place(one.event, one.place),
                **{"reason": one.reason, "rejectedAt": one.rejected_at},
                **{"droppedFor": one.dropped_for, "droppedAt": one.dropped_at},
            }
            at, event = seconds_of(one.dropped_at), one.event
            yield Entry(event.sequence_number, one.reason, at, None, record, one, event.hub, event.partition)

    def _about(self, key: Sequence[str]) -> Callable[[Entry], bool]:
        return lambda entry: False  # a note has no body


def tried_again(
    sink: Sink,
    events: Iterable[list[Entry]],
    recompute: Recompute,
    untouched: list[Left],
    say: Callable[[int], object] = lambda rows: None,
) -> RetryResult:
    """Try events again, each with its entries. `say` is told how many entries have been gone through."""
    total, seen = RetryResult(), 0
    for some in _whole_events(events):
        mended = {entry.kept.event: entry.mended for entry in some if entry.mended is not None}
        for part in recompute([entry.kept for entry in some], mended):
            if isinstance(part, Left):
                untouched.append(part)
            else:
                result = sink.apply(replace(part.batch, again=part.events)).again
                total = total if result is None else total.plus(result)
        seen += len(some)
        say(seen)
    return total


def _whole_events(events: Iterable[list[Entry]]) -> Iterator[list[Entry]]:
    some: list[Entry] = []
    for entries in events:
        if some and len(some) + len(entries) > AT_A_TIME:
            yield some
            some = []
        some += entries
    if some:
        yield some


def entry_of(row: RejectedRow) -> Entry:
    """A rejected row as an operator sees it."""
    event, at = row.event, seconds_of(row.rejected_at)
    record = {
        **_place(event, row.place),
        **{"rejectedAt": row.rejected_at, "reason": row.reason, **body_as_json(row.body), "source": row.source},
    }
    return Entry(event.sequence_number, row.reason, at, row.body, record, row, event.hub, event.partition)


def _place(event: EventId, place: int) -> dict[str, object]:
    return {"hub": event.hub, "partition": event.partition, "sequenceNumber": event.sequence_number, "place": place}


def _source(row: RejectedRow) -> dict[str, object]:
    try:
        found = json.loads(row.source or "{}")
    except (ValueError, RecursionError):  # somebody else has written it
        return {}
    return found if isinstance(found, dict) else {}
