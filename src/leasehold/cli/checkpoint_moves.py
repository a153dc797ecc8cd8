"""What putting checkpoints into a store would do to those that are there. Pure: no store is asked here.

Owns the rule for people: a lower owner level and a step back are refused, unless they are forced. The rule of
the stores (a higher level may step back) is for owners, who know what they do. Forced, a checkpoint is written
one level above the one that is there, since no store lowers a level: an instance that is running loses its
right to checkpoint, and goes on from the new place when it has claimed the partition again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from leasehold.model import Checkpoint


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's checkpoint: what is there, what is to be written, and why that is refused (`""`: it is not)."""

    before: Checkpoint | None
    after: Checkpoint
    refused: str = ""


def plan_moves(stored: Sequence[Checkpoint], wanted: Sequence[Checkpoint], *, force: bool) -> list[Move]:
    """What to write for each checkpoint that is wanted."""
    there = {(one.group, one.partition): one for one in stored}
    return [_move(there.get((one.group, one.partition)), one, force) for one in wanted]


def _move(before: Checkpoint | None, wanted: Checkpoint, force: bool) -> Move:
    refused = ""
    if before and wanted.owner_level < before.owner_level:
        refused = f"owner level {wanted.owner_level} is below {before.owner_level}, which the store has"
    elif before and wanted.sequence_number < before.sequence_number:
        refused = f"sequence number {wanted.sequence_number} is behind {before.sequence_number}, which the store has"
    if before and refused and force:
        return Move(before, dataclasses.replace(wanted, owner_level=before.owner_level + 1))
    return Move(before, wanted, refused)
