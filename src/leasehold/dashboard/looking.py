"""One look at the group of a pipeline file, from hub, stores and table alone.

Owns what of a look the dashboard wants, and asks for rejected rows and parked events only where there are some: when
their number or the next retry has changed, and else every half minute. A group is opened at the first look, and until
that succeeds at each: a dashboard may be started before the stores. For one thread.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from leasehold.clock import Clock
from leasehold.dashboard.view import PartitionVerdict, PipelineLook, ShownParked, ShownRejected, body_text
from leasehold.errors import LeaseholdError
from leasehold.operations.group_watch import GroupSnapshot, GroupWatch
from leasehold.operations.pipeline_group import open_group
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks import set_aside
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.parking.contract import ParkedRow
from leasehold.sinks.features import STATES, offered
from leasehold.sinks.set_aside import Selection, SetAsideCounts

logger = logging.getLogger(__name__)

SHOWN_ROWS = 50
_AGAIN = 30.0


class Looking:
    """Looks at the group of `pipeline`."""

    def __init__(self, pipeline: PipelineFile, clock: Clock) -> None:
        self._pipeline, self._clock = pipeline, clock
        self._watch: GroupWatch | None = None
        self._rows: tuple[ShownRejected, ...] = ()
        self._parked: tuple[ShownParked, ...] = ()
        self._of: tuple[SetAsideCounts, float] = (SetAsideCounts(), 0.0)

    def __call__(self) -> PipelineLook:
        """What there is now. Raises the `LeaseholdError` of what is away or refused."""
        if self._watch is None:
            self._watch = GroupWatch(open_group(self._pipeline), clock=self._clock)
        look = self._watch.look()
        self._list(look.set_aside or SetAsideCounts())
        return _seen(look, self._rows, self._parked)

    def _list(self, counts: SetAsideCounts) -> None:
        """Know the first of the rejected rows and parked events, as they were lately."""
        now = self._clock.monotonic()
        known, until = self._of
        if counts == known and (counts == SetAsideCounts() or now < until):
            return
        self._of = counts, now + _AGAIN
        try:
            sink = self._pipeline.open_tables()
            try:
                self._rows = tuple(_shown_of(sink) if counts.rejected else ())
                self._parked = tuple(map(_waiting, _parked_rows(sink) if counts.parked else ()))
            finally:
                sink.close()
        except LeaseholdError as error:
            logger.warning("%s: what is set aside cannot be listed: %s", self._pipeline.name, error)


def _shown_of(sink: Sink) -> Iterator[ShownRejected]:
    """The first rejected rows; of several tables some of each, whose names stand before the reasons."""
    tables = sink.tables
    for one in tables:
        for row in one.rejected_rows.rows(Selection(), max(1, SHOWN_ROWS // len(tables))):
            shown = _shown(row)
            yield shown if len(tables) == 1 else replace(shown, reason=f"{one.spec.called}: {shown.reason}")


def _parked_rows(sink: Sink) -> Sequence[ParkedRow]:
    keeps = offered(sink, STATES)
    return () if keeps is None else keeps.parked_rows(Selection(), SHOWN_ROWS)


def _shown(row: set_aside.RejectedRow) -> ShownRejected:
    event = row.event
    return ShownRejected(
        *(event.partition, event.sequence_number, row.reason, body_text(row.body), row.rejected_at, event.hub),
        traceback=_traceback(row.source),
    )


def _traceback(source: str | None) -> str:
    """The traceback that a dead letter has beside its body; empty for other rows."""
    try:
        said = json.loads(source or "null")
    except (ValueError, RecursionError):
        return ""
    found = said.get("traceback") if isinstance(said, dict) else None
    return found if isinstance(found, str) else ""


def _waiting(row: ParkedRow) -> ShownParked:
    event, its = row.event, row.id
    following = (event.next_at or row.parked_at) if row.first else None
    return ShownParked(
        *(its.partition, its.sequence_number, ", ".join(map(str, event.key)), event.error, body_text(event.body)),
        *(event.deliveries, row.parked_at, following, its.hub),
    )


def _seen(look: GroupSnapshot, rows: tuple[ShownRejected, ...], parked: tuple[ShownParked, ...]) -> PipelineLook:
    judged = {one.progress.partition: one.judgement for one in look.partitions}
    return PipelineLook(
        look.at,
        look.progress,
        look.times,
        expiration=look.watched.expiration,
        aside=look.set_aside,
        rows=rows,
        parked=parked,
        verdicts={partition: PartitionVerdict(one.verdict.name.lower(), one.why) for partition, one in judged.items()},
    )
