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
    """The columns of the entity table, with those of the fence; None where only Spark can tell."""
    if file.sink.state is not None:
        return with_fence(read_columns(file.sink.state, "sink.state"))
    try:
        return columns_of(source_of(file))
    except UsageError:  # a nested type, more than columns, or no parser of SQL
        return None
