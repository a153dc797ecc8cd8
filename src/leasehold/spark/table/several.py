"""Several entity tables of one pipeline on Spark: each batch is evaluated once, and written in one transaction.

Owns the way from a DataFrame to the parts that the tables are given: the expressions of all tables are columns of one
plan, so one action computes them, and the rows are parted behind it. What is done with the parts is `TableSet`'s.

Concurrency: as of one table; see there, and `leasehold.sinks.table_set`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from leasehold.notices import Notice
from leasehold.sinks.base import LevelOf
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, Totals
from leasehold.sinks.table_set import TableSet
from leasehold.spark.session.versions import to_arrow
from leasehold.spark.table.counting import Counting
from leasehold.spark.table.entity_table import EntityTable
from leasehold.spark.table.expressions import Prepared
from leasehold.spark.table.identities import Deduplication
from leasehold.spark.table.of_loop import Collect, MetTable
from leasehold.spark.table.telling import apply_and_tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EntityTables:
    """The tables of a pipeline file, for a loop: see `EntityTable`. Raises what `TableSet` raises."""

    def __init__(self, tables: Sequence[EntityTable]) -> None:
        self._tables, self._sink = tuple(tables), TableSet([one._sink for one in tables])
        self.deduplication: Deduplication | None = tables[0].deduplication
        """By what events are known to have been sent before: the same for all tables."""
        self.met_by_loop = MetTable(self._sink.spec, self.sink_identity, self.watermarks, self.noted)
        """Whose they are, for a loop."""
        self._counting = Counting(self._sink.spec)

    @property
    def totals(self) -> Totals:
        """The sum of what has become of all batches, of the events once and the rows of all tables."""
        return self._counting.totals

    def prepare(self, df: DataFrame) -> Prepared:
        """See `EntityTable`: with the values of the expressions of each table, one after the other."""
        prepared = self._tables[0].prepare(df)
        for table in self._tables[1:]:
            more = table.widened(prepared.df, df)
            prepared = Prepared(more.df, (*prepared.added, *more.added))
        return prepared

    def evaluate(self, prepared: Prepared, collect: Collect = to_arrow) -> Batch:
        """Compute the rows of all tables, by one action of Spark."""
        rows = collect(prepared.df)
        width = at = rows.num_columns - len(prepared.added)
        parts = []
        for table in self._tables:
            end = at + len(table.expressions)
            parts.append(table.batch_of(rows.select([*range(width), *range(at, end)])))
            at = end
        first, *beside = parts
        return replace(first, beside=tuple(beside))

    def write(
        self, batch: Batch, level_of: LevelOf | None = None, tell: Callable[[Notice], None] = lambda notice: None
    ) -> BatchResult:
        """Apply a batch that was evaluated to all tables, in one transaction."""
        return self._counting.add(apply_and_tell(self._sink, batch, level_of, tell), batch)

    def check(self, df: DataFrame) -> None:
        """Check what is going to be applied to each table. Raises what `EntityTable.check` raises."""
        for table in self._tables:
            table.check(df)

    def sink_identity(self) -> str:
        """The UUID of the first table, by which a consumer group is tied to all of them."""
        return self._sink.identity()

    def watermarks(self, hub: str) -> Mapping[str, Watermark]:
        """How far all tables have come."""
        return self._sink.watermarks(hub)

    def noted(self, hub: str) -> Mapping[str, frozenset[int]]:
        """By partition of `hub`, the events that a person has noted to be skipped at all tables."""
        return self._sink.noted(hub)

    def close(self) -> None:
        """Close this thread's connections."""
        self._sink.close()
