"""A lease as its holder has it: its fence, and the signal that it is lost.

Owns when a lease counts as lost, and that this is for good: the store said so, its trust has ended by this process's
clock, it was given up, or the process is a fork of the one that holds it. The signal needs no thread and no store to
become true: it looks at the clock, so it is right at the first look after a pause, and while a call of the store hangs.
Any thread may look and wait at any time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from leasehold.clock import Clock
from leasehold.errors import LeaseLost
from leasehold.leases.times import LeaseTimes, extended, trusted_until
from leasehold.model import Lease, LeaseSession

_LOOK = 1.0  # seconds after which who waits looks at the clock again: waiting does not count a machine's sleep

OUT_OF_TIME = "it was not renewed in time: the process was paused, or the store did not answer"
GIVEN_UP = "it was released"
FORKED = "it belongs to the process that this one was forked from"


class SessionTrust:
    """A session, and until when it is trusted. Trust that has ended, at any look, never comes back."""

    def __init__(self, session: LeaseSession, sent: float, times: LeaseTimes, clock: Clock) -> None:
        self.session = session
        self._times = times
        self._clock = clock
        self._lock = threading.Lock()
        self._until = trusted_until(sent, times)
        self._ended = False
        self.proven = sent
        """When the last request was sent by which the store has shown that the session lives."""
        self.told = threading.Condition()
        """Who waits for the loss of one of its leases waits here: one for all, since a batch takes thousands."""

    def remaining(self) -> float:
        """Seconds that it is trusted from now, as it stands: 0 once it has ended."""
        with self._lock:
            left = self._until - self._clock.monotonic()
            self._ended = self._ended or left <= 0
            return 0.0 if self._ended else left

    def extend(self, sent: float) -> bool:
        """Note that a request sent then has renewed it. False if that came too late."""
        with self._lock:
            until = None if self._ended else extended(self._until, sent, self._clock.monotonic(), self._times)
            self._ended = until is None
            if until is not None:
                self._until, self.proven = until, max(self.proven, sent)
            return not self._ended

    def end(self) -> None:
        """Trust it no more."""
        with self._lock:
            self._ended = True


class LossSignal:
    """Whether a lease is lost, to be checked and waited for, like a `threading.Event` that nobody clears."""

    def __init__(self, trust: SessionTrust) -> None:
        self._trust = trust
        self._pid = os.getpid()
        self._told = trust.told
        self._reason = ""
        self._calls: list[Callable[[], object]] = []

    @property
    def reason(self) -> str:
        """How it was lost, in words; empty while it is not."""
        if os.getpid() != self._pid:
            return FORKED
        if not self._reason and not self._trust.remaining():
            self._tell(OUT_OF_TIME)
        return self._reason

    def is_set(self) -> bool:
        """Whether the lease is lost."""
        return bool(self.reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost, or for `timeout` seconds; return whether it is."""
        until = None if timeout is None else self._trust._clock.monotonic() + timeout
        while not self.is_set():
            left = _LOOK if until is None else until - self._trust._clock.monotonic()
            if left <= 0:
                return False
            with self._told:
                if not self._reason:
                    self._told.wait(min(left, _LOOK, max(0.001, self._trust.remaining())))
        return True

    def remaining(self) -> float:
        """Seconds for which the lease is trusted unless it is renewed or told lost: 0 once it is lost."""
        return 0.0 if self.is_set() else self._trust.remaining()

    def call(self, done: Callable[[], object]) -> None:
        """Call this, from any thread, when the lease is told lost. Not when time alone ends it: see `remaining`."""
        with self._told:
            if not self._reason:
                self._calls.append(done)
                return
        done()

    def call_no_more(self, done: Callable[[], object]) -> None:
        """Take back a `call`, if it has not been made yet."""
        with self._told:
            if done in self._calls:
                self._calls.remove(done)

    def _tell(self, reason: str) -> None:
        with self._told:
            self._reason = self._reason or reason
            calls, self._calls = self._calls, []
            self._told.notify_all()
        for done in calls:
            done()


class HeldLease:
    """What blocking and asyncio leases say alike of the lease that they hold."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @property
    def scope(self) -> str:
        """What the key is unique in."""
        return self._lease.scope

    @property
    def key(self) -> str:
        """The entity's key."""
        return self._lease.key

    @property
    def fence(self) -> int:
        """Higher than any that was given for the key before: what is written to refuses a lower one."""
        return self._lease.fence

    @property
    def holder(self) -> str:
        """Who holds it: the name given to `EntityLeases`."""
        return self._lease.session.owner


class EntityLease(HeldLease, AbstractContextManager["EntityLease"]):
    """A lease that is held, and renewed by its process's `EntityLeases` until it is released or lost.

    `lost` is the signal that it is lost, `fence` what to send along with each write. As a context manager it releases
    itself at the end of the block.
    """

    def __init__(
        self, lease: Lease, trust: SessionTrust, taker: object, give_up: Callable[[EntityLease], object]
    ) -> None:
        super().__init__(lease)
        self._give_up = give_up
        self._taker = taker
        self._trust = trust
        self.lost = LossSignal(trust)

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost. To be called before each effect that a fence does not protect."""
        if reason := self.lost.reason:
            raise LeaseLost(self.scope, self.key, self.fence, reason)

    def release(self) -> None:
        """Give the lease up. One that is lost is left as it is; a store that is away is told later, and not raised."""
        self._give_up(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "lost" if self.lost.is_set() else "held"
        return f"<EntityLease {self.key!r} in {self.scope!r} fence {self.fence} {state}>"
