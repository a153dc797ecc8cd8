"""Writing down how far the work on held partitions has come.

Owns the way of a checkpoint from whoever has processed events to the store, the mirror and the notices. Promises that
a checkpoint is written under the level that it carries, and only while that level is held, unless its caller knows
that the work is done for certain. A refusal by the store is a normal value: the partition has gone on to another owner.

Any thread may call it. If the process stops before the store has answered, another owner may have raised the level
meanwhile: the store refuses then, and nothing is recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from leasehold.model import Checkpoint
from leasehold.notices import CheckpointUpdated, LossReason
from leasehold.ownership.acquisition import Acquisition
from leasehold.ownership.holds import Hold, Holds
from leasehold.ownership.keeping import Keeping
from leasehold.ownership.parts import InstanceParts

logger = logging.getLogger(__name__)


class Recording:
    """One instance's checkpoints."""

    def __init__(self, parts: InstanceParts, holds: Holds, keeping: Keeping, acquisition: Acquisition) -> None:
        self._parts = parts
        self._holds, self._keeping, self._acquisition = holds, keeping, acquisition

    def record(
        self, checkpoints: Sequence[Checkpoint], held: Mapping[str, Hold], *, also_lapsed: bool
    ) -> list[Checkpoint]:
        """Write those whose level is held, or all if `also_lapsed`. Returns what was recorded."""
        mine = {
            c.partition for c in checkpoints if c.partition in held and held[c.partition].owner_level == c.owner_level
        }
        sent = [checkpoint for checkpoint in checkpoints if also_lapsed or checkpoint.partition in mine]
        if not sent:
            return []
        refused = {refusal.partition for refusal in self._parts.checkpoints.update_checkpoints(sent)}
        if refused:
            logger.info("partitions %s have gone on to other owners", ", ".join(sorted(refused)))
        self._keeping.drop({partition: held[partition] for partition in refused & mine}, LossReason.SUPERSEDED)
        recorded = [checkpoint for checkpoint in sent if checkpoint.partition not in refused]
        self._holds.prove(recorded)
        self._acquisition.see(recorded)
        self._parts.hub.mirror(self._parts.group.name, {one.partition: one.next_sequence_number for one in recorded})
        for checkpoint in recorded:
            self._parts.notices.publish(
                CheckpointUpdated(checkpoint.partition, checkpoint.owner_level, checkpoint.sequence_number)
            )
        return recorded
