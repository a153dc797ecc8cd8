"""Why the work on a partition ends, and in which order.

Owns both, as tables. Promises one order whatever the reason: drain, stop handler, checkpoint, relinquish; nothing is
left out but what the reason forbids. Pure.

    reason                            | stop handler | checkpoint what is owed | relinquish
    ----------------------------------|--------------|-------------------------|---------------------------
    SHUTDOWN                          | yes          | yes                     | yes
    HANDED_OVER                       | yes          | yes                     | yes, to who asked
    OWNERSHIP_LOST                    | yes          | no: it is another's     | no: it is another's
    FAILED, to be started again       | yes          | yes                     | no
    FAILED once too often             | yes          | yes                     | yes, with the error

A stop handler is called for what was started, and a checkpoint is written only if the stop handler has returned: it
may have failed to write down what the checkpoint would promise.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from leasehold.balancing.hand_over import HandOverStep, owner_step
from leasehold.ownership.holds import Hold


class StopReason(StrEnum):
    """Why the work on a partition ends."""

    SHUTDOWN = "the processor is stopped"
    OWNERSHIP_LOST = "another instance owns the partition, or may"
    HANDED_OVER = "another instance has asked for the partition"
    FAILED = "a handler raised, or the events could not be read"


class EndingStep(Enum):
    """One step of an ending, in order."""

    DRAIN = 1
    STOP_HANDLER = 2
    CHECKPOINT = 3
    RELINQUISH = 4


def reason_to_stop(hold: Hold | None, owner_level: int, *, shutdown: bool) -> StopReason | None:
    """Why to begin nothing more for a partition worked on at `owner_level`; `hold` is how it is held now, if it is."""
    if hold is None or hold.owner_level != owner_level:
        return StopReason.OWNERSHIP_LOST
    if shutdown:
        return StopReason.SHUTDOWN
    drain = owner_step(has_asker=bool(hold.asked_by), drained=False) is HandOverStep.DRAIN
    return StopReason.HANDED_OVER if drain else None


def steps(reason: StopReason, *, started: bool, again: bool = False) -> tuple[EndingStep, ...]:
    """The steps of an ending, in order. `started`: the start handler has returned; `again`: it is started again."""
    taken = [EndingStep.DRAIN]
    if started:
        taken.append(EndingStep.STOP_HANDLER)
    if reason is not StopReason.OWNERSHIP_LOST:
        taken.append(EndingStep.CHECKPOINT)
        if not again:
            taken.append(EndingStep.RELINQUISH)
    return tuple(taken)
