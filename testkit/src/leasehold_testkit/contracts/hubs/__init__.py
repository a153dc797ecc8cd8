"""The contract of hubs, as tests: at least one for each sentence of `leasehold.hubs.base`."""

from leasehold_testkit.contracts.hubs.contracts import HubContract

__all__ = ["HubContract"]
