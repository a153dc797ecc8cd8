"""A loop and a table, as each sees the other.

Owns what a loop has to know of a table that it fills (`MetTable`), what a table asks of a batch of a loop
(`LoopBatch`), and what both call a batch (`batch_id`). So neither needs the other's code: `leasehold.spark.loop`
imports this room, and is imported by none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from leasehold.model import EventRange
from leasehold.notices import Notice
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import TableSpec, folded
from leasehold.spark.table.expressions import Prepared
from leasehold.spark.table.identities import Deduplication

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

T = TypeVar("T")
Collect = Callable[["DataFrame"], "pa.Table"]
"""What computes the rows of a DataFrame, as `versions.to_arrow` does."""


def batch_id(ranges: Sequence[EventRange]) -> str:
    """A name of 32 hexadecimal digits that is the same in every process, and of no other ranges or levels."""
    told = [[one.hub, one.partition, one.owner_level, one.begin, one.end] for one in sorted(ranges)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class MetTable:
    """An entity table as a loop meets it: what it is, whose, and ways to ask for its identity and watermarks.

    `noted` are the events that it leaves out, by partition of a hub.
    """

    spec: TableSpec
    identity: Callable[[], str]
    watermarks: Callable[[str], Mapping[str, Watermark]]
    noted: Callable[[str], Mapping[str, frozenset[int]]]

    def is_same(self, other: MetTable) -> bool:
        """Whether both are one table: a name may be in two databases, and stand with its schema or alone."""
        return folded(self.spec.called.name) == folded(other.spec.called.name) and self.identity() == other.identity()


class EvaluatesRows(Protocol):
    """What a table does for the evaluation of a loop's batches: see `EntityTable`."""

    @property
    def deduplication(self) -> Deduplication | None: ...

    def prepare(self, df: DataFrame) -> Prepared: ...

    def evaluate(self, prepared: Prepared, collect: Collect = ...) -> Batch: ...


class LoopBatch(Protocol):
    """A batch of a loop, as a table sees it: see `leasehold.spark.loop.batch.MicroBatch`."""

    events: DataFrame
    ranges: tuple[EventRange, ...]
    level_of: Callable[[str, str], int | None]
    tell: Callable[[Notice], None]

    def rows(self, table: EvaluatesRows, df: DataFrame) -> Batch:
        """What is to be written of `df`, evaluated now, with what its tasks have set aside. Raises `StaleBatch`."""
        ...

    def with_table(self, table: MetTable, work: Callable[[], T]) -> T | None:
        """What `work` does with the batch for a table; None, and no error, where the batch is abandoned."""
        ...

    def end_apply(self, table: MetTable) -> None:
        """The table has committed the batch."""
        ...
