"""Processing the partitions of a hub as one of several instances: holding them, and working on what is held."""

from leasehold.processor.dispatch import DispatchThread
from leasehold.processor.holds import Hold
from leasehold.processor.partition_manager import PartitionManager

__all__ = ["DispatchThread", "Hold", "PartitionManager"]
