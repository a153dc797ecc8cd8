"""Which entities events are about, by their bodies alone: for who has events of a handler and calls nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from leasehold.errors import ConfigError
from leasehold.formats.bodies import BodyReader
from leasehold.formats.columns_text import read_columns
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks.rules.ordering import Key


def key_reader(file: PipelineFile) -> Callable[[Sequence[bytes]], list[Key]]:
    """What reads the keys of bodies; a part that a body does not have is None. Raises `ConfigError`.

    The state has the keys in the types that the events have, whatever else of an event the handler is given.
    """
    field = f"{file.path}: sink.state"
    state, keys = read_columns(file.sink.state or "", field), tuple(file.sink.keys)
    if missing := [key for key in keys if key not in state.names]:
        raise ConfigError(field, file.sink.state, f"the key {missing[0]} is not in it", "Add it")
    reader = BodyReader(pa.schema([state.field(key) for key in keys]), file.body_format.without_rescue())

    def read(bodies: Sequence[bytes]) -> list[Key]:
        found = reader.read(pa.array(bodies, pa.binary())).columns.to_pylist()
        return [tuple(row[name] for name in keys) for row in found]

    return read
