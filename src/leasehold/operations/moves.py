"""What has happened between two looks at a group: who took what from whom, and why. PURE.

Owns the kinds of moves and their reasons. Goes by the records alone: what begins and ends between two looks is not
seen, and where the records do not tell a reason, none is made up. An owner that was alive at the one look and has lost
its partition by the other had expired in between if it cannot have renewed in time; if it is no longer there, and could
have, it has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from leasehold.model import owner_name
from leasehold.operations.progress import GroupProgress, PartitionProgress
from leasehold.printable import span


class MoveKind(StrEnum):
    """What happened. The values are shown, and kept in files: none is ever changed."""

    CLAIMED = "claimed"
    TAKEN_OVER = "taken over"
    TAKEN_BACK = "taken back"
    HANDED_OVER = "handed over"
    STOLEN = "taken from a live owner"
    RELINQUISHED = "given up"
    EXPIRED = "not renewed"
    RENEWED = "renewed again"
    SUSPECTED = "suspected"
    CLEARED = "no longer suspected"
    RESET = "set back"
    JOINED = "joined"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Move:
    """Something that happened, seen `at` seconds since the epoch. `partition` is `""` for what is about an instance.

    `owner` is whose it is now, or was about; `before` who held it until then.
    """

    at: float
    kind: MoveKind
    partition: str = ""
    owner: str = ""
    before: str = ""
    reason: str = ""


def moves(
    before: GroupProgress | None, now: GroupProgress, at: float, *, elapsed: float = 0.0, expiration: float = inf
) -> list[Move]:
    """What has happened from one look to the next, instances first. Nothing for the first look.

    `elapsed` seconds are between the looks, and an owner expires that has not renewed for `expiration` seconds.
    """
    if before is None:
        return []
    here, were = {one.owner_id for one in now.instances}, {one.owner_id for one in before.instances}
    found = [Move(at, MoveKind.JOINED, owner=owner) for owner in sorted(here - were)]
    found += [Move(at, MoveKind.LEFT, owner=owner) for owner in sorted(were - here)]
    rows = {row.partition: row for row in before.partitions}
    for row in now.partitions:
        if row.partition in rows:
            found += _of_partition(_Step(rows[row.partition], row, at, elapsed, expiration, frozenset(here)))
    return found


@dataclass(frozen=True, slots=True)
class _Step:
    """A partition from one look to the next; `here` are the instances of the later one."""

    old: PartitionProgress
    new: PartitionProgress
    at: float
    elapsed: float
    expiration: float
    here: frozenset[str]

    @property
    def silence(self) -> float | None:
        """For how long the former owner had not renewed at the later look, at the least; None where nobody can tell."""
        return None if self.old.age is None else self.old.age + (self.elapsed if self.old.alive else 0.0)

    @property
    def expired(self) -> bool:
        """Whether the former owner was not alive any more when its partition went."""
        if not self.old.alive:
            return True
        gone = self.old.owner not in self.here
        return gone if self.silence is None else self.silence >= self.expiration


def _of_partition(step: _Step) -> Iterator[Move]:
    old, new, at = step.old, step.new, step.at
    if old.owner != new.owner or (new.owner and old.owner_level < new.owner_level):
        yield _change(step)
    elif new.owner and old.alive != new.alive:
        if new.alive:
            yield Move(at, MoveKind.RENEWED, new.partition, new.owner)
        else:
            age = "" if new.age is None else f"the last time {span(round(new.age))} ago"
            yield Move(at, MoveKind.EXPIRED, new.partition, new.owner, reason=age)
    if new.suspect and not old.suspect:
        yield Move(at, MoveKind.SUSPECTED, new.partition, new.owner, reason=new.last_error)
    elif old.suspect and not new.suspect:
        yield Move(at, MoveKind.CLEARED, new.partition, new.owner)
    if old.checkpoint is not None and (new.checkpoint is None or new.checkpoint < old.checkpoint):
        reason = f"from {old.checkpoint} to {'no checkpoint' if new.checkpoint is None else new.checkpoint}"
        yield Move(at, MoveKind.RESET, new.partition, new.owner, reason=reason)


def _change(step: _Step) -> Move:
    """The move of a partition whose owner has changed, or that one owner has claimed anew."""
    old, new = step.old, step.new

    def move(kind: MoveKind, reason: str = "") -> Move:
        return Move(step.at, kind, new.partition, new.owner, old.owner, reason)

    if not new.owner:
        return move(MoveKind.RELINQUISHED, f"{old.asked_by} asked for it" if old.asked_by else "")
    if not old.owner:
        return move(MoveKind.CLAIMED)
    if owner_name(old.owner) == owner_name(new.owner):
        return move(MoveKind.TAKEN_BACK, "the instance was started again" if old.owner != new.owner else "")
    if step.expired:
        age = "" if step.silence is None else f" for {span(round(step.silence))}"
        return move(MoveKind.TAKEN_OVER, f"{old.owner} had not renewed{age}")
    if old.asked_by == new.owner:
        return move(MoveKind.HANDED_OVER, f"{new.owner} asked for it")
    if old.asked_by:
        return move(MoveKind.HANDED_OVER, f"{old.asked_by} asked for it")
    return move(MoveKind.STOLEN) if old.owner in step.here else move(MoveKind.CLAIMED, f"{old.owner} has left")
