"""Leasehold on Spark: micro-batches, the entity table, pipelines from files, and the source `format("leasehold")`.

The names below are imported when they are first used, so that a pipeline file can be read without Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.spark.handlers.table import HandledOnSpark
    from leasehold.spark.loop.batch import MicroBatch
    from leasehold.spark.loop.micro_batches import MicroBatches
    from leasehold.spark.pipeline import PipelineRun, Progress
    from leasehold.spark.plan.bodies import read_bodies
    from leasehold.spark.session.endings import Terminated, end_quietly
    from leasehold.spark.session.opening import open_session
    from leasehold.spark.stream.foreach import for_each_batch
    from leasehold.spark.stream.registration import register
    from leasehold.spark.table.entity_table import EntityTable
    from leasehold.spark.table.other_sources import EventHubsConnector, SparkKafkaSource
    from leasehold.spark.table.settings import OwnershipRecords, RowRules, Writing
    from leasehold.spark.table.unseen import Piece, Unseen

__all__ = [
    "EntityTable",
    "EventHubsConnector",
    "HandledOnSpark",
    "MicroBatch",
    "MicroBatches",
    "OwnershipRecords",
    "Piece",
    "PipelineRun",
    "Progress",
    "RowRules",
    "SparkKafkaSource",
    "Terminated",
    "Unseen",
    "Writing",
    "end_quietly",
    "for_each_batch",
    "open_session",
    "read_bodies",
    "read_pipeline_file",
    "register",
]

_HOMES = {
    "EntityTable": "leasehold.spark.table.entity_table",
    "EventHubsConnector": "leasehold.spark.table.other_sources",
    "HandledOnSpark": "leasehold.spark.handlers.table",
    "MicroBatch": "leasehold.spark.loop.batch",
    "MicroBatches": "leasehold.spark.loop.micro_batches",
    "OwnershipRecords": "leasehold.spark.table.settings",
    "Piece": "leasehold.spark.table.unseen",
    "PipelineRun": "leasehold.spark.pipeline",
    "Progress": "leasehold.spark.pipeline",
    "RowRules": "leasehold.spark.table.settings",
    "SparkKafkaSource": "leasehold.spark.table.other_sources",
    "Terminated": "leasehold.spark.session.endings",
    "Unseen": "leasehold.spark.table.unseen",
    "Writing": "leasehold.spark.table.settings",
    "end_quietly": "leasehold.spark.session.endings",
    "for_each_batch": "leasehold.spark.stream.foreach",
    "open_session": "leasehold.spark.session.opening",
    "read_bodies": "leasehold.spark.plan.bodies",
    "read_pipeline_file": "leasehold.pipeline_file",
    "register": "leasehold.spark.stream.registration",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    try:
        return getattr(importlib.import_module(home), name)
    except AttributeError as error:
        # `from leasehold.spark import …` would take it for its own, and say no more than "cannot import name".
        raise ImportError(f"{home} cannot be imported: {error}", name=home) from error
