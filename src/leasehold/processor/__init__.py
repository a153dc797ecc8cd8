"""The plain processor: working on the partitions of a hub that this instance holds, without Spark."""

from leasehold.processor.cancelling import Cancellation
from leasehold.processor.checkpointer import EACH_BATCH, MANUAL, ON_STOP, CheckpointPolicy, every
from leasehold.processor.delivery import DeliverySettings, EventBatch
from leasehold.processor.event_processor import EventProcessor
from leasehold.processor.partition_client import PartitionClient, PartitionContext
from leasehold.processor.stopping import StopReason

__all__ = [
    "EACH_BATCH",
    "MANUAL",
    "ON_STOP",
    "Cancellation",
    "CheckpointPolicy",
    "DeliverySettings",
    "EventBatch",
    "EventProcessor",
    "PartitionClient",
    "PartitionContext",
    "StopReason",
    "every",
]
