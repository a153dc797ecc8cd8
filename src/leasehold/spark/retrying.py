"""Sends rejected events through a pipeline's transform again.

Owns what of `operations.aside.rejected` needs Spark: the session, the events as a DataFrame, and the search for those
that still cannot be computed, which is the loop's (`loop/poison.py`). The transform is that of the pipeline file as it
is now, with its schema and expressions. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError

from leasehold.errors import PipelineFailed
from leasehold.hubs import open_hub
from leasehold.model import EventRange
from leasehold.operations.aside.contract import Left
from leasehold.operations.aside.rejected import Recomputed
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.set_aside import EventId, RejectedRow
from leasehold.spark.given_events import frame_of, split_by_bodies
from leasehold.spark.kept_events import event_ids, events_of_hub, kept_events, whole_rows, with_bodies, with_levels
from leasehold.spark.loop.poison import halves
from leasehold.spark.plan.batch_transform import BatchTransform
from leasehold.spark.plan.failures import FailureKind, sort_failure
from leasehold.spark.plan.options import COLUMNS
from leasehold.spark.plan.reading import HEADERS
from leasehold.spark.session.opening import open_session
from leasehold.spark.session.versions import is_connect
from leasehold.spark.table.expressions import with_rejected
from leasehold.spark.table.identities import identities_of
from leasehold.spark.table.of_file import table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NONE: Mapping[EventId, bytes] = {}


class Retransform:
    """The transform of `file` for rejected events, on the session `spark`; without one, a session of its own.

    Call it with rejected rows; it gives what `operations.aside.rejected` wants. Use it in a `with`. Raises what a run
    raises at its start where the file, the transform or the table is wrong.
    """

    def __init__(self, file: PipelineFile, spark: SparkSession | None = None) -> None:
        self._file = file
        self._own = spark is None
        self._table = table_of(file)
        self._hub = open_hub(file.hub_url)
        conf = dict(file.spark)
        master = conf.pop("master", "local[2]")
        self._spark = spark or open_session(f"leasehold rejected {file.name}", conf, master)
        try:
            self._transform = BatchTransform(file, self._spark)
            transformed = self._transform.dry_run()
            self._table.check(transformed)
            self._used = set(COLUMNS)
            if not is_connect(self._spark):
                from leasehold.spark.plan.row_wise import used_columns

                self._used = used_columns(transformed, COLUMNS)
                if file.body_format.by_headers:
                    self._used |= set(HEADERS)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Retransform:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let hub and table go, and end a session of its own."""
        self._hub.close()
        self._table.close()
        if self._own:
            with suppress(Py4JError, ConnectionError):
                self._spark.stop()

    def __call__(
        self, rows: Sequence[RejectedRow], mended: Mapping[EventId, bytes] = _NONE
    ) -> Iterator[Recomputed | Left]:
        """What the transform makes of the events of these rows, in pieces of whole events; of some by other bodies."""
        events = dict.fromkeys(row.event for row in rows)
        whole = whole_rows(rows, self._used)
        found = kept_events(list(whole.values()))
        if missing := [event for event in events if event not in whole]:
            found = pa.concat_tables([found, events_of_hub(self._hub, missing)])
        there = set(event_ids(found))
        for event in events:
            if event not in there:
                yield Left(event.hub, event.partition, event.sequence_number, self._why_lost(event))
        if not there:
            return
        levels = {name: mark.owner_level for name, mark in self._table.watermarks(self._hub.identity).items()}
        yield from self._computed(with_levels(with_bodies(found, mended), levels))

    def _why_lost(self, event: EventId) -> str:
        kept = "and the table does not keep all that the transform uses of it"
        if event.hub != self._hub.identity:
            return f"it is an event of another hub, {event.hub}, {kept}"
        return f"the hub has removed it, {kept}"

    def _computed(self, events: pa.Table) -> Iterator[Recomputed]:
        events = events.select(COLUMNS)
        good, rejected = split_by_bodies(self._transform, events)
        left = {*event_ids(good), *(() if rejected is None else event_ids(rejected))}
        if passed := [one for one in event_ids(events) if one not in left]:
            yield Recomputed(self._evaluate(good.slice(0, 0)), passed)
        poison: dict[EventId, str] = {}
        for ids, batch in self._sifted(good, poison):
            if ids:
                yield Recomputed(batch, ids)
        if poison:
            rows = _rows_of(events, list(poison))
            reasons = [f"cannot be computed: {error}" for error in poison.values()]
            told = rows.append_column("reason", pa.array(reasons, pa.string()))
            rejected = told if rejected is None else pa.concat_tables([rejected, told])
        if rejected is not None:
            yield Recomputed(with_rejected(self._evaluate(good.slice(0, 0)), rejected), event_ids(rejected))

    def _sifted(self, good: pa.Table, poison: dict[EventId, str]) -> Iterator[tuple[list[EventId], Batch]]:
        """What can be computed, each event once; what cannot goes into `poison`, with the error.

        As the loop searches (`loop/poison.py`), with another limit: these events stay as they are, and some of them
        were rejected since they could not be computed.
        """
        todo = [
            tuple(EventRange(one.hub, one.partition, 0, one.sequence_number, one.sequence_number + 1) for one in ids)
            for ids in [sorted(event_ids(good))]
            if ids
        ]
        while todo:
            some = todo.pop()
            ids = [EventId(one.hub, one.partition, one.begin) for one in some]
            try:
                batch = self._evaluate(_rows_of(good, ids))
            except Exception as error:
                failure = sort_failure(error, computing=True)
                if failure.kind is not FailureKind.COMPUTING:
                    raise
                if len(some) > 1:
                    todo += reversed(halves(some))
                    continue
                poison[ids[0]] = failure.message
                if len(poison) > self._file.transform.max_poison:
                    raise PipelineFailed(
                        f"more than {self._file.transform.max_poison} of {good.num_rows} events cannot be computed: "
                        f"{failure.message}. Those stay as they were. Mend the transform, or what it asks; or choose "
                        "fewer events, or raise [transform] max_poison"
                    ) from error
            else:
                yield ids, batch

    def _evaluate(self, events: pa.Table) -> Batch:
        frame = frame_of(self._spark, events, self._transform.read_schema(COLUMNS, inline=False))
        batch = self._table.evaluate(self._table.prepare(self._transform(frame)))
        return replace(batch, identities=identities_of(self._table.deduplication, frame))


def _rows_of(events: pa.Table, ids: Sequence[EventId]) -> pa.Table:
    places = {event: place for place, event in enumerate(event_ids(events))}
    return events.take(pa.array([places[event] for event in ids], pa.int64()))
