"""From a pipeline file with a handler to the plain processor that runs it.

Owns which keys of the file are the processor's: hub, stores, start, and how partitions are held. What the handler and
its table have of the file is `handlers.of_file`'s. Nothing is read or written before the processor is started, but that
the table is made or compared.
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

__all__ = ["handled_processor"]


def delivery_of(file: PipelineFile, *, available_now: bool = False) -> DeliverySettings:
    """How the events of a file's source come to its handler, but for where a group begins."""
    return DeliverySettings(fail_on_data_loss=file.source.fail_on_data_loss, available_now=available_now)


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
    settings, fixed = file.ownership.settings(), file.ownership.partitions
    stores = None if fixed is not None else file.ownership_url, file.checkpoint_url
    delivery = more.pop("delivery", None) or delivery_of(file)
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
    made = EventProcessor(file.hub_url, stores, replace(handlers_of(table), **calls), **{**given, **more})
    table.level_of = made.recorded_owner_level
    return made
