"""Leases of entities for asyncio: `leasehold.leases` with `async` and `await`, and the same rules.

    leases = AsyncEntityLeases("redis://…", scope="billing")
    async with leases.hold("order-42", wait=10) as lease:
        await repository.save(order, fence=lease.fence)

Owns the awaiting shell: each call of a store runs in a thread of this object's own (`threads`), and nothing here
decides anything about leases. What is given up never waits for a thread behind what is asked for. A task that is
cancelled while it waits gives back what it may still win. The renewals run in a thread of their own, so a loop that is
blocked loses nothing by that, and a lease may be held by a loop that hangs: check it.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from types import TracebackType
from typing import Any

from leasehold.clock import Clock
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.leases import blocking as blocking_leases
from leasehold.leases import lease as blocking
from leasehold.leases.taking import Call, Steps, check_wait
from leasehold.leases.threads import Threads
from leasehold.printable import span
from leasehold.stores import LeaseStore

_LOOK = 1.0  # seconds after which who waits looks at the clock again
_ASKING, _GIVING = 32, 8
"""Calls of one object at a time: those that ask for leases, and those that give them up."""


class AsyncLossSignal:
    """Whether a lease is lost, to be checked and awaited."""

    def __init__(self, signal: blocking.LossSignal) -> None:
        self._signal = signal

    @property
    def reason(self) -> str:
        """How it was lost, in words; empty while it is not."""
        return self._signal.reason

    def is_set(self) -> bool:
        """Whether the lease is lost."""
        return self._signal.is_set()

    def remaining(self) -> float:
        """Seconds for which the lease is trusted unless it is renewed or told lost: 0 once it is lost."""
        return self._signal.remaining()

    async def wait(self) -> bool:
        """Wait until the lease is lost. Always true; give it a time with `asyncio.timeout`."""
        told = asyncio.Event()
        wake = _waking(asyncio.get_running_loop(), told)
        self._signal.call(wake)
        try:
            while not self._signal.is_set():
                await _within(told, min(_LOOK, max(0.001, self._signal.remaining())))
        finally:
            self._signal.call_no_more(wake)
        return True


class AsyncEntityLease(blocking.HeldLease):
    """A lease that is held, as `leasehold.leases.EntityLease`; `release` is awaited."""

    def __init__(self, lease: blocking.EntityLease, giving: Threads) -> None:
        super().__init__(lease._lease)
        self._held, self._giving = lease, giving
        self.lost = AsyncLossSignal(lease.lost)

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost."""
        self._held.check()

    async def release(self) -> None:
        """Give the lease up. Never raises that the store is away. Cancelled, it is given up all the same."""
        await self._giving.run(self._held.release)

    async def __aenter__(self) -> AsyncEntityLease:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    def __repr__(self) -> str:
        return repr(self._held)


class AsyncEntityLeases:
    """The leases of one holder in one scope.

    `store`, `scope`, `holder`, `duration`, `timeout`, `clock` and `rng` are as for `leasehold.leases.EntityLeases`.
    May be used by several loops and threads. Whoever `hold`s is the task: another task waits for its turn.
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
        self._leases = blocking_leases.EntityLeases(
            store, scope=scope, holder=holder, duration=duration, timeout=timeout, clock=clock, rng=rng
        )
        self._asking, self._giving = Threads(_ASKING, "leases-asked"), Threads(_GIVING, "leases-given-up")

    @asynccontextmanager
    async def hold(self, key: str, wait: float = 10.0) -> AsyncIterator[AsyncEntityLease]:
        """Hold the lease of a key during the block, as the blocking `hold` does, and raising the same errors.

        At most 32 calls ask the store at a time. Where none of them ends in time, as with a store that hangs, it is
        `StoreUnavailable`, after `wait` seconds or one second.
        """
        lease = await self.acquire(key, wait)
        try:
            yield lease
        finally:
            await lease.release()

    async def acquire(self, key: str, wait: float = 10.0) -> AsyncEntityLease:
        """The same for a lease that outlives a block: whoever gets it awaits `release`."""
        check_wait(wait)
        woken, loop = asyncio.Event(), asyncio.get_running_loop()
        steps = self._leases._taking(key, wait, asyncio.current_task(), _waking(loop, woken))
        return AsyncEntityLease(await self._performed(steps, woken, loop.time() + wait), self._giving)

    async def try_acquire(self, key: str) -> AsyncEntityLease | None:
        """The lease of a key, or None if it is busy. One call of the store.

        Where it is busy, another call asks whether the store still has this holder's session, at most once a second.
        """
        won = await self.acquire_many([key])
        return won[0] if won else None

    async def acquire_many(self, keys: Sequence[str]) -> list[AsyncEntityLease]:
        """Take those keys that are free, and return their leases: one call of the store for 10,000 of them."""
        won = await self._called(lambda: self._leases.acquire_many(keys))
        return [AsyncEntityLease(lease, self._giving) for lease in won]

    @property
    def takes_many(self) -> bool:
        """Whether the store takes many keys in one call; else `acquire_many` makes one for each."""
        return self._leases.takes_many

    async def release_many(self, leases: Sequence[AsyncEntityLease]) -> None:
        """Give these leases up, in one call of the store for 10,000."""
        await self._giving.run(self._leases.release_many, [one._held for one in leases])

    async def close(self) -> None:
        """Give up everything that is held, and close the store if this object has opened it."""
        await self._giving.run(self._leases.close)
        self._asking.close()
        self._giving.close()

    async def _performed(self, steps: Steps, woken: asyncio.Event, until: float) -> blocking.EntityLease:
        """Perform the steps in this task. A call waits for a thread until `until`, by the loop's time, or a second."""
        loop = asyncio.get_running_loop()
        try:
            step = next(steps)
            while True:
                if isinstance(step, Call):
                    try:
                        result = await self._called(step.run, max(_LOOK, until - loop.time()))
                    except LeaseholdError as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(result)
                else:
                    await _within(woken, step.seconds)
                    woken.clear()
                    step = next(steps)
        except StopIteration as done:
            lease: blocking.EntityLease = done.value
            return lease
        finally:
            if inspect.getgeneratorstate(steps) != inspect.GEN_CLOSED:  # it gives up what it has won: a call
                await self._giving.run(steps.close)

    async def _called(self, call: Callable[[], Any], patience: float = math.inf) -> Any:
        """What a call returns that runs in a thread. Cancelled, what it still wins is given back when it ends.

        Raises `StoreUnavailable` where no thread is free for it within `patience` seconds.
        """
        running = _Call(call, self._leases.release_many)
        ended = self._asking.run(running.run)
        try:
            done, _ = await asyncio.wait([ended], timeout=None if patience == math.inf else patience)
            if not done and running.skip():
                raise StoreUnavailable(
                    f"{_ASKING} calls of the store that ask for leases are under way, and none has ended for "
                    f"{span(patience)}"
                )
            return await ended
        except asyncio.CancelledError:
            if won := running.abandon():
                await self._giving.run(self._leases.release_many, won)
            raise
        finally:
            ended.cancel()  # nobody asks any more what becomes of it


class _Call:
    """A call in a thread that nobody may be waiting for any more when it ends, nor a loop be running.

    Either the task takes what was won, also to give it back, or the thread gives it back itself.
    """

    def __init__(self, call: Callable[[], Any], give_back: Callable[[Sequence[blocking.EntityLease]], object]) -> None:
        self._call, self._give_back = call, give_back
        self._lock = threading.Lock()
        self._begun = self._abandoned = False
        self._won: list[blocking.EntityLease] = []

    def run(self) -> Any:
        """The call, in the thread. None where nobody waits for it any more before it begins."""
        if not self._begin():
            return None
        result = self._call()
        won = [one for one in result if isinstance(one, blocking.EntityLease)] if isinstance(result, list) else []
        with self._lock:
            self._won = won
            abandoned = self._abandoned
        if abandoned and won:
            self._give_back(won)
        return result

    def _begin(self) -> bool:
        with self._lock:
            self._begun = not self._abandoned
            return self._begun

    def skip(self) -> bool:
        """Do not begin with it. Returns whether it has not."""
        with self._lock:
            self._abandoned = self._abandoned or not self._begun
            return self._abandoned

    def abandon(self) -> list[blocking.EntityLease]:
        """Leave it to the thread to give back what it wins; returns what it had won before."""
        with self._lock:
            self._abandoned = True
            return self._won


def _waking(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], object]:
    """Sets the event from any thread, as long as its loop runs."""

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(event.set)

    return wake


async def _within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
