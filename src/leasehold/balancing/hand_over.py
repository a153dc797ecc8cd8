"""The hand-over of a partition from a live owner to the one whose share it is.

Owns the two halves of it, as tables. Promises that whatever stops in the middle, for a minute or for good, the
partition stays with a live owner or is free for one: an ask is void at any other owner level and from an asker
that is gone, a partition handed over is reserved for its successor for a while and not longer, and waiting has a
deadline.

The asker's half, for a partition that its plan gives it:

    the partition                               | my ask stands | asked for     | step
    --------------------------------------------|---------------|---------------|-------------------------------
    free, expired, or handed over to me         | -             | -             | CLAIM
    handed over to another a moment ago         | -             | -             | WAIT (it claims, or it is free)
    of a live owner that cannot be asked        | -             | -             | CLAIM (a steal)
    of a live owner                             | no            | no deadline   | ASK
    of a live owner                             | yes           | no deadline   | WAIT
    of a live owner                             | -             | the deadline  | CLAIM (a steal)

The owner's half, for a partition that it holds:

    asked for by                                | its work      | step
    --------------------------------------------|---------------|-------------------------------
    nobody, or one that is gone                 | -             | KEEP
    a live instance, at my owner level          | goes on       | DRAIN (finish what is begun, begin nothing)
    a live instance, at my owner level          | has ended     | HAND_OVER (relinquish, with the successor named)
    nobody any more                             | has ended     | RELINQUISH (free for whoever's share it is)

If the asker dies: its presence expires, the ask is void, the owner keeps the partition; after HAND_OVER the
reservation ends. If the owner dies: the record expires and the partition is free. If either restarts, it has
another id: the ask of the one before is void as if it had died, what was handed over to it is its successor's by
name, and what an owner before was asked for is claimed by the asker, since it cannot be asked any more. If both do:
both. If the ask, the hand-over or its reply is lost: the deadline ends the waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from leasehold.balancing.strategies import Claim
from leasehold.model import Ask, Ownership


class HandOverStep(Enum):
    """What to do about a partition next."""

    CLAIM = "claim"
    ASK = "ask"
    WAIT = "wait"
    KEEP = "keep"
    DRAIN = "drain"
    HAND_OVER = "hand over"
    RELINQUISH = "relinquish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A partition that my plan gives me, as it stands in the listing.

    `owned` says that a live owner has it, `listens` that the owner can be asked; `asked` that my ask stands at its
    present level, and `waited` for how many seconds I have been asking for it.
    """

    owned: bool
    reserved: bool = False
    listens: bool = True
    asked: bool = False
    waited: float = 0.0


def asker_step(wish: Wish, deadline: float) -> HandOverStep:
    """The asker's half. `deadline` in seconds."""
    if wish.reserved:
        return HandOverStep.WAIT
    if not wish.owned or not wish.listens or wish.waited >= deadline:
        return HandOverStep.CLAIM
    return HandOverStep.WAIT if wish.asked else HandOverStep.ASK


def owner_step(*, has_asker: bool, drained: bool) -> HandOverStep:
    """The owner's half."""
    if drained:
        return HandOverStep.HAND_OVER if has_asker else HandOverStep.RELINQUISH
    return HandOverStep.DRAIN if has_asker else HandOverStep.KEEP


@dataclass(frozen=True, slots=True)
class Requests:
    """What an instance does about its plan: claim now, ask for, and which asks of its own to take back."""

    claims: tuple[Claim, ...]
    asks: tuple[Ask, ...]
    withdrawn: tuple[Ask, ...]
    waiting: frozenset[str]


def requests(
    claims: Collection[Claim],
    records: Mapping[str, Ownership],
    asks: Mapping[str, Ask],
    *,
    me: str,
    listening: Collection[str],
    waited: Mapping[str, float],
    deadline: float,
) -> Requests:
    """Sort the claims of a plan by the asker's half.

    A claim names the live owner (or the successor) that it would take the partition from. `listening` are the
    instances that can be asked, `waited` how long I have asked for a partition, in seconds.
    """
    steps = {}
    for claim in claims:
        record, ask = records.get(claim.partition), asks.get(claim.partition)
        owned = bool(claim.previous_owner and record and record.owner_id)
        steps[claim] = asker_step(
            Wish(
                owned=owned,
                reserved=bool(claim.previous_owner) and not owned,
                listens=record is not None and record.owner_id in listening,
                asked=bool(record and ask and (ask.asker, ask.owner_level) == (me, record.owner_level)),
                waited=waited.get(claim.partition, 0.0),
            ),
            deadline,
        )
    pending = {claim.partition for claim, step in steps.items() if step in (HandOverStep.ASK, HandOverStep.WAIT)}
    return Requests(
        claims=tuple(claim for claim, step in steps.items() if step is HandOverStep.CLAIM),
        asks=tuple(
            Ask(records[claim.partition].group, claim.partition, records[claim.partition].owner_level, me)
            for claim, step in steps.items()
            if step is HandOverStep.ASK
        ),
        withdrawn=tuple(ask for ask in asks.values() if ask.asker == me and ask.partition not in pending),
        waiting=frozenset(pending),
    )
