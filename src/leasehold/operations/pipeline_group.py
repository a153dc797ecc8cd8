"""From a pipeline file to the consumer group that it names, for whoever only looks.

Owns the opening of hub, stores and table for reading: a store that is not there is refused, and nothing is made. Needs
neither Spark nor a running instance; the table's driver only where somebody asks what the table holds, or where the
table stands in for checkpoints.
"""

from __future__ import annotations

from functools import cached_property

from leasehold.combinations import is_mixed
from leasehold.hubs import open_hub
from leasehold.hubs.base import Hub
from leasehold.model import Positions
from leasehold.operations.group_watch import WatchedGroup
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks.base import Sink, TableContents
from leasehold.sinks.set_aside import SetAsideCounts
from leasehold.store_choice import TablePlaces
from leasehold.stores import open_existing


def open_group(pipeline: PipelineFile, *, hub: Hub | None = None) -> WatchedGroup:
    """The group of a pipeline, with `hub` if that is open already. Asks hub and stores whether they are there.

    Raises `HubUnavailable`, `StoreUnavailable`, and `UsageError` for a store that no instance has made yet.
    """
    settings = pipeline.ownership.settings()
    opened = open_hub(pipeline.hub_url) if hub is None else hub
    table = _Table(pipeline)
    try:
        stores = pipeline.open_stores(open_existing, lambda: TablePlaces(table.sink, opened.identity))
        return WatchedGroup(
            pipeline=pipeline.name,
            hub=opened,
            group=opened.consumer_group(pipeline.source.consumer_group),
            ownership=stores.ownership,
            checkpoints=stores.checkpoints,
            expiration=settings.partition_expiration,
            foreign_expiration=settings.expiration_of_others(mixed=is_mixed(opened.url)),
            ours=stores.ours,
            balanced=stores.share is None,
            positions=Positions.parse(pipeline.source.starting_position, "source.starting_position"),
            retention=pipeline.retention,
            table=table.contents,
            set_aside=table.set_aside,
        )
    except BaseException:
        if hub is None:
            opened.close()
        raise


class _Table:
    """The table of a pipeline, or its tables, opened when they are asked."""

    def __init__(self, pipeline: PipelineFile) -> None:
        self._pipeline = pipeline

    @cached_property
    def sink(self) -> Sink:
        return self._pipeline.open_tables()

    def contents(self) -> TableContents:
        """How much it holds."""
        return self.sink.contents()

    def set_aside(self) -> SetAsideCounts:
        """How much is set aside beside it."""
        return self.sink.set_aside_counts()
