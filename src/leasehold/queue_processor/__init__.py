"""The plain processor of a queue's messages: each in effect once, one at a time for each entity, by any processes."""

from leasehold.queue_processor.processor import QueueProcessor
from leasehold.queue_processor.settings import BusyPolicy, QueueDelivery

__all__ = ["BusyPolicy", "QueueDelivery", "QueueProcessor"]
