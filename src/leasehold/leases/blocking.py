"""Leases of entities for anyone's code: exclusive for a time, renewed while held, with a fence.

    leases = EntityLeases("redis://…", scope="billing", holder="billing-1", duration=30)
    with leases.hold("order-42", wait=10) as lease:
        repository.save(order, fence=lease.fence)

Promises: at most one holder trusts a key at any time, whatever dies, hangs or is paused, as far as the machines' clocks
run at rates within a fourth of each other. Trust can still be wrong by the moment between a look and the write after
it; what the write goes to closes that gap by refusing lower fences. Refuses: re-entry, by name; a key that this process
holds for another thread is waited for like any other.

Owns the blocking shell: the rules are in `lease_taking`, `lease_keeper` and `lease_times`.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from leasehold.clock import Clock, SystemClock
from leasehold.config import check_given
from leasehold.errors import LeaseholdError
from leasehold.leases.keeper import LeaseKeeper
from leasehold.leases.key_turns import LeaseTurns, Tenures, check_no_place
from leasehold.leases.lease import EntityLease
from leasehold.leases.taking import Call, Steps, Surroundings, check_wait
from leasehold.leases.times import lease_times
from leasehold.stores import LeaseStore, open_lease_store
from leasehold.stores.closing import close_store
from leasehold.stores.lease_rules import check_duration, check_keys, check_owner


class EntityLeases:
    """The leases of one holder in one scope. Make one for the process, and use it from any thread.

    store       a store's URL (`redis://…`, `postgresql://…`, `azblob://…`, `aztable://…`, `sqlite:///…`), or a
                `LeaseStore`
    scope       what keys are unique in: an application, a table. Those who are to keep out of each other's way name the
                same. 1 to 200 bytes
    holder      who holds, for people; default: host and process id
    duration    seconds after which a holder that died, hangs or is paused has lost its leases (30). It trusts them for
                a fifth and a second less. Azure Blob Storage takes 15 to 60
    timeout     seconds that a call of the store may take, where `store` is a URL (3, less for short durations)
    clock       for tests: tells the time
    rng         for tests: the jitter of pauses

    One session and one thread serve all leases of the object; the thread lives while something is held. Raises
    `ConfigError` for what a store cannot keep, and `MissingDependency`. No call of the store is made before the first
    lease is asked for. A forked process holds nothing, and may use the object.
    """

    def __init__(
        self,
        store: str | LeaseStore,
        *,
        scope: str,
        holder: str | None = None,
        duration: float = 30.0,
        timeout: float | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        holder = f"{socket.gethostname()}/{os.getpid()}" if holder is None else holder
        times = lease_times(duration)
        check_given("store", store)
        check_keys(scope, [])
        check_owner(holder)
        self._opened = isinstance(store, str)
        self._store = open_lease_store(store, timeout=timeout or times.timeout) if isinstance(store, str) else store
        check_duration(duration, self._store.features)
        self._clock, self._rng = clock or SystemClock(), rng or Random()
        self._keeper = LeaseKeeper(
            self._store,
            scope=scope,
            holder=holder,
            times=times,
            clock=self._clock,
            rng=self._rng,
            freed=lambda key: self._freed(key),
        )
        self._begin()
        _ALL.add(self)

    def _begin(self) -> None:
        self._turns, self._tenures = LeaseTurns(), Tenures()
        self._around = Surroundings(self._keeper, self._turns, self._tenures, self._store, self._clock, self._rng)

    def _freed(self, key: str) -> None:
        self._tenures.held(key, self._clock.monotonic())
        self._turns.wake(key)

    @contextmanager
    def hold(self, key: str, wait: float = 10.0) -> Iterator[EntityLease]:
        """Hold the lease of a key during the block; it is released whatever happens in there.

        Waits for it, at most `wait` seconds and the time-out of a call: pauses of 0.05 to 1 s, with jitter. Those of
        one process come strictly in turn. Between processes, one is next and asks for the key, and the others wait to
        be that: the one whose time is nearest to its end asks most often. Who takes a key again and again lets the next
        one pass after 0.1 s.
        Raises `LeaseBusy`, which names the holder and the time left, `StoreUnavailable` if the store was away until the
        end, and `UsageError` if the same thread holds the key already. That the lease was lost during the block raises
        nothing: `lease.lost` and `lease.check()` tell.
        """
        lease = self.acquire(key, wait)
        try:
            yield lease
        finally:
            lease.release()

    def acquire(self, key: str, wait: float = 10.0) -> EntityLease:
        """The same for a lease that outlives a block: whoever gets it calls `release`, in any thread."""
        check_wait(wait)
        woken = threading.Event()
        return _performed(self._taking(key, wait, threading.current_thread(), woken.set), woken)

    def try_acquire(self, key: str) -> EntityLease | None:
        """The lease of a key, or None if it is busy: held, by whomever. One call of the store.

        Where it is busy, another call asks whether the store still has this holder's session, at most once a second.
        """
        won = self.acquire_many([key])
        return won[0] if won else None

    def acquire_many(self, keys: Sequence[str]) -> list[EntityLease]:
        """Take those keys that are free, and return their leases, in the order asked for: one call of the store for
        10,000 of them. Waits for none, so two who ask for the same keys in another order do not block each other.
        """
        self._begin_again_after_a_fork()
        for key in keys:
            check_no_place(key)
        return self._keeper.acquire(keys, threading.current_thread())

    @property
    def takes_many(self) -> bool:
        """Whether the store takes many keys in one call; else `acquire_many` makes one for each."""
        return not self._store.features.native_leases

    def release_many(self, leases: Sequence[EntityLease]) -> None:
        """Give these leases up, in one call of the store for 10,000."""
        self._keeper.release(leases)

    def close(self) -> None:
        """Give up everything that is held, and close the store if this object has opened it."""
        self._keeper.close()
        if self._opened:
            close_store(self._store)

    def _taking(self, key: str, wait: float, taker: object, wake: Callable[[], object]) -> Steps:
        self._begin_again_after_a_fork()
        return self._around.taking(key, wait=wait, taker=taker, wake=wake)

    def _begin_again_after_a_fork(self) -> None:
        if self._keeper.after_fork():
            self._begin()


_ALL: weakref.WeakSet[EntityLeases] = weakref.WeakSet()


def _after_fork() -> None:
    """In the child, which has one thread yet: two would begin again at once, and on locks that nobody gives back."""
    for leases in list(_ALL):
        leases._begin_again_after_a_fork()


os.register_at_fork(after_in_child=_after_fork)


def _performed(steps: Steps, woken: threading.Event) -> EntityLease:
    """Perform the steps in this thread."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, Call):
                try:
                    result = step.run()
                except LeaseholdError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
            else:
                woken.wait(step.seconds)
                woken.clear()
                step = next(steps)
    except StopIteration as done:
        lease: EntityLease = done.value
        return lease
    finally:
        steps.close()
