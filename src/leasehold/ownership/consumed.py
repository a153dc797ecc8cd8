"""What is left where a run has an end: until all that the hub had at the start has been consumed, by any instance.

Owns that judgement, for Spark's loop and the plain processor alike. Pure: whoever asks has read the checkpoints and the
hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leasehold.model import Checkpoint, PartitionProperties

NO_END = "what others have consumed is told by the checkpoints, and there are none"
"""Why reading cannot end by itself without a checkpoint store."""


def unconsumed(
    ends: Mapping[str, int], checkpoints: Iterable[Checkpoint], properties: Mapping[str, PartitionProperties]
) -> dict[str, int]:
    """Where those partitions stand whose checkpoint, whoever owns them, has not reached its end, by partition.

    What the hub has removed counts as consumed.
    """
    reached = {checkpoint.partition: checkpoint.next_sequence_number for checkpoint in checkpoints}
    begins = {partition: place.begin for partition, place in properties.items()}
    places = {partition: max(reached.get(partition, 0), begins.get(partition, 0)) for partition in sorted(ends)}
    return {partition: place for partition, place in places.items() if place < ends[partition]}
