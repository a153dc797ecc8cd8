"""Holding partitions as one of several instances: claims, renewals, hand-over, trust, and the thread for all of it."""

from leasehold.ownership.dispatch import DispatchThread
from leasehold.ownership.holds import Hold
from leasehold.ownership.partition_manager import PartitionManager
from leasehold.ownership.purpose import Purpose

__all__ = ["DispatchThread", "Hold", "PartitionManager", "Purpose"]
