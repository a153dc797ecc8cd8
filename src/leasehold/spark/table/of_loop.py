"""A loop and a table, as each sees the other.

Owns what a loop has to know of a table that it fills (`MetTable`), and what a table asks of a batch of a loop
(`LoopBatch`). So neither needs the other's code: `leasehold.spark.loop` imports this room, and is imported by none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from leasehold.model import EventRange
from leasehold.notices import Notice
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table import folded

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MetTable:
    """An entity table as a loop meets it: its name, whose it is, and ways to ask for its identity and watermarks."""

    name: str
    pipeline: str
    consumer_group: str
    identity: Callable[[], str]
    watermarks: Callable[[str], Mapping[str, Watermark]]

    def is_same(self, other: MetTable) -> bool:
        """Whether both are one table: one name may be in two databases, and one database has names in any case."""
        return folded(self.name) == folded(other.name) and self.identity() == other.identity()


class LoopBatch(Protocol):
    """A batch of a loop, as a table sees it: see `leasehold.spark.loop.batch.MicroBatch`."""

    events: DataFrame
    ranges: tuple[EventRange, ...]
    level_of: Callable[[str, str], int | None]
    tell: Callable[[Notice], None]

    def computing(self) -> AbstractContextManager[None]:
        """While a table has its rows read and transformed, to count the time."""
        ...

    def rejected(self, df: DataFrame, rows: int) -> pa.Table | None:
        """After `df` has given so many rows: the events that the tasks have set aside. Raises `StaleBatch`."""
        ...

    def timed_ranges(self) -> tuple[EventRange, ...]:
        """The ranges, with when their last events were enqueued, as far as the tasks have told."""
        ...

    def with_table(self, table: MetTable, work: Callable[[], T]) -> T | None:
        """What `work` does with the batch for a table; None, and no error, where the batch is abandoned."""
        ...

    def end_apply(self, table: MetTable) -> None:
        """The table has committed the batch."""
        ...
