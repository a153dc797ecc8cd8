"""The driver's side of a handled table on Spark: it is told what tasks have computed, and commits it.

Owns what a task is to compute of a partition, and that its answer is taken only for the watermark that it was computed
under; else the driver computes by itself, as a plain process does, and so the later partitions of a spread table's
batch. Counts what it commits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from leasehold.formats.bodies import BodyReader
from leasehold.handlers.contract import Computed, EntityHandler
from leasehold.handlers.outbox import LEAVE
from leasehold.handlers.places import ReadBatch
from leasehold.handlers.settings import Spread
from leasehold.handlers.spread import check_spread
from leasehold.handlers.table import HandledTable
from leasehold.registries import RegisteredSchema
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.spark.handlers.lanes import RangeEvents
from leasehold.spark.handlers.leased import BatchLeases, batch_leases
from leasehold.spark.handlers.tasks import HandlerCall, TaskPiece

Trusts = Callable[[str, int], bool]
"""Whether a partition is held at an owner level, at this moment."""


@dataclass(slots=True)
class Caller:
    """What a handled table knows of who calls it: the owner of a partition."""

    hub: str
    partition: str
    owner_level: int
    start: int
    trusts: Trusts
    due: float = math.inf

    @property
    def trusted(self) -> bool:
        return self.trusts(self.partition, self.owner_level)

    def call_again(self, seconds: float) -> None:
        self.due = min(self.due, time.monotonic() + seconds)


class CommittingTable(HandledTable):
    """A handled table that is told what tasks have computed, and counts what it commits."""

    def __init__(self, handler: EntityHandler, url: str, spread: Spread | None, **more: Any) -> None:
        super().__init__(handler, url, spread=spread, **more)
        self._url, self._late = url, "apply" if spread is None else spread.late
        exclusive = None if spread is None else spread.exclusive
        assert exclusive is None or isinstance(exclusive, str), "HandledOnSpark refuses others"
        self._lease_store, self._scope = exclusive, f"{more['pipeline']}/{more['table']}"
        self._owned: dict[str, Caller] = {}
        self.trusts: Trusts = lambda partition, owner_level: True
        self.ahead: dict[str, tuple[Watermark, Computed]] = {}
        self.result = BatchResult()
        self._schemas: dict[int, RegisteredSchema | None] = {}

    def read_by(self, reader: BodyReader) -> None:
        """Give the handler the columns that `reader` finds in bodies. Raises `ConfigError` if they do not fit."""
        spec = self.sink.spec
        check_spread(spec.spread, spec.sequence_by, self._late, reader.schema)
        self._read_by(reader)

    @property
    def keys(self) -> BodyReader:
        """Reads the columns that name an entity, and no others."""
        return self._reader.only(self._handler.keys)

    @property
    def schema(self) -> pa.Schema:
        """The columns that the handler is given."""
        return self._reader.schema

    @property
    def leases_in_tasks(self) -> bool:
        """Whether tasks can take leases for a batch, if any are taken."""
        return self._exclusive is None or self._exclusive.takes_many

    def leases(self, *, needed: bool) -> AbstractContextManager[BatchLeases | None]:
        """A block in which a batch is computed and committed, with the session of its leases, if any are `needed`."""
        return batch_leases(self._lease_store if needed else None, self._scope)

    def call(self, rounds: int = 1, leases: BatchLeases | None = None) -> HandlerCall:
        """How tasks call the handler, if they run in this many rounds, one behind the other."""
        from pyspark import cloudpickle

        last = 1 if self._on_failure == "discard" else self._retries.deliveries
        call = HandlerCall(
            *(self._handler, self._reader.given(self._schemas), self._state, self._url, self.sink.spec, last),
            emits=self._sender is not None,
            related=self._related,
            late=self._late,
            leases=leases,
        )
        timeout = self._calls.timeout
        if timeout is None:
            return call
        at_most = max(timeout, self._calls.at_most / 2 / rounds)
        pickled: bytes = cloudpickle.dumps(self._handler)  # type: ignore[no-untyped-call]
        return replace(call, timeout=timeout, at_most=at_most, pickled=pickled)

    def sharing(self) -> AbstractContextManager[None]:
        """A block in which what hangs in the driver takes half of a batch's time, all partitions together."""
        return self._calls.sharing()

    def piece(self, lane: RangeEvents) -> tuple[Watermark, TaskPiece] | None:
        """What a task is to compute of a partition, and under which watermark; None where there is nothing."""
        if not self._is_owner(lane):
            return None
        mark = self._watermark(lane)
        is_new = self._is_new(lane, mark)
        new = tuple(event for event in lane if is_new(event.sequence_number))
        if not new:
            return None
        self._schemas |= self._reader.schemas_of(pa.array([event.body for event in new], pa.binary()))
        waiting = frozenset(self._waiting(lane, mark) if self._spread is None else ())
        return mark, TaskPiece(lane.hub, lane.partition, lane.owner_level, new, waiting, lane.batch_id)

    def take(self, lane: RangeEvents) -> float:
        """Commit a partition's events, or try what is parked. When to call again, by the monotonic clock."""
        caller = Caller(lane.hub, lane.partition, lane.owner_level, lane.start, self.trusts)
        self._owned[lane.partition] = caller
        try:
            self.on_events(lane, caller)
        except BaseException:
            self._not_as_computed()
            raise
        if self.ahead and self._spread is not None:
            mark = self._watermark(lane)
            if mark.owner_level != lane.owner_level or mark.sequence_number < lane.last:
                self._not_as_computed()
        return caller.due

    def leave(self) -> None:
        """What was emitted is sent, for a moment, before the partitions are given up."""
        until = time.monotonic() + LEAVE
        while self._owned and self._sender is not None:
            _, owner = self._owned.popitem()
            self._sender.leave(owner, max(0.0, until - time.monotonic()))

    def _id_of(self, batch: ReadBatch) -> str:
        return batch.batch_id if isinstance(batch, RangeEvents) else ""

    def _compute(self, batch: ReadBatch, mark: Watermark, again: int) -> Computed:
        under, done = self.ahead.pop(batch.partition, (None, None))
        if done is not None and under == mark and under.changes == mark.changes:
            return done
        if batch.last > mark.sequence_number:
            self._not_as_computed()
        return super()._compute(batch, mark, again)

    def _not_as_computed(self) -> None:
        """A partition's events are not committed as tasks have computed them: rule 5 of `handlers.spread`."""
        if self._spread is not None:
            self.ahead.clear()

    def counted(self) -> BatchResult:
        """What was committed since this was called last."""
        result, self.result = self.result, BatchResult()
        return result

    def _note(self, result: BatchResult, seconds: float) -> None:
        """Counted here: the batch has other partitions."""
        self.result = self.result.plus(result)
