"""What the tests work on: a store that can be paused, and leases that are closed at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from leasehold.clock import Clock
from leasehold.errors import StoreUnavailable
from leasehold.leases import EntityLeases
from leasehold.stores.memory.leases import MemoryLeaseStore
from leasehold_testkit.clock import ManualClock

Opens = Callable[..., EntityLeases]


class WayTo:
    """The way to a lease store, which a test can lengthen: calls are counted, hang, or have no answer.

    The store at its end is the real one. `lose` are names of calls whose request arrives and whose answer does not.
    """

    def __init__(self, store: MemoryLeaseStore) -> None:
        self._store = store
        self.calls: list[str] = []
        self.open = threading.Event()
        self.open.set()
        self.waiting = threading.Event()
        self.lose: list[str] = []
        self.away = False

    def __getattr__(self, name: str) -> Any:
        reached = getattr(self._store, name)
        if not callable(reached):
            return reached

        def call(*args: Any, **named: Any) -> Any:
            self.calls.append(name)
            if not self.open.is_set():
                self.waiting.set()
                self.open.wait()
            if self.away:
                raise StoreUnavailable("the store is away")
            result = reached(*args, **named)
            if name in self.lose:
                self.lose.remove(name)
                raise StoreUnavailable("no answer came")
            return result

        return call


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryLeaseStore:
    return MemoryLeaseStore(clock)


@pytest.fixture
def way(store: MemoryLeaseStore) -> WayTo:
    return WayTo(store)


@pytest.fixture
def opens(clock: Clock) -> Iterator[Opens]:
    with ExitStack() as stack:

        def open_(store: Any, holder: str = "me", *, clock: Clock = clock, duration: float = 30.0) -> EntityLeases:
            leases = EntityLeases(store, scope="tests", holder=holder, duration=duration, clock=clock)
            return stack.enter_context(closing(leases))

        yield open_
