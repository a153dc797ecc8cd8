"""Processing the partitions of a hub as one of several instances: holding them, and working on what is held."""

from leasehold.processor.cancelling import Cancellation
from leasehold.processor.checkpointer import EACH_BATCH, MANUAL, ON_STOP, CheckpointPolicy, every
from leasehold.processor.delivery import DeliverySettings, EventBatch
from leasehold.processor.dispatch import DispatchThread
from leasehold.processor.event_processor import EventProcessor
from leasehold.processor.holds import Hold
from leasehold.processor.partition_client import PartitionClient, PartitionContext
from leasehold.processor.partition_manager import PartitionManager
from leasehold.processor.stopping import StopReason

__all__ = [
    "EACH_BATCH",
    "MANUAL",
    "ON_STOP",
    "Cancellation",
    "CheckpointPolicy",
    "DeliverySettings",
    "DispatchThread",
    "EventBatch",
    "EventProcessor",
    "Hold",
    "PartitionClient",
    "PartitionContext",
    "PartitionManager",
    "StopReason",
    "every",
]
