"""Entities: what events are about. Leases that keep them one at a time, for anyone's code.

`leasehold.aio` has the same names for asyncio.
"""

from leasehold.entities.lease import EntityLease, LossSignal
from leasehold.entities.leases import EntityLeases

__all__ = [
    "EntityLease",
    "EntityLeases",
    "LossSignal",
]
