"""From a pipeline file to the plain processor that runs it: its handler, or a transform that only picks columns.

Owns which keys of the file are the processor's: hub, stores, start, and how partitions are held. What the table has of
the file is `handlers.of_file`'s, or `projected.of_file`'s. Nothing is read or written before the processor is started,
but that the table is made or compared.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from leasehold.handlers.of_file import handled_table, read_file
from leasehold.handlers.table import HandledTable
from leasehold.model import EARLIEST, Positions
from leasehold.pipeline_file import PipelineFile
from leasehold.processors.events.arguments import handlers_of
from leasehold.processors.events.delivery import DeliverySettings
from leasehold.processors.events.event_processor import EventProcessor
from leasehold.processors.events.fixed_partitions import FixedPartitions
from leasehold.projected.of_file import projected_table
from leasehold.projected.table import ProjectedTable

__all__ = ["handled_processor", "projected_processor"]

_ROWS = 2_000
"""Most events of a batch that is only picked: a commit costs more than its rows."""


def handled_processor(
    file: PipelineFile | Path | str, *, table: HandledTable | None = None, **more: Any
) -> EventProcessor:
    """The plain processor of a pipeline file with a handler: hub, stores, start and settings are the file's.

    `table` is what `handled_table` gives for the file, and by default made of it, with the `runtime` of the processor.
    `more` are further arguments of `EventProcessor`, such as `name` and `runtime`; of `delivery` the start is the
    file's where it is not said; and `on_error`. Raises `ConfigError` that names file and key.
    """
    file = read_file(file)
    table = table or handled_table(file, **{name: more[name] for name in ("runtime",) if name in more})
    return _processor(file, table, DeliverySettings(), more)


def projected_processor(file: PipelineFile | Path | str, **more: Any) -> EventProcessor:
    """The plain processor of a pipeline file without a handler, whose transform only picks and renames columns.

    `more` is as with `handled_processor`. Raises `ConfigError` that names file and key, also for what takes Spark.
    """
    file = read_file(file)
    table = projected_table(file, more.get("runtime"))
    return _processor(file, table, DeliverySettings(max_batch=_ROWS, prefetch=3 * _ROWS), more)


def processor_of(file: PipelineFile, *, available_now: bool, **more: Any) -> EventProcessor:
    """The plain processor of a pipeline file of either kind; `more` are further arguments of `EventProcessor`."""
    make = projected_processor if file.sink.handler is None else handled_processor
    return make(file, available_now=available_now, **more)


def _processor(
    file: PipelineFile, table: HandledTable | ProjectedTable, delivery: DeliverySettings, more: dict[str, Any]
) -> EventProcessor:
    settings, fixed = file.ownership.settings(), file.ownership.partitions
    stores = None if fixed is not None else file.ownership_url, file.checkpoint_url
    available_now = more.pop("available_now", False)
    of_file = replace(delivery, fail_on_data_loss=file.source.fail_on_data_loss)
    delivery = more.pop("delivery", None) or of_file
    if available_now:
        delivery = replace(delivery, available_now=True)
    if "start" not in more and delivery.start == EARLIEST:
        start = Positions.parse(file.source.starting_position, "source.starting_position")
        delivery = replace(delivery, start=start)
    calls = {name: more.pop(name) for name in ("on_partition_start", "on_partition_stop", "on_error") if name in more}
    given: dict[str, Any] = {
        "consumer_group": file.source.consumer_group,
        "ownership": settings if fixed is None else FixedPartitions(fixed, settings),
        "delivery": delivery,
        "pipeline": file.name,
        "table": None if file.checkpoint_url is None else table.sink,
    }
    handlers = handlers_of(table if isinstance(table, HandledTable) else table.on_events)
    made = EventProcessor(file.hub_url, stores, replace(handlers, **calls), **{**given, **more})
    table.level_of = made.recorded_owner_level
    return made
