"""For asyncio: the leases of `leasehold.leases` with `async` and `await`."""

from leasehold.leases.asynchronous import AsyncEntityLease, AsyncEntityLeases, AsyncLossSignal

__all__ = [
    "AsyncEntityLease",
    "AsyncEntityLeases",
    "AsyncLossSignal",
]
