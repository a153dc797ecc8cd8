"""Who holds which session of a queue: pure, with the time as an argument.

Owns the locks of sessions. A holder is whatever object the caller names, a link; the messages that it has received are
locked as long as the session is.

1. A session has at most one holder. It is free when its holder closes it, or does not renew in time.
2. What was locked when a session ends is free again: counted as a failed delivery when the lock ran out, not when the
   holder closed it, as the service documents.
3. Who asks for the next free session gets the one with the oldest message that can be received.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from leasehold_testkit.emulators.amqp.conditions import SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST, AmqpError
from leasehold_testkit.emulators.service_bus.queue import Queue


@dataclass(frozen=True, slots=True)
class SessionLock:
    """A session, who holds it, and until when, in milliseconds since the epoch."""

    session: str
    holder: object
    until: int


class SessionLocks:
    """The locks of the sessions of one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._locks: dict[str, SessionLock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def next_due(self) -> int | None:
        """When a lock runs out, at the earliest."""
        return min((lock.until for lock in self._locks.values()), default=None)

    def advance(self, now: int) -> list[SessionLock]:
        """End the locks that have run out by now; return them."""
        over = [lock for lock in self._locks.values() if lock.until <= now]
        for lock in over:
            del self._locks[lock.session]
            self._queue.release_session(lock.session, now, failed=True)
        return over

    def lose(self, now: int) -> int:
        """Let all locks run out now, each with those of its messages; return how many sessions there were."""
        self._locks = {session: replace(lock, until=now) for session, lock in self._locks.items()}
        return len(self._locks)

    def accept(self, session_id: str | None, holder: object, now: int) -> SessionLock | None:
        """Lock a session, the next free one if none is named; `None` where there is no free one now.

        Raises `AmqpError` for a named one that another holds.
        """
        if session_id is not None and session_id in self._locks:
            what = f"another receiver holds the session {session_id!r:.140} of {self._queue.name}"
            raise AmqpError(SESSION_CANNOT_BE_LOCKED, what)
        self._queue.advance(now)
        if session_id is None:
            free = {
                number: session for session, number in self._queue.free_sessions().items() if session not in self._locks
            }
            if not free:
                return None
            session_id = free[min(free)]
        lock = self._locks[session_id] = SessionLock(session_id, holder, now + self._queue.lock_millis)
        return lock

    def held(self, session: str, holder: object) -> SessionLock:
        """The lock that somebody believes to have. Raises `AmqpError` if it is not theirs (any more)."""
        lock = self._locks.get(session)
        if lock is None or lock.holder is not holder:
            what = (
                f"the lock of session {session!r:.140} of {self._queue.name} has expired, or this receiver never had it"
            )
            raise AmqpError(SESSION_LOCK_LOST, what)
        return lock

    def until(self, session: str) -> int | None:
        """Until when a session is locked; `None` where it is not."""
        lock = self._locks.get(session)
        return None if lock is None else lock.until

    def renew(self, session: str, holder: object, now: int) -> int:
        """Hold a session for another lock duration from now; return until when."""
        lock = replace(self.held(session, holder), until=now + self._queue.lock_millis)
        self._locks[session] = lock
        return lock.until

    def close(self, session: str, holder: object, now: int) -> None:
        """The holder gives the session up; nothing happens where it does not hold it any more."""
        lock = self._locks.get(session)
        if lock is not None and lock.holder is holder:
            del self._locks[session]
            self._queue.release_session(session, now, failed=False)
