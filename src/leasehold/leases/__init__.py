"""Leases of entities, for anyone's code: they keep the work on an entity one at a time.

The names here block; `leasehold.aio` has the same names for asyncio.
"""

from leasehold.leases.blocking import EntityLeases
from leasehold.leases.lease import EntityLease, LossSignal

__all__ = [
    "EntityLease",
    "EntityLeases",
    "LossSignal",
]
