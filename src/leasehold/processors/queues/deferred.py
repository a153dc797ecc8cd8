"""Messages that lie deferred in the queue: received for the worker of their entity, and found if nobody has noted them.

Owns the calls of the queue for that. All is done in the thread that uses the queue, but for `fetch`, in which a worker
waits for it. A worker that waits when the processor stops is sent away; what comes for it then is in hand, and is given
back. A queue that is away gives nothing; whoever asked asks again.

Who may be doing what at the same time: another process may receive, complete or defer the same messages at any line.
Those that it has in hand are not received. A note is removed only when its message is nowhere in the queue, of any
state; one that was removed wrongly is made anew, since its message is found by looking through the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, cast

from leasehold.clock import Clock
from leasehold.processors.queues.content import ContentReader, Unfit
from leasehold.processors.queues.locks import lock_trust
from leasehold.processors.queues.messages_in_hand import HeldMessage, Start, Step
from leasehold.processors.queues.room import Room
from leasehold.processors.queues.turns import Fetched
from leasehold.queues import DefersMessages, Queue, QueueMessage
from leasehold.sinks.beside.messages.parking import ParkedMessage

_LOOK, _EVERY, _SOON, _PAGE = 0.5, 60.0, 5.0, 100
"""Seconds between two looks whether to go on waiting, between two looks through the queue, and until the next one where
a message was lost; messages of one look."""

Told = Callable[[Callable[[], Any]], Any]
"""Calls the queue; None while it is away."""


class _Defers(Queue, DefersMessages, Protocol):
    """A queue that defers."""


class DeferredMessages:
    """Those of one queue. `ask` has something done in the thread that uses the queue, and `perform` does there what is
    decided of a message in hand; `dead_letter` sets one aside."""

    def __init__(
        self,
        queue: Queue,
        room: Room,
        reader: ContentReader,
        *,
        told: Told,
        ask: Callable[[Callable[[], None]], None],
        perform: Callable[[Step], None],
        stopping: Callable[[], bool],
        dead_letter: Callable[[QueueMessage, str, str], None],
        clock: Clock,
    ) -> None:
        self._queue = cast(_Defers, queue)  # the policy is refused for any other, and nobody has noted messages of it
        self._room, self._reader, self._clock = room, reader, clock
        self._told, self._ask, self._perform, self._dead_letter = told, ask, perform, dead_letter
        self._stopping = stopping
        self._from, self._look_at = 1, 0.0

    def complete(self, held: Sequence[HeldMessage]) -> int:
        """Complete messages, deferred or not; how many were lost."""
        messages = [each.message for each in held]
        lost = self._told(lambda: self._queue.complete(messages))
        lost = messages if lost is None else lost
        self.lost(lost)
        return len(lost)

    def defer(self, held: Sequence[HeldMessage]) -> int:
        """Keep messages back that are noted; how many were lost to others."""
        lost = self._told(lambda: self._queue.defer([each.message for each in held]))
        return len(held) if lost is None else len(lost)

    def lost(self, messages: Sequence[QueueMessage]) -> None:
        """Messages could not be settled. Those that are deferred do not come again by themselves, as others do."""
        if any(each.deferred for each in messages):
            self._look_at = min(self._look_at, self._clock.monotonic() + _SOON)

    def fetch(self, start: Start, notes: Sequence[ParkedMessage]) -> Fetched:
        """In a worker's thread: have messages received."""
        answer: Future[Fetched] = Future()
        self._ask(lambda: answer.set_result(self._received(start, notes)))
        while not self._stopping():
            try:
                return answer.result(_LOOK)
            except TimeoutError:
                continue
        return Fetched()

    def unnoted(self) -> list[QueueMessage]:
        """The deferred messages of the next part of the queue, if it is time to look: some may be noted by nobody."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return []
        found = self._told(lambda: self._queue.peek(self._from, _PAGE))
        if not found:
            self._from, self._look_at = 1, now + (_LOOK if found is None else _EVERY)
            return []
        self._from = found[-1].sequence_number + 1
        return [each for each in found if each.deferred]

    def finish(self, done: Sequence[QueueMessage]) -> None:
        """Complete deferred messages that the sink knows as done."""
        found = self._told(lambda: self._queue.receive_deferred([each.sequence_number for each in done]))
        names = {each.identity for each in done}
        mine = [each for each in found or [] if each.identity in names]
        if mine:
            self._told(lambda: self._queue.complete(mine))

    def _received(self, start: Start, notes: Sequence[ParkedMessage]) -> Fetched:
        for step in self._room.settled():  # some of them may only be about to be deferred
            self._perform(step)
        noted = {each.name.identity: each for each in notes}
        sent = self._clock.monotonic()
        found = self._told(lambda: self._queue.receive_deferred([each.name.sequence_number for each in notes]))
        answered, wall = self._clock.monotonic(), self._clock.wall()
        if found is None:
            return Fetched()
        held = []
        for message in found:
            note = noted.pop(message.identity, None)
            content = self._reader.read(message)
            if note is None:  # of a queue that was made anew: its own note is another
                self._told(lambda message=message: self._queue.defer([message]))  # type: ignore[misc]
            elif isinstance(content, Unfit):
                self._dead_letter(message, content.reason, content.description)
            elif content.key != note.key:
                self._dead_letter(message, "NoKey", f"it was noted for {note.key}, and is of {content.key} now")
            else:
                trust = lock_trust(message.locked_until, sent=sent, answered=answered, wall=wall)
                held.append(self._room.adopt(start, message, content, trust, note.deliveries))
        missing = next(iter(noted.values()), None)  # those behind it have to wait for it anyhow
        gone = (missing,) if missing is not None and self._is_gone(missing) else ()
        return Fetched(tuple(held), gone)

    def _is_gone(self, note: ParkedMessage) -> bool:
        """Whether the queue has the message in no state: it has ended its life there, or is a dead letter."""
        found = self._told(lambda: self._queue.peek(note.name.sequence_number, 1))
        return found is not None and not any(each.identity == note.name.identity for each in found)
