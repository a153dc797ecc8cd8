"""The plain processor: working on the partitions of a hub that this instance holds, without Spark."""

from leasehold.processors.events.cancelling import Cancellation
from leasehold.processors.events.checkpointer import EACH_BATCH, MANUAL, ON_STOP, CheckpointPolicy, every
from leasehold.processors.events.delivery import DeliverySettings, EventBatch
from leasehold.processors.events.event_processor import EventProcessor
from leasehold.processors.events.fixed_partitions import FixedPartitions
from leasehold.processors.events.handlers import Handlers
from leasehold.processors.events.partition_client import PartitionClient, PartitionContext
from leasehold.processors.events.stopping import StopReason

__all__ = [
    "EACH_BATCH",
    "MANUAL",
    "ON_STOP",
    "Cancellation",
    "CheckpointPolicy",
    "DeliverySettings",
    "EventBatch",
    "EventProcessor",
    "FixedPartitions",
    "Handlers",
    "PartitionClient",
    "PartitionContext",
    "StopReason",
    "every",
]
