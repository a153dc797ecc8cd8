"""Partitions that may be poison: whose owners come to a bad end one after another.

Owns the count of bad ends, and the patience it earns:

1. An owner came to a bad end if its ownership expired, if a new incarnation of it has to take over, or if it gave
   the partition up with an error, which it counts itself. An owner that is relieved, by a steal, a hand-over or a
   clean stop, did not.
2. Bad ends count while the checkpoint stands still and events wait behind it, or the hub ends before it. When it moves,
   the count is zero.
3. From `SUSPECT_AFTER` bad ends on a partition is a suspect: it is claimed after all that are not, those with the
   fewest first, after a backoff that doubles with each (but from an owner who is relieved at once), and only one at
   a time: an instance that holds an unproven suspect takes no other. It is proven when its checkpoint moves, or
   when it has been held for a partition expiration without an end. So a poison range costs the others nothing, and
   ends alone whoever tries it.

Several partitions of one owner are suspects together when it dies of one of them; each that makes progress is
cleared, until the bad one is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasehold.balancing.strategies import Claim
from leasehold.model import Checkpoint, Ownership

SUSPECT_AFTER = 2
"""Bad ends in a row that make a suspect."""
LONGEST_BACKOFF = 64
"""The longest wait before a suspect is tried again, in load-balancing intervals."""


def stands_still(record: Ownership, checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint has not moved since the partition was last claimed."""
    return record.owner_level > 0 and checkpoint.sequence_number <= record.claimed_at


def ended_badly(record: Ownership, claim: Claim, me: str) -> bool:
    """Whether the last owner came to a bad end that nobody has counted, by rule 1. My own lapse of trust is not one."""
    return bool(record.owner_id) and not claim.previous_owner and record.owner_id != me


def failures(record: Ownership, *, still: bool, badly: bool, waiting: bool) -> int:
    """The count after one more change of owner, by rule 2. `waiting`: the hub does not end at the checkpoint."""
    if not still or not waiting:
        return 0
    return record.failures + badly


def backoff(count: int, interval: float) -> float:
    """Seconds to leave a partition alone after its last owner's end."""
    if count < SUSPECT_AFTER:
        return 0.0
    return interval * min(LONGEST_BACKOFF, 1 << min(count - SUSPECT_AFTER, 62))


def patient(
    claims: Sequence[Claim], counts: Mapping[str, int], ages: Mapping[str, float], *, interval: float, unproven: bool
) -> list[Claim]:
    """The claims to make now, by rule 3. `ages`: seconds since the last owner's end; infinite if it is relieved."""
    fit = [claim for claim in claims if counts.get(claim.partition, 0) < SUSPECT_AFTER]
    ripe = [
        claim
        for claim in claims
        if counts.get(claim.partition, 0) >= SUSPECT_AFTER
        and ages[claim.partition] >= backoff(counts[claim.partition], interval)
    ]
    ripe.sort(key=lambda claim: counts[claim.partition])
    return fit if unproven else [*fit, *ripe[:1]]
