"""Messages of a queue that requires sessions: the lock of a session stands in place of an entity's lease.

Owns the shell of such a queue: some workers, each in a thread with a connection of its own, and the thread of `run`,
which renews the locks of all their sessions. A worker takes the next free session, works through what is there in the
session's order, and gives it up, so that others get their turn; one that always has more is given up after its turn. It
never passes a message that is not settled: once it cannot go on with one, it closes the session, and the service gives
all that is left to the next holder, in order. No lease store is asked.

Who may be doing what at the same time: a worker and the renewing thread use one connection, under its mutex, which no
handler holds; other processes do the same with other sessions. When a worker's process stops for a minute behind each
line:

    session taken    its lock ends; another takes the session, and this one sees so at `check` and begins nothing
    handler called   so here. What the handler did elsewhere is done, and done again later
    committed        the message is done for good. It comes again if it is not completed, and is passed by
    completed        nothing is left to do

A process that goes on where it was may try to commit before it sees that its session is gone: the sink does nothing if
the message is done or the entity was changed meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from leasehold.clock import Clock
from leasehold.errors import LeaseholdError, LeaseLost, is_waited_out
from leasehold.processors.queues.content import ContentReader, Unfit
from leasehold.processors.queues.messages_in_hand import FAILED_REASON, Ending, HeldMessage, TryResult, counted_as
from leasehold.processors.queues.settings import QueueDelivery, pause
from leasehold.processors.queues.work import Work
from leasehold.queues import Queue, QueueMessage
from leasehold.queues.locks import LOST, Answered, LockTimes
from leasehold.runtime import Runtime

logger = logging.getLogger(__name__)

T = TypeVar("T")

_WAIT, _AWAY, _LOOK = 1.0, 2.0, 0.5
"""Seconds to wait for a free session, for a queue that is away, and at most until locks are looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedByWorkers:
    """What the workers of one processor have in common. `count` is called from any thread."""

    open: Callable[[], Queue]
    reader: ContentReader
    work: Work
    settings: QueueDelivery
    runtime: Runtime
    count: Callable[[str, int], None]
    stop: threading.Event
    close_thread: Callable[[], None]
    """Closes what a thread has opened of the sink."""


class Sessions:
    """The sessions that one process has at hand. `run` is called once."""

    def __init__(self, shared: SharedByWorkers) -> None:
        self._shared, self._away, self._wake = shared, _Away(), threading.Event()
        self._workers = [_Worker(shared, self._away, self._wake) for _ in range(shared.settings.workers)]

    def run(self, must_end: Callable[[], bool]) -> None:
        """Work until `must_end` says so, or `stop` is set. Raises the first error that no waiting mends."""
        threads = [
            threading.Thread(target=worker.run, name=f"leasehold-session-{number}", daemon=True)
            for number, worker in enumerate(self._workers)
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                if must_end():
                    self._shared.stop.set()
                now = self._shared.runtime.clock.monotonic()
                wait = min(_LOOK, *(worker.renewed(now) for worker in self._workers))
                self._wake.wait(max(wait, 0.05))
                self._wake.clear()
        finally:
            self._shared.stop.set()
            for thread in threads:
                thread.join()
        for worker in self._workers:
            if worker.failure is not None:
                raise worker.failure


class _Away:
    """Says once that the queue is away, however many workers find it so."""

    def __init__(self) -> None:
        self._mutex, self._without = threading.Lock(), set[int]()

    def told(self, worker: int, error: LeaseholdError | None, url: str) -> None:
        """Note what a worker's call has brought."""
        with self._mutex:
            some = bool(self._without)
            if error is not None:
                self._without.add(worker)
                if not some:
                    logger.warning("%s; waiting for it", str(error))  # the error would keep the connection alive
            elif some:
                self._without.discard(worker)
                if not self._without:
                    logger.info("the queue %s is back", url)


class _SessionLock:
    """The lock of the session at hand, as what keeps others from the entity."""

    fence = 0

    def __init__(self, queue: str, session: str, clock: Clock) -> None:
        self._queue, self.session, self._clock = queue, session, clock
        self.trust = LOST

    def trusted(self) -> bool:
        """Whether it is this process's, for all it knows."""
        return self._clock.monotonic() < self.trust.until

    def check(self) -> None:
        """Raise `LeaseLost` where it may be another's."""
        if not self.trusted():
            raise LeaseLost(self._queue, self.session, self.fence, "the lock of the session has ended")


class _Worker:
    """One thread's share: a session at a time. `renewed` is called by the thread that renews."""

    def __init__(self, shared: SharedByWorkers, away: _Away, wake: threading.Event) -> None:
        self._shared, self._away, self._wake = shared, away, wake
        self._mutex = threading.Lock()
        self._queue = shared.open()
        self._locks = LockTimes(self._queue.url, self._queue.shortest_lock)
        self._at_hand: tuple[_SessionLock, QueueMessage] | None = None
        self._session, self._since = "", 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """The thread."""
        try:
            while not self._shared.stop.is_set():
                self._turn()
        except BaseException as error:  # noqa: BLE001  whoever has started the thread raises it
            self.failure = error
            self._shared.stop.set()
        finally:
            self._at_hand = None
            with self._mutex:
                self._queue.close()
            self._shared.close_thread()
            self._wake.set()

    def renewed(self, now: float) -> float:
        """Renew the session's lock if that is due; return the seconds until it is due the next time."""
        at_hand = self._at_hand
        if at_hand is None:
            return _LOOK
        lock, message = at_hand
        if lock.trust.renew_at <= now:
            with self._mutex:
                if self._at_hand is at_hand:
                    self._renew(lock, message)
        return lock.trust.renew_at - self._shared.runtime.clock.monotonic() if lock.trusted() else _LOOK

    def _turn(self) -> None:
        """What is there of one session, or a wait for one."""
        shared = self._shared
        with self._mutex:
            found = self._told(lambda: self._queue.receive(shared.settings.at_once, _WAIT))
        if found is None:
            self._leave()
            shared.stop.wait(_AWAY)
        elif found:
            shared.count("received", len(found))
            lock = _SessionLock(self._queue.name, found[0].session_id or "", shared.runtime.clock)
            with self._mutex:
                self._renew(lock, found[0])  # how long it lasts is told only now, where the session is an old one
            self._at_hand = lock, found[0]
            self._wake.set()
            rest, goes_on = len(found), True
            while rest and goes_on:
                settled, goes_on = self._settled(found[-rest:], lock)
                rest -= settled
            self._at_hand = None
            if rest:
                shared.count("given_back" if shared.stop.is_set() else "lost", rest)
            if rest or self._has_had_its_turn(lock.session):
                self._leave()

    def _has_had_its_turn(self, session: str) -> bool:
        """Whether this worker has been with the session for long enough."""
        now = self._shared.runtime.clock.monotonic()
        if session != self._session:
            self._session, self._since = session, now
        return now - self._since >= self._shared.settings.session_turn

    def _settled(self, messages: Sequence[QueueMessage], lock: _SessionLock) -> tuple[int, bool]:
        """Try the first of these until they are done or dead; how many are, and whether the next may follow."""
        shared, settings = self._shared, self._shared.settings
        held = self._held(messages, lock)
        if isinstance(held, Unfit):
            dead = lock.trusted() and self._dead_letter(messages[0], held.reason, held.description)
            return int(dead), dead
        done, times = 0, 0
        while lock.trusted() and not shared.stop.is_set():
            results = shared.work.tried_together(held, lock, lambda: shared.stop.is_set() or not lock.trusted())
            for result in results:
                for name in counted_as(result.ending, in_hand=True):
                    shared.count(name, 1)
            tried = sum(each.goes_on and each.ending is not Ending.REJECTED for each in results)
            if tried and not self._completed([each.message for each in held[:tried]]):
                return done, False
            done += tried
            if tried == len(results):
                return done, True
            first, result = held[tried], results[tried]
            if result.ending is Ending.REJECTED:
                dead = self._dead_letter(first.message, result.reason, result.description)
                return done + dead, dead
            if result.ending is Ending.FAILED and not self._goes_on(first, result):
                dead = self._dead_letter(first.message, FAILED_REASON, result.description)
                return done + dead, dead
            held, times = [first], times + 1
            shared.stop.wait(pause(settings, times, shared.runtime.rng))
            first.trust = lock.trust
        return done, False

    def _held(self, messages: Sequence[QueueMessage], lock: _SessionLock) -> list[HeldMessage] | Unfit:
        """The first of them that can be read; or why the first one cannot."""
        held: list[HeldMessage] = []
        for message, content in zip(messages, self._shared.reader.read_all(messages), strict=True):
            if isinstance(content, Unfit):
                return held or content
            held.append(HeldMessage(message, content.lease_key, content, lock.trust))
        return held

    def _completed(self, messages: Sequence[QueueMessage]) -> bool:
        with self._mutex:
            return self._told(lambda: self._queue.complete(messages)) == []

    def _goes_on(self, held: HeldMessage, result: TryResult) -> bool:
        """Note a failed try; whether there is another one."""
        number, error = held.message.sequence_number, result.description
        logger.warning("message %d of %r: the handler raised %s", number, held.key, error)
        held.tries += 1
        return held.delivery <= self._shared.settings.max_deliveries

    def _dead_letter(self, message: QueueMessage, reason: str, description: str) -> bool:
        self._shared.count("used", 1)
        self._shared.count("rejected", 1)
        with self._mutex:
            done = self._told(lambda: self._queue.dead_letter(message, reason, description)) is True
        if done:
            self._shared.count("dead_lettered", 1)
            logger.warning("message %d is a dead letter: %s, %s", message.sequence_number, reason, description)
        return done

    def _renew(self, lock: _SessionLock, message: QueueMessage) -> None:
        """Under the mutex. A lock that was lost is trusted no more; while the queue is away it is until its end."""
        clock = self._shared.runtime.clock
        sent = clock.monotonic()
        found = self._told(lambda: self._queue.renew([message]))
        answered = Answered.now(sent, clock)
        if found:
            lock.trust = self._locks.renewed(found[0], answered)
        elif found is not None:
            self._locks.lost(lock.trust, answered.at)
            lock.trust = LOST

    def _leave(self) -> None:
        """Give the session up with all that is not settled of it: nothing of it counts as a failed delivery."""
        with self._mutex:
            self._queue.close()
            self._queue = self._shared.open()
            self._session = ""

    def _told(self, call: Callable[[], T]) -> T | None:
        """Call the queue. None while it is away."""
        try:
            found = call()
        except LeaseholdError as error:
            if not is_waited_out(error, worked=self._shared.work.worked):
                raise
            self._away.told(id(self), error, self._queue.url)
            return None
        self._away.told(id(self), None, self._queue.url)
        return found
