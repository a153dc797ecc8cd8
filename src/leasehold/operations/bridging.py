"""A queue drained into a hub.

Owns the order of steps: receive under locks, append durably, complete. What stops in between leaves messages that the
queue gives out again: a hub that remembers names (`Hub.send_once`; the embedded log) has each message once, because it
keeps them in the transaction that appends; into any other hub a message may come twice, and `deduplicate_by` of a
pipeline drops the second. A message that can be no event of the hub is dead-lettered, so that others go on: one without
bytes, and one that the hub refuses for what it is, for example for its size. It is then sent alone, to be sure.

While the hub is away, messages stay locked here and are renewed, since each delivery that fails brings them nearer to
the dead letters. A process that stops for longer than the locks last finds them lost, and completes nothing that is
not its own any more. Several processes may drain one queue into one hub. Events of one key keep the queue's order only
with one of them, and while no lock is lost.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leasehold.clock import Clock, SystemClock
from leasehold.errors import LeaseholdError, SchemaMismatch, Verdict
from leasehold.hubs import Hub
from leasehold.model import Event
from leasehold.queues import Queue, QueueMessage
from leasehold.queues.keys import KeyOf
from leasehold.queues.locks import Answered, LockTimes, LockTrust

QUEUE, NUMBER, MESSAGE_ID, SESSION = (
    *("leasehold-queue", "leasehold-sequence-number", "leasehold-message-id", "leasehold-session-id"),
)
"""Properties of an event that say which message it was."""

REMEMBER = 14 * 86_400.0
"""Seconds for which a hub that can remembers a message: as long as a queue keeps one by default."""

_PAUSES = 0.05, 1.0
"""The shortest and the longest pause, in seconds, before a hub that is away is asked again."""
_LONGEST_REASON = 1_000
_NO_BYTES = "The message holds an AMQP value, or AMQP that cannot be read, and an event of a hub is bytes"


@dataclass(frozen=True, slots=True)
class Bridged:
    """What has been done: messages `received`, those `appended` and those `dead_lettered`, which can be no events.

    `repeated` had been appended before; the locks of `lost` ended before they were completed, so that they come again.
    """

    received: int = 0
    appended: int = 0
    repeated: int = 0
    dead_lettered: int = 0
    lost: int = 0

    def __add__(self, other: Bridged) -> Bridged:
        mine, its = (self, other)
        return Bridged(
            mine.received + its.received,
            mine.appended + its.appended,
            mine.repeated + its.repeated,
            mine.dead_lettered + its.dead_lettered,
            mine.lost + its.lost,
        )


def event_of(message: QueueMessage, queue: str, key: str | None) -> Event:
    """The event that a message becomes. Without a key all go to one partition, and keep their order."""
    stated = {QUEUE: queue, NUMBER: str(message.sequence_number)}
    for name, value in ((MESSAGE_ID, message.message_id), (SESSION, message.session_id)):
        if value is not None:
            stated[name] = value
    assert message.body is not None
    return Event(message.body, partition_key=key or "", properties={**message.properties, **stated})


@dataclass(frozen=True, slots=True)
class _Held:
    """Messages whose locks are held, and the trust in each."""

    messages: Sequence[QueueMessage]
    trusts: Sequence[LockTrust]

    @property
    def renew_at(self) -> float:
        """When the first of them is to be renewed."""
        return min((trust.renew_at for trust in self.trusts), default=math.inf)


class Bridge:
    """One process's share of draining `queue` into `hub`.

    `key_of` gives the key of a message's entity. `say` is told once of a hub that is away, and `pause` waits this many
    seconds, or returns something true: then the bridge stops, and gives its messages back. `remember` is in seconds.
    """

    def __init__(
        self,
        queue: Queue,
        hub: Hub,
        *,
        key_of: KeyOf,
        say: Callable[[LeaseholdError], object],
        pause: Callable[[float], object],
        remember: float = REMEMBER,
        clock: Clock | None = None,
    ) -> None:
        self._queue, self._hub, self._key_of = queue, hub, key_of
        self._say, self._pause, self._remember = say, pause, remember
        self._clock = clock or SystemClock()
        self._locks = LockTimes(queue.url, queue.shortest_lock)

    def step(self, most: int, wait: float) -> Bridged:
        """Move up to `most` messages; wait up to `wait` seconds for the first. `received` is 0 where none came."""
        sent = self._clock.monotonic()
        received = self._queue.receive(most, wait)
        answered = Answered.now(sent, self._clock)
        empty = [message for message in received if message.body is None]
        dead = sum(self._queue.dead_letter(each, "NoBytes", _NO_BYTES) for each in empty)
        messages = [message for message in received if message.body is not None]
        done = Bridged(received=len(received), dead_lettered=dead, lost=len(empty) - dead)
        if not messages:
            return done
        held = _Held(messages, [self._locks.received(message, answered) for message in messages])
        outcome = self._append(messages, held)
        if outcome is None:
            self._queue.abandon(messages)
            return done
        appended, refused = outcome
        taken = [message for message in messages if message.identity not in refused]
        lost = self._queue.complete(taken)
        done += Bridged(appended=appended, repeated=len(taken) - appended, lost=len(lost))
        for message in messages:
            if message.identity in refused:
                dead = self._queue.dead_letter(message, "RefusedByHub", refused[message.identity])
                done += Bridged(dead_lettered=int(dead), lost=int(not dead))
        return done

    def _append(self, messages: Sequence[QueueMessage], held: _Held) -> tuple[int, dict[str, str]] | None:
        """Append, as long as it takes. How many were new to the hub, and why it refused others, by their identities.

        `None` where the bridge is to stop.
        """
        told = False
        appended, refused = 0, dict[str, str]()
        rest = deque([messages])
        while rest:
            if held.renew_at <= self._clock.monotonic():
                held = self._renewed(held)
            try:
                appended += self._sent(rest[0])
                rest.popleft()
            except SchemaMismatch as error:
                group = rest.popleft()
                if len(group) == 1:
                    refused[group[0].identity] = str(error)[:_LONGEST_REASON]
                else:
                    rest.extend([message] for message in group)
            except LeaseholdError as error:
                if error.verdict is not Verdict.PASSES:
                    self._queue.abandon(messages)
                    raise
                if not told:
                    self._say(error)
                    told = True
                shortest, longest = _PAUSES
                if self._pause(max(shortest, min(longest, (held.renew_at - self._clock.monotonic()) / 2))):
                    return None
        return appended, refused

    def _renewed(self, held: _Held) -> _Held:
        """Those that are held still; the service says which."""
        sent = self._clock.monotonic()
        still = self._queue.renew(held.messages)
        answered = Answered.now(sent, self._clock)
        numbers = {message.identity for message in still}
        for message, trust in zip(held.messages, held.trusts, strict=True):
            if message.identity not in numbers:
                self._locks.lost(trust, answered.at)
        return _Held(still, [self._locks.renewed(message, answered) for message in still])

    def _sent(self, messages: Sequence[QueueMessage]) -> int:
        queue = self._queue.name
        events = [(each.identity, event_of(each, queue, self._key_of(each))) for each in messages]
        return self._hub.send_once(queue, events, remember=self._remember)
