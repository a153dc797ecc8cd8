"""Leases of a batch's entities that its tasks take: for a table that is `exclusive`.

Owns these rules; those of `handlers.exclusive` hold beside.

1. The driver opens a session for each batch, and closes it behind the last commit, or the failure: that frees all its
   leases at once. A task that comes late, or again after that, wins nothing.
2. A task lets the session live on before it asks, and a thread of it as long as it calls: what it holds is trusted from
   before a heartbeat was sent that was answered. A key that the batch's own session holds already, by an earlier try
   of the task, counts as won.
3. Behind the task nobody lets the session live on. Where its time ends before the commit another holder may have
   changed the entity, and the commit finds that.

When a task's process stops for a minute, its trust ends by its own clock, and it calls no more; what it was calling
then may meet the next holder's, whose fence is higher. When the driver does, the tasks go on, and what they tell is
compared at the commit.

Refuses stores whose leases know no session that several processes share (`native_leases`).
"""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from leasehold.errors import StoreUnavailable
from leasehold.handlers.calling.raised import NotCalled
from leasehold.handlers.contract import EntityEvent, EntityHandler, Key, fenced, key_of
from leasehold.handlers.exclusive import lease_key
from leasehold.leases.times import LeaseTimes, lease_times
from leasehold.model import Lease, LeaseSession
from leasehold.stores import LeaseStore, open_lease_store
from leasehold.stores.lease_rules import MOST_KEYS

DURATION = 30.0
"""Seconds that a batch's session lives on behind the last heartbeat of a task."""


@dataclass(frozen=True, slots=True)
class BatchLeases:
    """The session of a batch, for its tasks. Its `repr` holds no secret of the store's URL."""

    scope: str
    session: LeaseSession
    store: StoreUrl


class StoreUrl(str):
    """A URL that nobody prints by accident."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<a store>"


@contextmanager
def batch_leases(url: str | None, scope: str) -> Iterator[BatchLeases | None]:
    """A session for a batch, in the driver; none without a store. Raises `StoreUnavailable`, and then nothing is held.

    That the store is away at the end is no error: the session ends by itself.
    """
    if url is None:
        yield None
        return
    store = _store_at(url)
    session = store.open_session(f"{socket.gethostname()}/{os.getpid()}", DURATION)
    try:
        yield BatchLeases(scope, session, StoreUrl(url))
    finally:
        with suppress(StoreUnavailable):
            store.close_session(session)


class TaskLeases:
    """What one try of a task holds. For its thread, and one that lets the session live on."""

    def __init__(self, batch: BatchLeases, times: LeaseTimes | None = None) -> None:
        self._batch, self._times = batch, times or lease_times(DURATION)
        self._store = _store_at(batch.store)
        self._fences: dict[Key, int] = {}
        self._until = 0.0

    def take(self, keys: Sequence[Key]) -> None:
        """Ask for these, and wait for none: one call of the store for 10,000. Raises `StoreUnavailable`."""
        if not keys:
            return
        self._live_on()
        names = {lease_key(self._batch.scope, key): key for key in keys}
        asked = list(names)
        for first in range(0, len(asked), MOST_KEYS):
            some = asked[first : first + MOST_KEYS]
            won = self._store.acquire(self._batch.session, self._batch.scope, some)
            left = set(some).difference(lease.key for lease in won)
            mine = self._store.holders(self._batch.scope, sorted(left)) if left else []
            self._fences.update((names[lease.key], lease.fence) for lease in [*won, *filter(self._is_mine, mine)])

    @contextmanager
    def living_on(self) -> Iterator[None]:
        """The session lives on during the block."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(self._times.renew_after):
                with suppress(StoreUnavailable):
                    self._live_on()

        thread = threading.Thread(target=beat, name="leasehold-task-leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()

    def within(self, handler: EntityHandler) -> EntityHandler:
        """The handler, called where the entity's lease is held and trusted."""

        @functools.wraps(handler.function)
        def called(state: Any, event: EntityEvent) -> Any:
            fence = self._fences.get(key_of(event))
            if fence is None or time.monotonic() >= self._until:
                raise NotCalled
            return handler(state, fenced(event, fence))

        return EntityHandler(called, handler.keys, handler.state)

    def _live_on(self) -> None:
        sent = time.monotonic()
        if self._store.heartbeat(self._batch.session):
            self._until = sent + self._times.trust
        else:
            self._until = 0.0

    def _is_mine(self, lease: Lease) -> bool:
        return lease.session.id == self._batch.session.id


@functools.cache
def _store_at(url: str) -> LeaseStore:
    """The store, opened once in a process."""
    return open_lease_store(str(url), timeout=lease_times(DURATION).timeout)
