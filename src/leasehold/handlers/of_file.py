"""From a pipeline file with a handler to the table that the handler fills, without Spark and on it.

Owns which keys of the file a handler goes with, and that a file means the same here as on Spark: what would need
Spark (`sql`, `python`) is refused by its name here. Keys that only say how Spark reads are passed by.
Nothing is read or written but that the table is made or compared. The processor is `processors.events.of_file`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from leasehold.config import parse_duration
from leasehold.errors import ConfigError
from leasehold.formats.columns_text import read_columns
from leasehold.handlers.applying import check_columns, require_handler
from leasehold.handlers.calling.limits import check_timeout
from leasehold.handlers.calling.processes import named
from leasehold.handlers.contract import EntityHandler
from leasehold.handlers.exclusive import check_exclusive
from leasehold.handlers.named_functions import function_at
from leasehold.handlers.parking.policy import Retries
from leasehold.handlers.settings import Bodies, Failures, Spread, Writes
from leasehold.handlers.spread import check_spread
from leasehold.handlers.table import HandledTable
from leasehold.pipeline_file import PipelineFile, read_pipeline_file
from leasehold.settings.names import naming

T = TypeVar("T")


def handled_table(file: PipelineFile | Path | str, *, retries: Retries | None = None, **more: Any) -> HandledTable:
    """The table of a pipeline file with a handler; `more` are further arguments of `HandledTable`, such as `runtime`.

    `retries` say how often an event is tried, and when. Raises `ConfigError` that names file and key.
    """
    return made_of(HandledTable, read_file(file), retries=retries, **more)


def made_of(
    make: Callable[..., T],
    file: PipelineFile,
    *,
    on_spark: bool = False,
    retries: Retries | None = None,
    **more: Any,
) -> T:
    """What `make`, which takes the arguments of `HandledTable`, makes of a file. Raises `ConfigError`.

    On Spark its `schema` is None where a transform makes the columns: they are known when Spark has looked at it.
    """
    handler, schema, state = _checked(file, on_spark=on_spark)
    sink = file.sink
    with naming(f"{file.path}: sink."):
        given = {
            "table": sink.table,
            "pipeline": file.name,
            "schema": None if schema is None else Bodies(schema, file.body_format),
            "state": Writes(
                state, related=sink.related, outbox=file.outbox_url, schema_evolution=sink.schema_evolution
            ),
            "consumer_group": file.source.consumer_group,
            "failures": Failures(
                on_failure=sink.on_failure,
                retries=retries or Retries(),
                handler_timeout=_timeout(file),
                hand_over_timeout=file.ownership.settings().hand_over_timeout,
            ),
            "spread": _spread(file),
        }
        return make(handler, file.sink_url, **given, **more)


def is_transformed(file: PipelineFile) -> bool:
    """Whether a handler is given what a transform makes of events, which takes Spark."""
    return (file.transform.sql, file.transform.python) != (None, None)


def check_handler(file: PipelineFile, *, on_spark: bool = False) -> str:
    """Look at the handler of a file and its columns, and at nothing else. Its name. Raises `ConfigError`."""
    handler, _, _ = _checked(file, on_spark=on_spark)
    return handler.function.__name__


def read_file(file: PipelineFile | Path | str) -> PipelineFile:
    """The file, read where a path is given. Raises `ConfigError`."""
    return file if isinstance(file, PipelineFile) else read_pipeline_file(Path(file))


def _lease_store(file: PipelineFile) -> str | None:
    """Where entities are leased: the ownership's store. Raises `ConfigError`."""
    if not file.sink.exclusive:
        return None
    url = file.ownership_url
    if url is None or file.ownership.partitions is not None:
        raise ConfigError(
            "exclusive", True, "entities are leased in the ownership's store, and the file names none", "Name one"
        )
    return url


def _spread(file: PipelineFile) -> Spread | None:
    """How entities are spread, in a file that was checked."""
    if not file.sink.spread:
        return None
    assert file.sink.sequence_by is not None
    return Spread(file.sink.sequence_by, late=file.sink.late, exclusive=_lease_store(file))


def _timeout(file: PipelineFile) -> float | None:
    stated = file.sink.handler_timeout
    return None if stated is None else parse_duration(stated, "handler_timeout")


def _checked(file: PipelineFile, *, on_spark: bool = False) -> tuple[EntityHandler, str | None, str]:
    """The handler of a file, the columns of its events, where the file has them, and of its states.

    Raises `ConfigError`.
    """
    sink = file.sink
    if sink.handler is None or sink.state is None:
        raise ConfigError(
            f"{file.path}: sink.handler",
            None,
            "the plain processor runs pipelines with a handler",
            'Name one, handler = "module:function", and state, or run the file on Spark: leasehold run',
        )
    with naming(f"{file.path}: "):
        _check_keys(file, on_spark=on_spark)
        handler = _handler_at(sink.handler, file)
        schema = None if on_spark and is_transformed(file) else file.transform.schema
        columns = None if schema is None else read_columns(schema, "transform.schema")
        state = read_columns(sink.state, "sink.state")
    with naming(f"{file.path}: sink."):
        if columns is not None:
            check_columns(handler, columns, state)
        check_spread(sink.spread, sink.sequence_by, sink.late, columns)
        check_exclusive(_lease_store(file), spread=sink.spread, on_failure=sink.on_failure)
        if (timeout := _timeout(file)) is not None:
            check_timeout(timeout, file.ownership.settings().hand_over_timeout)
            named(handler)
    return handler, schema, sink.state


def _check_keys(file: PipelineFile, *, on_spark: bool) -> None:
    """Refuse the keys that a handler does not go with here, and a file without the columns that it is given."""
    transform = file.transform
    if file.source.deduplicate_by is not None:
        raise ConfigError(
            "source.deduplicate_by",
            file.source.deduplicate_by,
            "it is for tables that no handler fills",
            "Leave it out: the handler may keep in its state which events it has had",
        )
    for key, value in (("transform.sql", transform.sql), ("transform.python", transform.python)):
        if value is not None and not on_spark:
            raise ConfigError(
                key,
                value,
                "it takes Spark, and this is a process without",
                "Run it on Spark: leasehold run. Or leave it out: the handler is given the fields of schema, and "
                "may do the same",
            )
    if transform.schema is None and not is_transformed(file):
        raise ConfigError(
            "transform.schema",
            None,
            "a handler is given the fields of the body",
            'Name them: schema = "order_id STRING, amount DECIMAL(12,2)"',
        )


def _handler_at(place: str, file: PipelineFile) -> EntityHandler:
    """The handler that the file names, for the keys that it names."""
    keys = file.sink.keys
    _, found = function_at(place, file.folder, "sink.handler", "orders:order")
    handler = require_handler(found, "sink.handler", place, keys)
    if handler.keys != keys:
        raise ConfigError(
            "sink.keys",
            ", ".join(keys),
            f"the handler {place} is for the keys {', '.join(handler.keys)}",
            "Name the same keys, in the same order, in both",
        )
    return handler
