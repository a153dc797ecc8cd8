"""One look at the group of a pipeline file, from hub, stores and table alone.

Owns what of a look the dashboard wants, and asks for rejected rows only where there are some: when their number has
changed, and else every half minute. A group is opened at the first look, and until that succeeds at each: a
dashboard may be started before the stores. For one thread.
"""

from __future__ import annotations

import logging

from leasehold.clock import Clock
from leasehold.dashboard.view import RejectedRow, Seen, Verdict, body_text
from leasehold.errors import LeaseholdError
from leasehold.operations.group_watch import GroupSnapshot, GroupWatch
from leasehold.operations.pipeline_group import open_group
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks import open_sink, set_aside
from leasehold.sinks.set_aside import KeepsRejected, Selection

logger = logging.getLogger(__name__)

SHOWN_ROWS = 50
_ROWS_AGAIN = 30.0


class Looking:
    """Looks at the group of `pipeline`."""

    def __init__(self, pipeline: PipelineFile, clock: Clock) -> None:
        self._pipeline, self._clock = pipeline, clock
        self._watch: GroupWatch | None = None
        self._rows: tuple[RejectedRow, ...] = ()
        self._rows_of: tuple[int, float] = (0, 0.0)

    def __call__(self) -> Seen:
        """What there is now. Raises the `LeaseholdError` of what is away or refused."""
        if self._watch is None:
            self._watch = GroupWatch(open_group(self._pipeline), clock=self._clock)
        look = self._watch.look()
        return _seen(look, self._rejected(0 if look.table is None else look.table.rejected))

    def _rejected(self, count: int) -> tuple[RejectedRow, ...]:
        """The first of the rejected rows, as they were lately."""
        now = self._clock.monotonic()
        known, until = self._rows_of
        if count != known or (count and now >= until):
            self._rows_of = count, now + _ROWS_AGAIN
            try:
                self._rows = self._listed() if count else ()
            except LeaseholdError as error:
                logger.warning("%s: its rejected rows cannot be listed: %s", self._pipeline.name, error)
        return self._rows

    def _listed(self) -> tuple[RejectedRow, ...]:
        sink = open_sink(self._pipeline.sink_url, self._pipeline.table_spec())
        try:
            rows = sink.rejected_rows.rows(Selection(), SHOWN_ROWS) if isinstance(sink, KeepsRejected) else []
        finally:
            sink.close()
        return tuple(map(_shown, rows))


def _shown(row: set_aside.RejectedRow) -> RejectedRow:
    event = row.event
    return RejectedRow(
        event.partition, event.sequence_number, row.reason, body_text(row.body), row.rejected_at, event.hub
    )


def _seen(look: GroupSnapshot, rows: tuple[RejectedRow, ...]) -> Seen:
    judged = {one.progress.partition: one.judgement for one in look.partitions}
    return Seen(
        look.at,
        look.progress,
        look.times,
        expiration=look.watched.expiration,
        rejected=None if look.table is None else look.table.rejected,
        rows=rows,
        verdicts={partition: Verdict(one.verdict.name.lower(), one.why) for partition, one in judged.items()},
    )
