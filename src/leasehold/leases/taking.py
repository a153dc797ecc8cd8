"""How somebody takes a lease and waits for it, as a generator of steps: the rules, without threads and tasks.

Owns the order of steps of `hold` and `acquire`: `leases` performs them by blocking, `leasehold.aio` by awaiting. What
performs them sends the result of a `Call` into the generator, or throws the error that it raised, and closes the
generator when it gives up.

    first in this process's queue ──▶ somebody in the place, after a long tenure? ──no──▶ acquire the key ──won──▶ done
                                              │ yes                                            │ busy
                                              └───────────▶ acquire the place behind it ◀──────┘
                                                                  │ won
                                                            acquire the key ──won──▶ give the place up, done

Each arrow that is not won pauses and asks again; when the time is over, whatever was won is given up, and who holds the
key is looked up for `LeaseBusy`. A store that is away is asked again in the same way. Where nobody holds the key, the
store may have lost the session that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import Any

from leasehold.clock import Clock
from leasehold.errors import ConfigError, LeaseBusy, LeaseholdError, StoreUnavailable, UsageError, Verdict
from leasehold.leases.keeper import LeaseKeeper
from leasehold.leases.key_turns import LeaseTurns, Tenures, check_no_place, place_of
from leasehold.leases.lease import EntityLease
from leasehold.leases.times import pause
from leasehold.stores.lease_base import LeaseStatus, LeaseStore, ListsLeases

_NEXT_PATIENCE = 2.0  # seconds left to wait that the pauses of who is next are made for: an eighth of it


@dataclass(frozen=True, slots=True)
class Call:
    """Call this, which may take as long as a call of the store, and send what it returns."""

    run: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for this many seconds, or until woken."""

    seconds: float


Steps = Generator[Call | Pause, Any, EntityLease]


def check_wait(wait: float) -> None:
    """Refuse a time to wait that is negative or no number. Raises `ConfigError`."""
    if not wait >= 0:
        raise ConfigError("wait", wait, "seconds, 0 or more", "0 asks once, math.inf waits for as long as it takes")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all who take leases of one holder share."""

    keeper: LeaseKeeper
    turns: LeaseTurns
    tenures: Tenures
    store: LeaseStore
    clock: Clock
    rng: Random

    def taking(self, key: str, *, wait: float, taker: object, wake: Callable[[], object]) -> Steps:
        """Take the lease of a key within `wait` seconds. Raises `LeaseBusy`, or the store's error if it was away last.

        A `taker` (a thread, a task) that holds the key already would wait for itself: that is a `UsageError`.
        """
        check_no_place(key)
        mine = self.keeper.held(key)
        if mine is not None and mine._taker == taker and not mine.lost.is_set():
            raise UsageError(
                f"{key!r} in scope {self.keeper.scope!r} is held already, by the code that asks for it again: it would "
                "wait for itself. Leases are not re-entrant: hand the lease that you have to the code that needs it"
            )
        return _Taking(self, key, wait, taker).steps(wake)


class _Taking:
    """One who takes one key."""

    def __init__(self, around: Surroundings, key: str, wait: float, taker: object) -> None:
        self._around, self._key, self._wait, self._taker = around, key, wait, taker
        self._began = around.clock.monotonic()
        self._attempts = 0
        self._away: LeaseholdError | None = None
        self._place: EntityLease | None = None

    def steps(self, wake: Callable[[], object]) -> Steps:
        around = self._around
        turn = around.turns.join(self._key, wake)
        try:
            while True:
                mine_to_ask = turn.is_first and around.keeper.held(self._key) is None
                if mine_to_ask and (lease := (yield from self._ask())) is not None:
                    return lease
                waited = around.clock.monotonic() - self._began
                if waited >= self._wait:
                    yield from self._leave_place()
                    break
                yield self._pause(self._wait - waited, asking=turn.is_first and mine_to_ask)
        finally:
            turn.leave()
            if self._place is not None:  # the generator was closed, or something raised
                around.keeper.release([self._place])
        raise (yield from self._busy(waited))

    def _ask(self) -> Generator[Call | Pause, Any, EntityLease | None]:
        """Ask for the key, or for the place behind its holder. The key's lease, if that is won."""
        around, keeper = self._around, self._around.keeper
        self._attempts += 1
        try:
            direct = self._attempts == 1 or self._is_next()
            if self._attempts == 1 and around.tenures.long(self._key, around.clock.monotonic()):
                direct = not (yield Call(lambda: around.store.holders(keeper.scope, [place_of(self._key)])))
            won = (yield Call(lambda: keeper.acquire([self._key], self._taker))) if direct else []
            if not won and not self._is_next() and around.clock.monotonic() - self._began < self._wait:
                places = yield Call(lambda: keeper.acquire([place_of(self._key)], self._taker))
                if places:
                    self._place, self._attempts = places[0], 1
                    won = yield Call(lambda: keeper.acquire([self._key], self._taker))
            self._away = None
        except LeaseholdError as error:
            if error.verdict is not Verdict.PASSES:
                raise
            self._away = error
            return None
        if not won:
            return None
        lease: EntityLease = won[0]
        try:
            yield from self._leave_place()
        except GeneratorExit:  # who waits has been cancelled, and will not release it
            keeper.release([lease])
            raise
        return lease

    def _leave_place(self) -> Generator[Call, Any, None]:
        place, self._place = self._place, None
        if place is not None:
            yield Call(lambda: self._around.keeper.release([place]))

    def _is_next(self) -> bool:
        if self._place is not None and self._place.lost.is_set():
            self._place = None
        return self._place is not None

    def _pause(self, seconds: float, *, asking: bool) -> Pause:
        if not asking:
            return Pause(min(seconds, 1.0))
        return Pause(
            pause(self._attempts, min(seconds, _NEXT_PATIENCE) if self._is_next() else seconds, self._around.rng)
        )

    def _busy(self, waited: float) -> Generator[Call | Pause, Any, Exception]:
        """What to raise: who holds it, or that the store was away."""
        if self._away is not None:
            return self._away
        scope, mine = self._around.keeper.scope, self._around.keeper.held(self._key)
        if mine is not None:
            return LeaseBusy(scope, self._key, mine.holder, mine.lost.remaining(), waited)
        status: LeaseStatus | None = yield Call(lambda: _status(self._around.store, scope, self._key))
        if status is None and (yield Call(self._around.keeper.has_lost_session)):
            return StoreUnavailable(
                f"the lease of {self._key!r} in scope {scope!r} could not be taken: the store has lost the session of "
                f"{self._around.keeper.holder!r}, as when somebody empties it. The next attempt opens a new one"
            )
        if status is None:
            return LeaseBusy(scope, self._key, "somebody who has just given it up", 0.0, waited)
        return LeaseBusy(scope, self._key, status.lease.session.owner, status.remaining, waited)


def _status(store: LeaseStore, scope: str, key: str) -> LeaseStatus | None:
    """Who holds a key, and for how long unless it is renewed, where the store tells."""
    if isinstance(store, ListsLeases):
        listed = store.list_leases(scope, [key])
        return listed[0] if listed else None
    found = store.holders(scope, [key])
    return LeaseStatus(found[0], None) if found else None
