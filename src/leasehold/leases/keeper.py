"""Holding leases for a process: one session for all of them, renewed by one thread while something is held.

Owns which leases this process holds, their session and its renewals, and what is owed to the store: leases that it
could not be told are given up, and keys of which it is not known whether an acquisition was made. Which of its times
counts is decided in `lease_times`, when something is lost in `lease`.

Any number of threads acquire and release at once; no lock is held during a call of the store. When a party stops:

    the process, anywhere      its trust ends by the clock, and everything is lost at the first look afterwards. The
                               renewal looks before it sends; one that was sent and answered too late extends nothing
    the renewal, in a call     the same: signals look at the clock, not at the thread. A hanging store changes nothing
    who acquires, in the call  what it wins is its session's, which dies unless renewed. An answer that comes after the
                               trust has ended is `StoreUnavailable`, and the lease is given back
    who acquires, no answer    the key is in doubt: looked up and given back before it is asked for again, or with its
                               session if that holds nothing else
    the store loses sessions   who wins nothing asks once a second whether the session lives, and opens another one
    who releases, no answer    the renewal gives it back later; until then it is held by nobody here, and not renewed
    a fork                     the child holds nothing, and opens a session of its own at its first acquisition
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import TypeVar

from leasehold.clock import Clock
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.leases.lease import GIVEN_UP, OUT_OF_TIME, EntityLease, SessionTrust
from leasehold.leases.times import LeaseTimes, retry_after
from leasehold.model import Lease, LeaseSession
from leasehold.printable import span
from leasehold.stores.lease_base import ClearsLeases, LeaseStore
from leasehold.stores.lease_rules import MOST_KEYS, check_keys

logger = logging.getLogger(__name__)

T = TypeVar("T")

_IDLE = 5.0  # seconds after the last lease that the thread stays
_CLEAR_EVERY = 3600.0  # seconds
_UNPROVEN = 1.0  # seconds from the last sign that a session lives, after which one that wins nothing is asked for
_BROKEN = "the store says that it is held no more: somebody broke it, or its session ended"
_AGAIN = "it was acquired again by the same holder, after somebody broke it"


class LeaseKeeper:
    """The leases of one holder in one scope. `freed` is told each key that was given up here, from any thread."""

    def __init__(
        self,
        store: LeaseStore,
        *,
        scope: str,
        holder: str,
        times: LeaseTimes,
        clock: Clock,
        rng: Random,
        freed: Callable[[str], object],
    ) -> None:
        self.scope, self.holder = scope, holder
        self._store, self._times, self._clock, self._rng, self._freed = store, times, clock, rng, freed
        self._begin()

    def _begin(self) -> None:
        """Hold nothing: at the start, and in the child of a fork."""
        self._pid = os.getpid()
        self._opening = threading.Lock()
        self._changed = threading.Condition()
        self._trust: SessionTrust | None = None
        self._held: dict[str, EntityLease] = {}
        self._asking: Counter[str] = Counter()
        self._asked: Counter[SessionTrust] = Counter()
        self._owed: list[Lease] = []
        self._doubtful: dict[str, float] = {}
        self._retired: dict[LeaseSession, float] = {}
        self._thread: threading.Thread | None = None
        self._due = 0.0
        self._clear_at = self._clock.monotonic() + self._rng.uniform(0, _CLEAR_EVERY)
        self._failing = False

    def after_fork(self) -> bool:
        """Whether this process is a fork of the one that used the keeper last; then it holds nothing any more."""
        if forked := os.getpid() != self._pid:
            self._begin()
        return forked

    def held(self, key: str) -> EntityLease | None:
        """The lease of this key that is held here, as far as is known."""
        with self._changed:
            return self._held.get(key)

    # Taking

    def acquire(self, keys: Sequence[str], taker: object = None) -> list[EntityLease]:
        """Take those keys that are free, one call of the store for 10,000; return what was won, in the order asked for.

        Opens a session first where there is none. Raises `StoreUnavailable`; then nothing is held.
        """
        check_keys(self.scope, keys[:MOST_KEYS])
        won: list[EntityLease] = []
        try:
            for chunk in _chunks(list(dict.fromkeys(keys))):
                won += self._acquire(chunk, taker)
        except BaseException:
            self.release(won)
            raise
        return won

    def _acquire(self, keys: list[str], taker: object) -> list[EntityLease]:
        trust = self._session()
        won = self._ask(trust, keys, taker)
        return won if won or not self.has_lost_session(trust, _UNPROVEN) else self._ask(self._session(), keys, taker)

    def _ask(self, trust: SessionTrust, keys: list[str], taker: object) -> list[EntityLease]:
        self._settle([key for key in keys if key in self._doubtful])
        with self._changed:
            self._asking.update(keys)
            self._asked[trust] += 1
            self._wake(None)
        try:
            leases = self._store.acquire(trust.session, self.scope, keys)
            return self._registered(trust, leases, taker)
        except BaseException:
            self._doubt(trust, keys)
            raise
        finally:
            with self._changed:
                self._asking.subtract(keys)
                self._asking = +self._asking
                self._asked.subtract([trust])
                self._asked = +self._asked

    def _registered(self, trust: SessionTrust, leases: Sequence[Lease], taker: object) -> list[EntityLease]:
        won = [EntityLease(lease, trust, taker, self._give_up) for lease in leases]
        with self._changed:
            in_time = trust.remaining() > 0
            former = [self._held[lease.key] for lease in won if in_time and lease.key in self._held]
            if in_time:
                self._held.update((lease.key, lease) for lease in won)
                self._wake(None)
        _tell(former, _AGAIN)
        if leases and not in_time:
            raise StoreUnavailable(
                f"the store took {span(self._times.trust)} or more to answer: the leases are not trusted any more"
            )
        return won

    def _session(self) -> SessionTrust:
        """A session that is trusted for a while. One that nobody renews, since nothing is held, is left to its end."""
        with self._opening:
            with self._changed:
                trust = self._trust
                left = trust.remaining() if trust else 0.0
                in_use = any(lease._trust is trust for lease in self._held.values())
                if trust is not None and left and (in_use or left > self._times.trust / 2):
                    return trust
                self._trust = None
                if trust is not None and (in_use or self._doubtful):
                    self._retire([trust])
            if trust is not None and in_use:
                self._lose_what_is_out_of_time()
            self._close_retired()
            sent = self._clock.monotonic()
            session = self._store.open_session(self.holder, self._times.duration)
            opened = SessionTrust(session, sent, self._times, self._clock)
            with self._changed:
                self._trust = opened
                self._wake(sent + self._times.renew_after)
            return opened

    def has_lost_session(self, asking: SessionTrust | None = None, unproven: float = 0.0) -> bool:
        """Whether the store has lost the session. Its leases are lost then, and the next acquisition opens another one.

        The store is not asked if it has shown within the last `unproven` seconds that the session lives.
        """
        trust, sent = asking or self._trust, self._clock.monotonic()
        # Native leases have no session in the store, and its heartbeat renews each of them.
        if trust is None or sent - trust.proven < unproven or self._store.features.native_leases:
            return False
        if self._store.heartbeat(trust.session) and trust.extend(sent):
            return False
        with self._changed:
            held = [lease for lease in self._held.values() if lease._trust is trust]
        self._lose(held, _BROKEN)
        with self._changed:
            self._retire([trust])
        return True

    def _doubt(self, trust: SessionTrust, keys: Iterable[str]) -> None:
        """Note that a call without an answer may have acquired these keys."""
        with self._changed:
            if any(lease._trust is trust for lease in self._held.values()):
                until = self._clock.monotonic() + self._times.duration
                self._doubtful.update(dict.fromkeys(keys, until))
            else:  # a dead session wins nothing, also not by a request that arrives late
                self._retire([trust])
            self._wake(self._clock.monotonic() + retry_after(self._times, self._rng))

    def _settle(self, keys: Sequence[str]) -> None:
        """Give back what this process holds of these keys by the store and not by what is known here."""
        if not keys:
            return
        found = self._store.holders(self.scope, keys)
        with self._changed:
            mine = {lease._trust.session.id for lease in self._held.values()}
            if self._trust is not None:
                mine.add(self._trust.session.id)
            known = {lease._lease for lease in self._held.values()}
            unknown = [
                lease
                for lease in found
                if lease.session.id in mine and lease not in known and not self._asking[lease.key]
            ]
        if unknown:
            self._store.release(unknown)

    # Giving up

    def release(self, leases: Sequence[EntityLease]) -> None:
        """Give these up, as far as they are held here. Never raises that the store is away: the renewal tells it."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            mine = [lease for lease in leases if self._held.get(lease.key) is lease]
            for lease in mine:
                del self._held[lease.key]
        _tell(mine, GIVEN_UP)
        told = [lease._lease for lease in mine]
        try:
            for chunk in _chunks(told):
                self._store.release(chunk)
        except LeaseholdError as error:
            logger.info("%d leases of %s could not be released yet: %s", len(told), self.scope, error)
            self._owe(told)
        except BaseException:
            self._owe(told)
            raise
        finally:
            for lease in mine:
                self._freed(lease.key)

    def _give_up(self, lease: EntityLease) -> None:
        self.release([lease])

    def _owe(self, leases: Sequence[Lease]) -> None:
        with self._changed:
            self._owed += leases
            self._wake(self._clock.monotonic() + retry_after(self._times, self._rng))

    def close(self) -> None:
        """Give up everything and close the session; the thread ends by itself."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            held, self._held = list(self._held.values()), {}
            self._retire({lease._trust for lease in held} | ({self._trust} if self._trust else set()))
            self._owed, self._doubtful = [], {}
        _tell(held, GIVEN_UP)
        self._close_retired()
        with self._changed:
            self._retired = {}  # what could not be closed dies by itself
            self._wake(None)
        for lease in held:
            self._freed(lease.key)

    # Keeping

    def _wake(self, at: float | None) -> None:
        """Let the thread look again, and at the latest at `at`. Under the lock."""
        if at is not None:
            self._due = min(self._due, at) if self._at_work() else at
        if self._thread is None and self._at_work():
            self._thread = threading.Thread(target=self._keep, name=f"leases of {self.scope}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _at_work(self) -> bool:
        return bool(self._held or self._owed or self._retired or self._asked)

    def _keep(self) -> None:
        """The thread: renew when it is due, as long as there is something to do."""
        while True:
            with self._changed:
                if not self._at_work() and not self._changed.wait(_IDLE) and not self._at_work():
                    self._thread = None
                    return
                left = self._due - self._clock.monotonic()
                if not self._at_work() or left > 0:
                    self._changed.wait(min(max(left, 0.001), 1.0))
                    continue
                self._due = self._clock.monotonic() + self._times.renew_after
            try:
                self.renew()
                self._failing = False
            except Exception as error:  # noqa: BLE001  whatever a store of others raises, leases are kept
                if not self._failing:
                    logger.warning("leases of %s could not be renewed, trying again: %s", self.scope, error)
                self._failing = True
                with self._changed:
                    self._due = self._clock.monotonic() + retry_after(self._times, self._rng)

    def renew(self) -> None:
        """Renew what is held and trusted, find out what is lost, and do what is owed. Raises what the store does."""
        self._lose_what_is_out_of_time()
        with self._changed:
            held = list(self._held.values())
            bare = set(self._asked) - {lease._trust for lease in held}
        sent = self._clock.monotonic()
        for chunk in _chunks(held):
            renewed = set(self._store.renew([lease._lease for lease in chunk]))
            alive = {lease._trust for lease in chunk if lease._lease in renewed}
            lost = self._lose([lease for lease in chunk if lease._lease not in renewed], _BROKEN)
            with self._changed:  # one of which nothing was renewed may be dead: it would win nothing, and not say why
                self._retire({lease._trust for lease in lost} - alive)
            for trust in alive:
                trust.extend(sent)
        for trust in bare:  # an acquisition of many keys may take longer than a session lives
            if not (trust.remaining() and self._store.heartbeat(trust.session) and trust.extend(sent)):
                with self._changed:
                    self._retire([trust])
        self._lose_what_is_out_of_time()
        with self._changed:
            owed, now = self._owed, self._clock.monotonic()
            self._doubtful = {key: until for key, until in self._doubtful.items() if now < until}
        for some in _chunks(owed):
            self._store.release(some)
        with self._changed:
            self._owed = self._owed[len(owed) :]
        self._settle(list(self._doubtful))
        self._close_retired()
        self._clear_at_times()

    def _lose_what_is_out_of_time(self) -> None:
        with self._changed:
            late = [lease for lease in self._held.values() if not lease._trust.remaining()]
            self._retire({lease._trust for lease in late})
        self._lose(late, OUT_OF_TIME)

    def _lose(self, leases: Sequence[EntityLease], reason: str) -> list[EntityLease]:
        with self._changed:
            mine = [lease for lease in leases if self._held.get(lease.key) is lease]
            for lease in mine:
                del self._held[lease.key]
        _tell(mine, reason)
        for lease in mine:
            logger.warning("the lease of %r in %s is lost: %s", lease.key, self.scope, reason)
            self._freed(lease.key)
        return mine

    def _retire(self, trusts: Iterable[SessionTrust]) -> None:
        """Trust these sessions no more. They are closed, as soon as the store is told or they die. Under the lock."""
        until = self._clock.monotonic() + self._times.duration
        for trust in trusts:
            trust.end()
            self._retired.setdefault(trust.session, until)
            self._trust = None if self._trust is trust else self._trust

    def _close_retired(self) -> None:
        """Close sessions that are trusted no more: what they hold is free. A store that is away is told later."""
        with self._changed:
            retired = dict(self._retired)
        for session, until in retired.items():
            try:
                self._store.close_session(session)
            except LeaseholdError as error:
                logger.info("session %s could not be closed yet: %s", session.id, error)
                if self._clock.monotonic() < until:
                    continue
            with self._changed:
                self._retired.pop(session, None)

    def _clear_at_times(self) -> None:
        """Let the store forget keys that nobody has held for long, about once an hour in each process."""
        if isinstance(self._store, ClearsLeases) and self._clock.monotonic() >= self._clear_at:
            self._clear_at = self._clock.monotonic() + _CLEAR_EVERY
            threading.Thread(target=_clear, args=[self._store], name="clearing leases", daemon=True).start()


def _clear(store: ClearsLeases) -> None:
    try:
        store.clear_leases()
    except Exception as error:  # noqa: BLE001  whatever a store of others raises, it is tried again in an hour
        logger.info("leases that nobody has held for long could not be cleared: %s", error)


def _tell(leases: Iterable[EntityLease], reason: str) -> None:
    for lease in leases:
        lease.lost._tell(reason)


def _chunks(items: Sequence[T]) -> Iterator[list[T]]:
    for first in range(0, len(items), MOST_KEYS):
        yield list(items[first : first + MOST_KEYS])
