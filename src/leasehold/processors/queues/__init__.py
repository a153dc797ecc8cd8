"""The plain processor of a queue's messages: each in effect once, one at a time for each entity, by any processes."""

from leasehold.processors.queues.processor import QueueProcessor
from leasehold.processors.queues.settings import BusyPolicy, QueueDelivery

__all__ = ["BusyPolicy", "QueueDelivery", "QueueProcessor"]
