"""Sends what handlers have emitted, beside them: the thread of one table's outbox in one process.

Owns when it is sent, by whom, and what becomes of failures:

1. Only the owner of the partition that an event came from sends it (of a hub that is read no more it is whoever
   `parking.left_behind` says). It begins once it has raised the owner level in the table, so that no former owner puts
   anything behind what it reads; it takes the events in the order of their numbers, and removes them when the receiver
   has acknowledged them. So what a former owner has left is sent first.
2. Before each step it looks whether the partition is trusted; the removal checks the owner level, and a former owner
   that finds a higher one stops.
3. While the receiver or the table's database is away, nothing is lost: it is tried again, with pauses that double up to
   a longest, of which chance takes up to half away. That is said once, and once that it goes on.
4. An event that its receiver refuses for good, for example for its size, is marked in the outbox and passed by; it is
   sent alone first, to be sure. Others of its key go on. An operator may have it sent again
   (`sinks.beside.outbox.listing`): what nobody here has put there is looked for every `_LOOK` seconds, as long as the
   partition's batches come.

Concurrency: the handlers' threads put events and wake this one; none waits for it but `leave`, for a moment. In any
number of processes. Where this process stops for a minute, and another one takes the partition, behind each line of
`_send`:

    trusted        it may send what it reads next, though the new owner sends it too: a repeat, with the same id
    read           the same; the first of each pair is in order, since both begin with the first that is not removed
    sent           the new owner sends it again: a repeat. `remove` finds the higher level, and changes nothing
    removed        nothing is sent twice

A process that is killed at any of these lines leaves what was not removed to the next owner, or to its own next start,
which sends it again with the same id. An embedded log drops such repeats.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from leasehold.backoff import Backoff
from leasehold.errors import LeaseholdError, SchemaMismatch
from leasehold.handlers.places import Owner
from leasehold.handlers.publishing import Publisher, publisher_at
from leasehold.runtime import Runtime
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.outbox.contract import Outbox, WaitingEvent
from leasehold.sinks.features import STATES, require

logger = logging.getLogger(__name__)

_AT_ONCE, _SIZE = 500, 4 << 20
"""Events that are sent in one step, and the bytes of their bodies."""
_PAUSES = Backoff(0.5, 60.0)
_GLANCE = 0.5
_IDLE = 30.0
"""Seconds without anything to send after which the thread ends, and its connections with it."""
_LOOK = 10.0
"""Seconds between two looks at what nobody here has put there: an operator may have what was refused sent again."""
LEAVE = 5.0
"""The longest that a partition's ending waits for what it has emitted, in seconds."""
_LONGEST_REASON = 1_000

Lane = tuple[str, str]


@dataclass(slots=True)
class _Work:
    """What is to be done for one partition. `due` if there may be something to send, `busy` while that is done."""

    owner: Owner
    due: bool = True
    busy: bool = False
    looked_at: float = 0.0


class OutboxSender:
    """Sends the events of `outbox` that came from partitions which this process owns.

    `opened` opens what sends; `ended` is called in the thread, when it ends.
    """

    def __init__(
        self, outbox: Outbox, opened: Callable[[], Publisher], *, ended: Callable[[], object], runtime: Runtime
    ) -> None:
        self._outbox, self._opened, self._ended = outbox, opened, ended
        self._clock, self._rng = runtime.clock, runtime.rng
        self._changed = threading.Condition()
        self._work: dict[Lane, _Work] = {}
        self._thread: threading.Thread | None = None
        self._closing = False
        self._failures = 0
        self._not_before = 0.0

    def goes_on(self, owner: Owner) -> None:
        """This process owns the partition, and has raised the owner level in the table."""
        lane = (owner.hub, owner.partition)
        with self._changed:
            known, now = self._work.get(lane), self._clock.monotonic()
            if known is None or known.owner.owner_level != owner.owner_level:
                self._work[lane] = _Work(owner, looked_at=now)
                self._wake()
            elif now - known.looked_at >= _LOOK:
                known.due, known.looked_at = True, now
                self._wake()

    def emitted(self, hub: str, partition: str) -> None:
        """Events were put into the outbox for this partition."""
        with self._changed:
            if (work := self._work.get((hub, partition))) is not None:
                work.due = True
                self._wake()

    def leave(self, owner: Owner, at_most: float = LEAVE) -> None:
        """The work on the partition ends: what is left is sent, for a moment, while it is trusted and all goes well."""
        lane, until = (owner.hub, owner.partition), self._clock.monotonic() + at_most
        with self._changed:
            while (
                (work := self._work.get(lane)) is not None
                and (work.due or work.busy)
                and not self._failures
                and owner.trusted
                and (left := until - self._clock.monotonic()) > 0
            ):
                self._changed.wait(min(_GLANCE, left))
            self._work.pop(lane, None)

    def close(self) -> None:
        """End the thread, after what it is just sending, and wait a moment for that. It may be used again."""
        with self._changed:
            self._work.clear()
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(LEAVE)

    def _wake(self) -> None:
        self._closing = False
        if self._thread is None:
            # A daemon, since the receiver may hang in it: what it leaves is in the outbox.
            self._thread = threading.Thread(target=self._run, name="leasehold-outbox", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        publisher: Publisher | None = None
        try:
            while (work := self._next()) is not None:
                try:
                    publisher = publisher or self._opened()
                    more = self._send(work.owner, publisher)
                except Exception as error:  # noqa: BLE001  whatever failed, what is in the outbox is to be sent
                    self._give_up(publisher)
                    publisher = None
                    self._done(work, due=True, error=error)
                else:
                    self._done(work, due=more)
        finally:
            if publisher is not None:
                publisher.close()
            self._ended()

    def _give_up(self, publisher: Publisher | None) -> None:
        """What failed is opened again for the next try: a receiver that was made anew is another one."""
        if publisher is not None:
            with contextlib.suppress(Exception):
                publisher.close()

    def _next(self) -> _Work | None:
        """The next partition that something is to be done for, when it is time; None if the thread is to end."""
        with self._changed:
            idle_until = self._clock.monotonic() + _IDLE
            while True:
                now = self._clock.monotonic()
                due = next((work for work in self._work.values() if work.due), None)
                if self._closing or (due is None and now >= idle_until):
                    self._thread = None
                    return None
                if due is not None and now >= self._not_before:
                    due.due, due.busy = False, True
                    lane = (due.owner.hub, due.owner.partition)
                    self._work[lane] = self._work.pop(lane)  # the others are next
                    return due
                self._changed.wait(_GLANCE if due is not None else idle_until - now)

    def _send(self, owner: Owner, publisher: Publisher) -> bool:
        """Send some events of a partition; whether there may be more."""
        if not owner.trusted:
            return self._stop(owner)
        events = self._outbox.waiting(owner.hub, owner.partition, _AT_ONCE, _SIZE)
        if not events:
            return False
        if any(one.unfit for one in events):
            return self._send_one_by_one(owner, publisher, events)
        try:
            publisher.publish(events)
        except SchemaMismatch:
            return self._send_one_by_one(owner, publisher, events)
        return self._remove(owner, events) or self._stop(owner)

    def _send_one_by_one(self, owner: Owner, publisher: Publisher, events: list[WaitingEvent]) -> bool:
        for one in events:
            if not owner.trusted:
                return self._stop(owner)
            try:
                if one.unfit:
                    raise SchemaMismatch(one.unfit)
                publisher.publish([one])
            except SchemaMismatch as refused:
                logger.error("event %s of the outbox is passed by, since it is refused: %s", one.id, refused)
                reason = str(refused)[:_LONGEST_REASON]
                if not self._outbox.refuse(owner.hub, owner.partition, owner.owner_level, one.number, reason):
                    return self._stop(owner)
            else:
                if not self._remove(owner, [one]):
                    return self._stop(owner)
        return True

    def _remove(self, owner: Owner, events: list[WaitingEvent]) -> bool:
        numbers = [one.number for one in events]
        return self._outbox.remove(owner.hub, owner.partition, owner.owner_level, numbers)

    def _stop(self, owner: Owner) -> bool:
        """Another process owns the partition, or may: it sends what is left."""
        with self._changed:
            work = self._work.get((owner.hub, owner.partition))
            if work is not None and work.owner.owner_level == owner.owner_level:
                del self._work[owner.hub, owner.partition]
        return False

    def _done(self, work: _Work, *, due: bool, error: Exception | None = None) -> None:
        """A step has ended."""
        with self._changed:
            work.busy, work.due = False, work.due or due
            first, self._failures = not self._failures, 0 if error is None else self._failures + 1
            if error is not None:
                self._not_before = self._clock.monotonic() + _PAUSES.pause(self._failures, self._rng.random())
            self._changed.notify_all()
        if error is None:
            if not first:
                logger.warning("the outbox is sent again")
        elif first:
            # The reason is enough where it is known; what is not Leasehold's own is shown with where it came from.
            known = isinstance(error, LeaseholdError)
            said = "the outbox waits, nothing is lost, and sending is tried again: %s: %s"
            logger.warning(said, type(error).__name__, error, exc_info=None if known else error)


def sender_of(sink: Sink, url: str | None, runtime: Runtime) -> OutboxSender | None:
    """What sends the outbox of this sink's table to `url`, if there is one. Raises `ConfigError`, also for a sink that
    keeps none."""
    if url is None:
        return None
    kept = require(sink, STATES, "outbox, which a handler emits to")
    opened = publisher_at(url, runtime.base, sink.identity)
    kept.outbox.check()
    return OutboxSender(kept.outbox, opened, ended=sink.close, runtime=runtime)
