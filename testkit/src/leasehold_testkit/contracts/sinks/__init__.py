"""The contract of sinks, as tests: at least one for each sentence of `leasehold.sinks.base`."""

from leasehold_testkit.contracts.sinks.contracts import SinkContract
from leasehold_testkit.contracts.sinks.duplicates import DuplicatesContract
from leasehold_testkit.contracts.sinks.forgetting import ForgettingContract
from leasehold_testkit.contracts.sinks.messages import MessagesContract
from leasehold_testkit.contracts.sinks.parking import ParkingContract
from leasehold_testkit.contracts.sinks.rejected import RejectedContract
from leasehold_testkit.contracts.sinks.skipping import SkippingContract
from leasehold_testkit.contracts.sinks.states import StatesContract

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
