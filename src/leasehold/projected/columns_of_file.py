"""The columns that a pipeline writes, as far as its file tells them: those of a handler's state, or of the rows.

Owns this reading of the file. What a transform gives that does more than pick columns is for Spark to tell. Pure.
"""

from __future__ import annotations

import pyarrow as pa

from leasehold.errors import UsageError
from leasehold.formats.columns_text import read_columns
from leasehold.handlers.applying import with_fence
from leasehold.pipeline_file import PipelineFile
from leasehold.projected.of_file import source_of
from leasehold.projected.table import columns_of


def known_columns(file: PipelineFile) -> pa.Schema | None:
    """The columns of the entity table, with those of the fence; None where only Spark can tell.

    Raises `ConfigError` for a state that cannot be read.
    """
    if file.sink.state is not None:
        return with_fence(read_columns(file.sink.state, "sink.state"))
    try:
        return columns_told(file)
    except UsageError:
        return None


def columns_told(file: PipelineFile) -> pa.Schema:
    """As `known_columns`, for a file without a handler. Raises the `UsageError` with which a run without Spark refuses
    it: a nested type, a transform that is more than columns, or no parser of SQL."""
    return columns_of(source_of(file))
