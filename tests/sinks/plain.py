"""A third party's sink that does what every `Sink` does and nothing beside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from leasehold.sinks.base import LevelOf, Sink
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec
from leasehold.sinks.set_aside import RejectedRows, SetAsideCounts
from leasehold.sinks.sqlite.sink import SqliteSink


class _Less(SqliteSink):
    features = frozenset()


class PlainSink(Sink):
    """The table in a SQLite file, with the abstract methods of `Sink` alone."""

    def __init__(self, path: Path, spec: TableSpec) -> None:
        self.spec = spec
        self._kept = _Less(path, spec)

    def check(self, schema: pa.Schema) -> None:
        """See `Sink`."""
        self._kept.check(schema)

    def apply(self, batch: Batch, level_of: LevelOf | None = None) -> BatchResult:
        """See `Sink`."""
        return self._kept.apply(batch, level_of)

    def identity(self) -> str:
        """See `Sink`."""
        return self._kept.identity()

    def row_count(self) -> int:
        """See `Sink`."""
        return self._kept.row_count()

    @property
    def rejected_rows(self) -> RejectedRows:
        """See `Sink`."""
        return self._kept.rejected_rows

    def set_aside_counts(self) -> SetAsideCounts:
        """See `Sink`."""
        return self._kept.set_aside_counts()

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """See `Watermarked`."""
        return self._kept.watermarks(hub)

    def raise_owner_levels(self, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
        """See `Watermarked`."""
        return self._kept.raise_owner_levels(hub, levels)

    def check_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, is_part: bool = False) -> None:
        """See `Watermarked`."""
        self._kept.check_watermarks(hub, marks, is_part=is_part)

    def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool = False) -> None:
        """See `Watermarked`."""
        self._kept.set_watermarks(hub, marks, anew=anew)
