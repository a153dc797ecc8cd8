"""What operators do with a queue's dead letters: look, send again, remove.

Owns how chosen dead letters are taken: a queue gives out its messages only in its own order, so that all are locked in
turn until the chosen ones have come, and the others are given back. Nothing else may be lost: a copy is sent before its
dead letter is completed, under a name that no queue takes for a duplicate of its first (`Queue.resubmit`). A process
that ends between the two leaves the dead letter beside the copy, and whoever sends it again sends a second copy: a
queue with duplicate detection drops it within its window, any other queue has both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from leasehold.errors import QueueError
from leasehold.queues import Queue, QueueMessage

_AT_ONCE = 100
_WAIT = 2.0
"""Seconds for which nothing comes before a queue counts as looked through."""


@dataclass(frozen=True, slots=True)
class DeadLetterSelection:
    """Dead letters of these sequence numbers, or all; of them, those with a text in their reason or description."""

    numbers: Collection[int] | None = None
    reason_has: str | None = None

    def has(self, message: QueueMessage) -> bool:
        """Whether a dead letter is meant."""
        if self.numbers is not None and message.sequence_number not in self.numbers:
            return False
        said = f"{message.dead_letter_reason or ''} {message.dead_letter_description or ''}"
        return self.reason_has is None or self.reason_has in said


@dataclass(frozen=True, slots=True)
class Done:
    """Sequence numbers of the dead letters that are gone now, and why others that were meant are still there."""

    numbers: tuple[int, ...]
    left: tuple[tuple[int, str], ...]


def listed(dead: Queue, chosen: DeadLetterSelection, limit: int) -> list[QueueMessage]:
    """The first dead letters that are meant, in the order of their numbers. Locks nothing."""
    found: list[QueueMessage] = []
    start = 0
    while len(found) < limit:
        page = dead.peek(start, _AT_ONCE)
        if not page:
            break
        found += [message for message in page if chosen.has(message)]
        start = max(message.sequence_number for message in page) + 1
    return found[:limit]


def resubmit(dead: Queue, chosen: DeadLetterSelection) -> Done:
    """Send copies of dead letters into the queue where they died, without the marks of it, and remove them."""

    def again(message: QueueMessage) -> str:
        try:
            dead.resubmit([message])
        except QueueError as error:
            return str(error)
        return ""

    return _treated(dead, chosen, again)


def drop(dead: Queue, chosen: DeadLetterSelection) -> Done:
    """Remove dead letters for good."""
    return _treated(dead, chosen, lambda message: "")


def _treated(dead: Queue, chosen: DeadLetterSelection, first: Callable[[QueueMessage], str]) -> Done:
    """Complete each dead letter that is meant, once `first` has done its part; it says why not, or nothing."""
    gone: list[int] = []
    left: list[tuple[int, str]] = []
    seen: set[str] = set()
    others: list[QueueMessage] = []
    wanted = None if chosen.numbers is None else set(chosen.numbers)
    try:
        while wanted is None or wanted:
            page = dead.receive(_AT_ONCE, _WAIT)
            new = [message for message in page if message.identity not in seen]
            others += [message for message in page if message.identity in seen]
            if not new:
                break  # all have been looked at; what comes again is what was not meant
            for message in new:
                seen.add(message.identity)
                if wanted is not None:
                    wanted.discard(message.sequence_number)
                why = first(message) if chosen.has(message) else None
                if why is None or why:
                    others.append(message)
                if why:
                    left.append((message.sequence_number, why))
                if why == "":
                    if dead.complete([message]):
                        left.append((message.sequence_number, "its lock was lost before it could be removed"))
                    else:
                        gone.append(message.sequence_number)
    finally:
        dead.abandon(others)
    return Done(tuple(gone), tuple(left))
