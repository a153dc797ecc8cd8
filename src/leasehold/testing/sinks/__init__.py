"""The contract of sinks, as tests: at least one for each sentence of `leasehold.sinks.base`."""

from leasehold.testing.sinks.contracts import SinkContract
from leasehold.testing.sinks.duplicates import DuplicatesContract
from leasehold.testing.sinks.forgetting import ForgettingContract
from leasehold.testing.sinks.messages import MessagesContract
from leasehold.testing.sinks.parking import ParkingContract
from leasehold.testing.sinks.rejected import RejectedContract
from leasehold.testing.sinks.skipping import SkippingContract
from leasehold.testing.sinks.states import StatesContract

__all__ = [
    "DuplicatesContract",
    "ForgettingContract",
    "MessagesContract",
    "ParkingContract",
    "RejectedContract",
    "SinkContract",
    "SkippingContract",
    "StatesContract",
]
