"""From a pipeline file, or a queue's URL, and a kind to what is set aside there.

Owns which kinds there are, and where. Nothing is made: a table that no instance has filled yet is said. A kind is
imported when it is asked for: dead letters need no PyArrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.errors import ConfigError, UsageError
from leasehold.operations.aside.contract import Aside
from leasehold.pipeline_file import PipelineFile, read_pipeline_file
from leasehold.sinks import open_sink
from leasehold.sinks.base import Sink
from leasehold.sinks.features import STATES

if TYPE_CHECKING:
    from leasehold.operations.aside.rejected import Transform

OF_A_TABLE = ("rejected", "parked", "refused", "dropped")
"""The kinds of a pipeline's table."""
OF_STATES = ("parked", "refused")
"""Those of them that only a sink with STATES keeps."""
DEAD_LETTERS = "dead-letters"


def check_there(sink: Sink) -> None:
    """Raise `UsageError` for a table that has not been made yet, as far as the sink can tell without making it."""
    if (compared := sink.compare(None)) is not None and not compared.there:
        raise UsageError(
            f"there is no table {sink.spec.called} in the database of the pipeline file, and none was made: no "
            "instance has filled it yet, or sink.url is not the one that they use"
        )


def opened_table(pipeline: PipelineFile) -> Sink:
    """The only table of a pipeline, which is there. Raises `UsageError` and `SinkUnavailable`."""
    sink = open_sink(pipeline.sink_url, pipeline.table_spec())
    check_there(sink)
    return sink


def opened(
    target: str,
    kind: str | None,
    settings: Mapping[str, str],
    transform: Transform,
    close: ExitStack,
    table: str | None = None,
) -> Sequence[Aside]:
    """What is set aside of this kind, or of each kind that there is of the target, until `close` is closed.

    `table` names one of the tables of a pipeline that has several. Raises also `ConfigError`, `QueueUnavailable`.
    """
    is_queue = "://" in target
    if is_queue and table is not None:
        raise ConfigError("--table", table, "a queue has no tables", "Leave it out, or name a PIPELINE.toml")
    if kind is not None and is_queue != (kind == DEAD_LETTERS):
        rule = "a queue has dead letters, and the table of a pipeline file all other kinds"
        raise ConfigError("--kind", kind, rule, "Name a PIPELINE.toml" if is_queue else "Name a QUEUE_URL")
    if is_queue:
        from leasehold.operations.aside.dead_letters import DeadLettersAside
        from leasehold.queues import open_queue

        letters = DeadLettersAside(open_queue(target))
        close.callback(letters.close)
        return [letters]
    pipeline = read_pipeline_file(Path(target), settings=settings).table(table)
    sink = opened_table(pipeline)
    close.callback(sink.close)
    kept = [name for name in OF_A_TABLE if name not in OF_STATES or STATES in sink.features]
    kinds = kept if kind is None else [kind]
    return [_of_table(name, pipeline, sink, transform) for name in kinds]


def _of_table(kind: str, pipeline: PipelineFile, sink: Sink, transform: Transform) -> Aside:
    from leasehold.operations.aside.parked import ParkedAside
    from leasehold.operations.aside.refused import RefusedAside, refused_of
    from leasehold.operations.aside.rejected import DroppedAside, RejectedAside

    make: Mapping[str, Callable[[], Aside]] = {
        "rejected": lambda: RejectedAside(pipeline, sink, transform),
        "parked": lambda: ParkedAside(pipeline, sink),
        "refused": lambda: RefusedAside(pipeline.name, refused_of(sink)),
        "dropped": lambda: DroppedAside(pipeline, sink),
    }
    return make[kind]()
