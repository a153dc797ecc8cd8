"""Tasks bring the rows of a large batch into the table's database by themselves; the driver gets their receipts.

Owns the line from which on a batch goes this way, and the way back: wherever it does not work out (tasks that cannot
reach the database, a user who may not, rows that do not fit), the batch is evaluated once more and its rows pass
through the driver, which finds the error, if it is one, and says it. Then tasks are left alone for some minutes.

Concurrency: Spark may run a task several times, at once or later, and kill it at any line: see
`leasehold.sinks.staged`. A receipt that Spark returns is of an attempt that has committed all of its rows.
"""

from __future__ import annotations

import json
import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from leasehold.errors import LeaseholdError, SinkError
from leasehold.model import EventRange
from leasehold.sinks.base import Sink, Stager
from leasehold.sinks.features import STAGING, features_of, offered, require
from leasehold.sinks.rules.batch import Identities
from leasehold.sinks.staged import StagedBatch, new_token, receipt_of, shape_of
from leasehold.spark.session.versions import arrow_schema, schema_of, to_arrow
from leasehold.spark.table.expressions import Prepared, Reading

logger = logging.getLogger(__name__)

PAUSE = 300.0
"""Seconds for which no task stages anything after one could not."""
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class _Told:
    """What a task tells: its receipt, or why there is none. As JSON text."""

    receipt: str | None
    failure: str | None = None

    def text(self) -> str:
        return json.dumps([self.receipt, self.failure])


@dataclass(frozen=True, slots=True)
class Beside:
    """What is asked once the tasks have staged the rows of a batch; whatever it raises gives the batch up.

    `identities` gives what its events are known by. `rejected` gives, with the number of rows, the events that are set
    aside beside them; the driver stages those. `check` refuses a batch that is not to be applied.
    """

    identities: Callable[[], Identities | None]
    rejected: Callable[[int], pa.Table | None] = lambda _: None
    check: Callable[[StagedBatch], object] = lambda _: None


class Staging:
    """Stages the batches of one table that have at least `stage_from` events. May be used by several threads.

    With `most`, no more than this many tasks stage a batch, each on a connection that it closes at its end.
    """

    def __init__(
        self,
        sink: Sink,
        stage_from: int | None,
        most: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink, self._stage_from, self._most, self._now = sink, stage_from, most, now
        self._stager: Stager | None = None
        self._paused_until = float("-inf")

    def takes(self, events: int) -> bool:
        """Whether a batch of this many events is to be staged, if the database lets us."""
        wanted = self._stage_from is not None and events >= self._stage_from and STAGING in features_of(self._sink)
        return wanted and self._now() >= self._paused_until

    def stage(
        self,
        prepared: Prepared,
        reading: Reading,
        ranges: Sequence[EventRange] | None,
        beside: Beside,
    ) -> StagedBatch | None:
        """Evaluate rows and stage them, by one action of Spark; None where that does not work out.

        Without `ranges` they go from the first to the last row of each partition. Raises what the evaluation and
        `beside` raise.
        """
        stager = self._stager = self._stager or require(self._sink, STAGING, "stage_from").stager()
        if stager is None:
            self._paused_until = self._now() + PAUSE
            return None
        token = new_token()
        try:
            given = None if ranges is None else tuple(ranges)
            df = prepared.df if self._most is None else prepared.df.coalesce(self._most)
            task = _task(stager, token, reading, given, keep=self._most is None)
            work = df.mapInArrow(task, "told string")
            told = [_Told(*json.loads(text)) for text in to_arrow(work).column(0).to_pylist()]
            if failures := [one.failure for one in told if one.failure is not None]:
                self._pause(failures, len(told))
                self._discard(token)
                return None
            schema = arrow_schema(schema_of(prepared.df))
            shape = shape_of(replace(reading.batch_of(schema.empty_table()), ranges=given))
            receipts = [receipt_of(one.receipt) for one in told if one.receipt is not None]
            if (others := beside.rejected(sum(one.rows for one in receipts))) is not None:
                number = 1 + max((one.task for one in receipts), default=-1)
                try:
                    receipts.append(stager.stage(token, number, [replace(shape, rejected=others)]))
                finally:
                    if self._most is not None:
                        stager.close()
            batch = StagedBatch(token, replace(shape, identities=beside.identities()), tuple(receipts))
            beside.check(batch)
        except BaseException:
            self._discard(token)
            raise
        return batch

    def _pause(self, failures: Sequence[str], tasks: int) -> None:
        self._stager, self._paused_until = None, self._now() + PAUSE
        logger.warning(
            "%d of %d tasks could not stage their rows, which pass through the driver for the next %d s: %s",
            len(failures),
            tasks,
            PAUSE,
            failures[0],
        )

    def _discard(self, token: str) -> None:
        """Remove what was staged under this token, as far as that can be done now."""
        if (sink := offered(self._sink, STAGING)) is not None:
            with suppress(SinkError):
                sink.discard_staged(token)


def _task(stager: Stager, token: str, reading: Reading, ranges: tuple[EventRange, ...] | None, *, keep: bool) -> Any:
    """What a task does with the rows it has computed; `keep` says whether its connection stays for the next task."""
    given = pickle.dumps(stager)  # read below: what it needs to import may not be there

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        pieces = (replace(reading.batch_of(pa.Table.from_batches([one])), ranges=ranges) for one in batches)
        try:
            mine: Stager = pickle.loads(given)  # noqa: S301 - the driver's own
            try:
                told = _Told(mine.stage(token, context.partitionId(), pieces).text())
            finally:
                if not keep:
                    mine.close()
        except (LeaseholdError, pa.ArrowException, OSError, ImportError) as error:
            told = _Told(None, f"{type(error).__name__}: {error}"[:_LONGEST])
        yield pa.RecordBatch.from_arrays([pa.array([told.text()], pa.string())], names=["told"])

    return stage
