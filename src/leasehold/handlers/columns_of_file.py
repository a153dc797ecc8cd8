"""The columns that a pipeline writes, as far as its file tells them: those of a handler's state, or of the bodies.

Owns this reading of the file. What a transform gives is for Spark to tell. Pure.
"""

from __future__ import annotations

import pyarrow as pa

from leasehold.errors import ConfigError
from leasehold.formats.columns_text import read_columns
from leasehold.handlers.applying import with_fence
from leasehold.handlers.of_file import is_transformed
from leasehold.hubs.arrow_events import EVENT_SCHEMA
from leasehold.pipeline_file import PipelineFile


def known_columns(file: PipelineFile) -> pa.Schema | None:
    """The columns of the entity table, with those of the fence; None where only Spark can tell."""
    if file.sink.state is not None:
        return with_fence(read_columns(file.sink.state, "sink.state"))
    read = file.transform
    if is_transformed(file):
        return None
    try:
        bodies = [] if read.schema is None else [*read_columns(read.schema, "transform.schema")]
    except ConfigError:  # a nested type
        return None
    rescued = [] if read.rescue is None else [pa.field(read.rescue, pa.string())]
    return pa.schema([*bodies, *rescued, *EVENT_SCHEMA])
