"""How a consumer group is getting on, as anybody may see it from outside: partition by partition.

Owns the joining of what a hub and two stores say. Reads only; needs no instance to be running.
"""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.balancing.view import is_expired
from leasehold.hubs.base import Hub
from leasehold.model import ConsumerGroup
from leasehold.stores.base import CheckpointStore, OwnershipStore


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition: who holds it and how far it has come. Ages in seconds; None where there is nothing yet.

    `owner` is `""` where nobody holds it; `alive` says whether its holder renewed within the expiration.
    `checkpoint` is the sequence number to go on from, `lag` the number of events from there to `end`.
    """

    partition: str
    owner: str
    alive: bool
    owner_level: int
    age: float | None
    checkpoint: int | None
    begin: int
    end: int
    lag: int


def group_progress(
    hub: Hub, group: ConsumerGroup, ownership: OwnershipStore, checkpoints: CheckpointStore, expiration: float
) -> list[PartitionProgress]:
    """All partitions of the hub, in the order that the hub names them. `expiration` in seconds."""
    patience = expiration + ownership.features.clock_granularity
    listing = ownership.list_ownership(group)
    records = {record.partition: record for record in listing.records}
    reached = {checkpoint.partition: checkpoint for checkpoint in checkpoints.list_checkpoints(group)}
    rows = []
    for partition, known in hub.partition_properties().items():
        record, checkpoint = records.get(partition), reached.get(partition)
        owner = record.owner_id if record else ""
        following = checkpoint.next_sequence_number if checkpoint else None
        rows.append(
            PartitionProgress(
                partition=partition,
                owner=owner,
                alive=bool(record and owner and not is_expired(record, listing.as_of, patience)),
                owner_level=max(record.owner_level if record else 0, checkpoint.owner_level if checkpoint else 0),
                age=listing.as_of - record.last_modified if record and owner else None,
                checkpoint=following,
                begin=known.begin,
                end=known.end,
                lag=max(0, known.end - max(following or 0, known.begin)),
            )
        )
    return rows
