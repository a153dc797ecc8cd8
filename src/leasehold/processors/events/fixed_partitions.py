"""A fixed share of a hub's partitions, in place of balancing.

Owns the value that says so. What keeps two processors with the same share apart: `stores.stand_ins`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from leasehold.config import OwnershipSettings


@dataclass(frozen=True, slots=True)
class FixedPartitions:
    """These partitions are an `EventProcessor`'s own, and no ownership store shares them out.

    partitions  their ids. A later start with the same share takes it over
    settings    how they are held: intervals and time-outs
    """

    partitions: Collection[str]
    settings: OwnershipSettings = field(default_factory=OwnershipSettings)
