"""A sink whose batches are staged in pieces, as tasks would, before they are applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from leasehold.sinks.base import LevelOf
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table import BatchResult
from leasehold.sinks.staged import StagedBatch, StageReceipt, new_token, shape_of


def _taken(column: Any, rows: Sequence[int]) -> Any:
    return None if column is None else column.take(pa.array(rows, pa.int64()))


def pieces_of(batch: Batch, rows: Sequence[int], aside: Sequence[int], size: int) -> Iterator[Batch]:
    """The rows at these places, this many at a time, with the ranges of the batch."""
    for start in range(0, max(len(rows), len(aside), 1), size):
        some, others = rows[start : start + size], aside[start : start + size]
        yield Batch(
            batch.rows.take(pa.array(some, pa.int64())),
            _taken(batch.rejected, others),
            _taken(batch.sequence_by, some),
            _taken(batch.delete, some),
            batch.ranges,
        )


def staged(sink: PostgresSink, batch: Batch, *, tasks: int = 2, size: int = 3) -> StagedBatch:
    """Stage a batch by this many tasks, each with the events of some partitions in pieces of a few rows."""
    stager, token = sink.stager(), new_token()
    assert stager is not None
    receipts: list[StageReceipt] = []
    for task in range(tasks):
        rows, aside = (
            [
                place
                for place, partition in enumerate([] if table is None else table["partition"].to_pylist())
                if sum(partition.encode()) % tasks == task
            ]
            for table in (batch.rows, batch.rejected)
        )
        receipts.append(stager.stage(token, task, pieces_of(batch, rows, aside, size)))
    return StagedBatch(token, shape_of(batch), tuple(receipts))


class StagedSink(PostgresSink):
    """The table, each of whose batches is staged before it is applied."""

    def apply(self, batch: Batch, level_of: LevelOf | None = None) -> BatchResult:
        if batch.identities is not None or batch.read_under is not None:  # these pass through the driver
            return super().apply(batch, level_of)
        return self.apply_staged(staged(self, batch), level_of)
