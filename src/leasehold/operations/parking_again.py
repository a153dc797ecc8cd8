"""Rejected events of a handler's table, dead letters among them: a person has them tried again.

Owns which of them can be, and as what: with the body, the place and the time that they came with, and as if no try had
been made. What becomes of them then is the owner's: they are parked (`sinks.beside.set_aside`, rule 8).

Concurrency: beside running instances, and beside others who do the same. Killed, or stopped for a minute, at any line:
the pieces that were done are parked, of the others nothing is changed; run it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from leasehold.handlers.keys import key_reader
from leasehold.handlers.of_file import is_transformed
from leasehold.operations.rejected import LostEvent, pieces
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks.beside.set_aside.contract import ParkedAgain, RejectedRow, RejectedRows, Selection
from leasehold.sinks.rules.parking import ParkedEvent

NO_KEY = "its body does not say which entity it is about"
NO_CALL = "the transform was to make something else of it before the handler was called: send it anew"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of all events that were chosen."""

    result: ParkedAgain
    lost: tuple[LostEvent, ...]


class Replays:
    """The rejected events of a pipeline file with a handler, as parked events. Raises `ConfigError`."""

    def __init__(self, file: PipelineFile) -> None:
        self._keys_of = key_reader(file)
        self._called_only = is_transformed(file)

    def park_all(self, rows: RejectedRows, selection: Selection) -> Replayed:
        """Park all events of a selection again. A table that a handler fills is in a sink that parks events."""
        result, lost = ParkedAgain(), list[LostEvent]()
        for some in pieces(rows, selection):
            events = []
            for row, one in self._events(some):
                if isinstance(one, ParkedEvent):
                    events.append((row, one))
                else:
                    lost.append(LostEvent(row.event, one))
            if events:
                result = result.plus(rows.park(events))
        return Replayed(result, tuple(lost))

    def _events(self, rows: Sequence[RejectedRow]) -> Iterator[tuple[RejectedRow, ParkedEvent | str]]:
        """Each with the event that it is, or with why it cannot be tried again."""
        bodies = [row.body if isinstance(row.body, bytes) else str(row.body).encode() for row in rows]
        for row, body, key in zip(rows, bodies, self._keys_of(bodies), strict=True):
            source = _source(row)
            if None in key:
                yield row, NO_KEY
            elif self._called_only and source.get("deliveries") is None:
                yield row, NO_CALL
            else:
                yield row, ParkedEvent(key, body, row.event.sequence_number, _enqueued(row, source))


def _source(row: RejectedRow) -> dict[str, object]:
    try:
        found = json.loads(row.source or "{}")
    except (ValueError, RecursionError):  # somebody else has written it
        return {}
    return found if isinstance(found, dict) else {}


def _enqueued(row: RejectedRow, source: dict[str, object]) -> float:
    """When the hub received it; of one that was set aside without a word of that, when that was."""
    for text in (source.get("enqueuedTime"), row.rejected_at):
        try:
            return datetime.fromisoformat(str(text)).timestamp()
        except ValueError:
            continue
    return 0.0
