"""The table of a pipeline file with a handler: what `leasehold run` has in place of an `EntityTable`.

Owns the way from the file to the table, and from what the loop reads, and `sql` or `python` transforms, to the events
that the handler is called for. All else is the table's (`table`), which programs have too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leasehold.errors import ConfigError
from leasehold.handlers.of_file import is_transformed, made_of
from leasehold.notices import Notice
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks.base import LevelOf
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.spark.handlers.lanes import events_only, read_raw
from leasehold.spark.handlers.table import HandledOnSpark, ReadsEvents, SettingNames
from leasehold.spark.handlers.transformed import reader_of, rows_as_events
from leasehold.spark.table.expressions import Prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class HandledOfFile(HandledOnSpark, ReadsEvents):
    """The table of a pipeline file with a handler, for the loop. Raises `ConfigError` for what does not go together."""

    _learns_schema = True

    def __init__(self, file: PipelineFile) -> None:
        self._file = file
        url, leases = (f"{file.path}: {key}" for key in ("sink.url", "ownership.store"))
        self._named = SettingNames(url, leases, "run it with --no-spark")
        self._transform = f"{file.path}: transform" if is_transformed(file) else ""
        made_of(super().__init__, file, on_spark=True)

    @property
    def reads(self) -> PipelineFile:
        """The file with which events are read: without a transform as they are, as a plain process reads them."""
        return self._file if self._transform else read_raw(self._file)

    def events(self, df: DataFrame) -> DataFrame:
        """Of what was read, or transformed, what handlers need."""
        return rows_as_events(df) if self._transform else events_only(df)

    def check(self, df: DataFrame) -> None:
        """Take the session of `df`, whose tasks are to call the handler, and its columns. Raises `ConfigError`."""
        if self._transform:
            reader = reader_of(df, self._transform)
            try:
                self._table.read_by(reader)
            except ConfigError as error:
                columns = ", ".join(reader.schema.names)
                raise ConfigError(
                    self._transform, None, f"its columns are {columns}, and {error.rule}", error.remedy
                ) from None
        self.take_session(df.sparkSession)

    def prepare(self, df: DataFrame) -> Prepared:
        """The columns that handlers need."""
        return Prepared(self.events(df), ())

    def write(
        self,
        batch: Batch,
        level_of: LevelOf | None = None,
        tell: Callable[[Notice], None] | None = None,
        *,
        transform: str = "",
    ) -> BatchResult:
        """See `HandledOnSpark.write`: the transform is the file's."""
        return super().write(batch, level_of, tell, transform=transform or self._transform)
