"""The columns that a pipeline writes, as far as its file tells them: those of a handler's state, or of the bodies.

Owns this reading of the file. What a transform gives is for Spark to tell. Pure.
"""

from __future__ import annotations

import pyarrow as pa

from leasehold.errors import ConfigError, MissingDependency
from leasehold.formats.columns_text import read_columns
from leasehold.handlers.applying import with_fence
from leasehold.pipeline_file import PipelineFile
from leasehold.projected.of_file import rows_of


def known_columns(file: PipelineFile) -> pa.Schema | None:
    """The columns of the entity table, with those of the fence; None where only Spark can tell."""
    if file.sink.state is not None:
        return with_fence(read_columns(file.sink.state, "sink.state"))
    try:
        return rows_of(file).schema
    except (ConfigError, MissingDependency):  # a nested type, or more than columns
        return None
