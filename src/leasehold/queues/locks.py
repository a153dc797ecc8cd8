"""How long a lock of a queue is trusted: when it is renewed, and until when work is begun under it.

The service alone decides whether a lock is held. So one that may have ended is asked for, by renewing it, and is lost
when the service says so. Trust is counted on the monotonic clock, from before the request that gave the lock was sent.

The service says when a lock ends, by its own clock, and not how long it lasts. The wall clock of this machine says how
far away that end is, and is believed only as far as the service's own answers agree with it:

1. A lock is given after its message was enqueued: none lasts longer than from there to its end, both by the service's
   clock. So the first message that comes soon after it was sent corrects a clock behind.
2. A lock that was lost before anybody renewed it lasted no longer than it was held. This corrects a clock behind where
   all messages are old. A service that ends locks by itself, as at an update, makes for more renewals after that, too.
3. No lock is shorter than the queue's shortest. Where the wall clock leaves less to a message that is received, either
   it has waited here, as in a process that was paused, or the clock is ahead: the service is asked at once. Where it
   leaves less to a lock that was just renewed, with the time that the answer took, the clock is ahead, and the
   service's shortest lock is believed.

A clock that is wrong costs renewals, and a second delivery of a few messages where it is behind; never a second effect,
since the sink knows what is done. It is said once.

Concurrency: one `LockTimes` is used by one thread at a time.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from leasehold.clock import Clock
from leasehold.queues.base import QueueMessage

logger = logging.getLogger(__name__)

LONGEST = 30.0
"""The longest time, in seconds, for which a lock is trusted."""
SHORTEST = 5.0
"""The shortest lock, in seconds, that the portal of Service Bus takes, for a queue or a subscription."""
_ON_THE_WAY = 1.0
"""Seconds that an answer of the service may be on its way."""
_LEAST, _LEAST_LOST = 0.4, 1.0
"""What is believed of any lock, in seconds, and what is after locks that were lost sooner."""
_MARGIN = 0.9
_APART = 5.0
"""Seconds between two clocks from which on that is said."""


@dataclass(frozen=True, slots=True)
class LockTrust:
    """Until when a lock is trusted, and when it is to be renewed, on the monotonic clock.

    `since` is the moment before the request for it was sent.
    """

    until: float
    renew_at: float
    since: float = math.inf


LOST = LockTrust(-math.inf, math.inf)
"""The trust in a lock that is another's, for the service says so."""


@dataclass(frozen=True, slots=True)
class Answered:
    """When a request was `sent`, on the monotonic clock, and when its answer came, on that (`at`) and on the wall."""

    sent: float
    at: float
    wall: float

    @classmethod
    def now(cls, sent: float, clock: Clock) -> Answered:
        """The answer has just come."""
        return cls(sent, clock.monotonic(), clock.wall())


class LockTimes:
    """What a reader of a queue has learned of its locks. `shortest` is the queue's (`Queue.shortest_lock`)."""

    def __init__(self, queue: str, shortest: float) -> None:
        self._queue, self._shortest, self._longest = queue, shortest, LONGEST
        self._doubtful = max(shortest - _ON_THE_WAY, 0.0)
        self._said = False

    def received(self, message: QueueMessage, answered: Answered) -> LockTrust:
        """The trust in the lock under which a message has come."""
        if message.enqueued_time - answered.wall >= _APART:
            self._say(message.enqueued_time - answered.wall, "behind")
        left = self._left(message, answered)
        if left <= self._doubtful:  # rule 3
            return LockTrust(answered.sent, answered.at, answered.sent)
        return self._trust(left, answered)

    def renewed(self, message: QueueMessage, answered: Answered) -> LockTrust:
        """The trust in a lock that was renewed, of the message or of its session."""
        left, took = self._left(message, answered), answered.at - answered.sent
        if left + took <= self._doubtful:  # rule 3, also if the lock was given the moment it was asked for
            self._say(self._shortest - left - took, "ahead of")
            left = min(SHORTEST, self._longest) - took
        return self._trust(left, answered)

    def lost(self, trust: LockTrust, now: float) -> None:
        """The service has ended a lock that was not renewed since."""
        if trust.since < now:
            self._longest = max(min(self._longest, now - trust.since), self._shortest, _LEAST_LOST)  # rule 2

    def _left(self, message: QueueMessage, answered: Answered) -> float:
        """How long the lock lasts from the answer on, as far as the wall clock knows."""
        if message.locked_until > message.enqueued_time:
            self._longest = min(self._longest, message.locked_until - message.enqueued_time)  # rule 1
        return message.locked_until - answered.wall

    def _trust(self, seconds: float, answered: Answered) -> LockTrust:
        lasts = min(answered.at - answered.sent + min(seconds, self._longest), self._longest)
        lasts = max(lasts, _LEAST)
        return LockTrust(answered.sent + lasts * _MARGIN, answered.sent + lasts / 2, answered.sent)

    def _say(self, seconds: float, which: str) -> None:
        if not self._said:
            self._said = True
            logger.warning(
                "the clock of this machine is at least %.0f s %s that of %s. Set it; until then locks are renewed more "
                "often, and the service alone decides which are held",
                *(seconds, which, self._queue),
            )
