"""For asyncio: the leases of `leasehold.entities` with `async` and `await`, under the same names."""

from leasehold.aio.leases import EntityLease, EntityLeases, LossSignal

__all__ = [
    "EntityLease",
    "EntityLeases",
    "LossSignal",
]
