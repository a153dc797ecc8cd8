"""For asyncio: the leases of `leasehold.leases` with `async` and `await`, under the same names."""

from leasehold.leases.asynchronous import EntityLease, EntityLeases, LossSignal

__all__ = [
    "EntityLease",
    "EntityLeases",
    "LossSignal",
]
