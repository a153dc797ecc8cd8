"""The contract of hubs, as tests: at least one for each sentence of `leasehold.hubs.base`."""

from leasehold.testing.hubs.contracts import HubContract

__all__ = ["HubContract"]
