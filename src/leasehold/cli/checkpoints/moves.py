"""What putting checkpoints into a store would do to those that are there. Pure: no store is asked here.

Owns the rule for people: a lower owner level and a step back are refused, unless they are forced. The rule of
the stores (a higher level may step back) is for owners, who know what they do. Forced, a checkpoint is written
one level above the one that is there, since no store lowers a level: an instance that is running loses its
right to checkpoint, and goes on from the new place when it has claimed the partition again.

Where it is known what the hub has: a partition that it does not have and a place beyond the partition's end are
refused, forced or not, since nobody could go on from there. A place before its begin, whose events have been removed,
may be forced; a pipeline with fail_on_data_loss then fails with the range that is gone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leasehold.model import HIGHEST, Checkpoint, PartitionProperties

Places = Mapping[str, PartitionProperties]
"""What a hub has: each partition with its begin and end."""


@dataclass(frozen=True, slots=True)
class CheckpointMove:
    """One partition's checkpoint: what is there, what is to be written, and why that is refused (`""`: it is not).

    `impossible`: it is refused even when it is forced.
    """

    before: Checkpoint | None
    after: Checkpoint
    refused: str = ""
    impossible: bool = False


def plan_moves(
    stored: Sequence[Checkpoint], targets: Sequence[Checkpoint], *, force: bool, hub: Places | None = None
) -> list[CheckpointMove]:
    """What to write for each checkpoint that is wanted; `hub` is what the hub of all of them has, if that is known."""
    there = {(one.group, one.partition): one for one in stored}
    return [_move(there.get((one.group, one.partition)), one, force, hub) for one in targets]


def _move(before: Checkpoint | None, target: Checkpoint, force: bool, hub: Places | None) -> CheckpointMove:
    if hub is not None and (why := _not_in_the_hub(target, hub)):
        return CheckpointMove(before, target, why, impossible=True)
    refused = ""
    if before and target.owner_level < before.owner_level:
        refused = f"owner level {target.owner_level} is below {before.owner_level}, which the store has"
    elif before and target.sequence_number < before.sequence_number:
        refused = f"sequence number {target.sequence_number} is behind {before.sequence_number}, which the store has"
    elif hub is not None and target.next_sequence_number < (begin := hub[target.partition].begin):
        refused = (
            f"the hub has removed the events from {target.next_sequence_number} on; the first that is left is {begin}, "
            f"which is what follows {begin - 1}"
        )
    if refused and force:
        level = target.owner_level if before is None else before.owner_level + 1
        target, refused = dataclasses.replace(target, owner_level=level), ""
    if target.owner_level > HIGHEST:
        return CheckpointMove(
            before, target, f"the store has the highest owner level, {HIGHEST}: none is left", impossible=True
        )
    return CheckpointMove(before, target, refused)


def _not_in_the_hub(target: Checkpoint, hub: Places) -> str:
    """Why nobody could go on from there, `""` where somebody could."""
    place = hub.get(target.partition)
    if place is None:
        return f"the hub has no such partition; it has {', '.join(hub)}"
    if target.next_sequence_number > place.end:
        last = "it is empty" if place.begin == place.end else f"its events are {place.begin} to {place.end - 1}"
        return f"sequence number {target.sequence_number} is beyond what the hub has; {last}"
    return ""
