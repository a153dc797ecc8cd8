"""Clears what is old beside an entity table, a little after each batch.

Owns when the next step is due; what is old, and by which clock, is the sink's to say (`sinks.beside.forgetting`).
Promises that a step that fails fails nothing else: it is said once, and tried again later.

Concurrency: every instance of a pipeline does this for the same table, each step in a short transaction of its own.
Whoever stops in it for a minute holds up the others as a batch would; killed at any line, it has cleared a step or not.
"""

from __future__ import annotations

import logging

from leasehold.errors import LeaseholdError
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks import open_sink
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.forgetting import Cleared, Retention
from leasehold.sinks.features import BOOKKEEPING, require

logger = logging.getLogger(__name__)

SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 3600.0
"""Seconds between two rounds, at least and at most; a hundredth of the shortest retention in between."""


def clearings_of(file: PipelineFile) -> list[Clearing]:
    """What clears each table of a file that does not keep all for ever."""
    tables = ((one, one.kept_for()) for one in file.tables)
    return [Clearing(open_sink(one.sink_url, one.table_spec()), kept_for) for one, kept_for in tables if kept_for]


class Clearing:
    """Clears the table of `sink` by `retention`. For one thread. Raises `ConfigError` for a sink that cannot forget."""

    def __init__(self, sink: Sink, retention: Retention) -> None:
        retentions = "rejected_retention, memory_retention and tombstone_retention"
        self._sink = require(sink, BOOKKEEPING, retentions, f"Leave out {retentions}, or take SQLite or Postgres")
        self._retention = retention
        given = [each for each in (retention.rejected, retention.memories, retention.tombstones) if each is not None]
        self._pause = min(max(min(given, default=LONGEST_PAUSE) / 100, SHORTEST_PAUSE), LONGEST_PAUSE)
        self._due = 0.0
        self._after: tuple[object, ...] | None = None

    def step(self, now: float) -> Cleared | None:
        """One step, if one is due at `now`: seconds of a clock that never goes back.

        Returns None if nothing was due, or the step failed.
        """
        if not self._retention or now < self._due:
            return None
        try:
            cleared = self._sink.clear(self._retention, after=self._after)
        except LeaseholdError as error:
            logger.warning("what is old beside the table is cleared later: %s", error)
            self._due = now + self._pause
            return None
        self._after = cleared.after
        self._due = now if cleared.more else now + self._pause
        return cleared
