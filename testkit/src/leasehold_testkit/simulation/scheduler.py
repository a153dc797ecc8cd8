"""Virtual time, and threads of which only one runs.

Owns the queue of what happens when. An activity is a function that may wait; it has a thread of its own from its first
wait on. Whoever waits runs what comes next himself, until that is the end of his own wait or somebody else's: then he
hands over the baton. So between two waits nothing interleaves, the order is that of the queue and a pure function of
what is put there, and most waits cost no switch of threads.

After each step (a callback, or an activity up to its next wait) `after_step` is called. What is raised there or in
a callback ends the simulation; every activity is then unwound by `Ended`, as is one whose party is dead.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass


class Ended(BaseException):
    """The party of an activity is dead, or the simulation is over. No handler of errors may stop it."""


@dataclass(slots=True, eq=False)
class Party:
    """Whose activities stop and start together: one process. Paused until a time, or dead."""

    name: str = ""
    paused_until: float = -math.inf
    dead: bool = False


class _Carrier:
    """A thread, and the lock that it waits for while it has no baton."""

    __slots__ = ("action", "baton", "party", "thread")

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self.action: Callable[[], None] | None = None
        self.party: Party | None = None
        self.thread: threading.Thread | None = None


@dataclass(slots=True, eq=False)
class _Item:
    """A callback (`action` alone), a new activity (with `party`), or the end of a wait (with `carrier`)."""

    action: Callable[[], None] | None = None
    party: Party | None = None
    carrier: _Carrier | None = None


class Scheduler:
    """Runs what was put into its queue, in the order of virtual time."""

    def __init__(self, after_step: Callable[[Party | None], None] = lambda party: None) -> None:
        self.now = 0.0
        self.steps = 0
        self._after_step = after_step
        self._queue: list[tuple[float, int, _Item]] = []
        self._count = 0
        self._idle: list[_Carrier] = []
        self._waiting: dict[_Carrier, None] = {}
        self._local = threading.local()
        self._over = threading.Lock()
        self._over.acquire()
        self._ended = False
        self._unwinding = False
        self._error: BaseException | None = None

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Run a callback, which must not wait."""
        self._put(when, _Item(action))

    def start_at(self, when: float, party: Party, action: Callable[[], None]) -> None:
        """Run an activity, which may wait, unless its party is dead by then."""
        self._put(when, _Item(action, party))

    def wait_until(self, when: float) -> None:
        """Let other things happen until then. For activities only."""
        carrier: _Carrier = self._local.carrier
        if self._ended:
            raise Ended
        party = carrier.party
        self._put(when, _Item(None, party, carrier))
        self._waiting[carrier] = None
        self._step(party)
        self._drive(carrier, waits=True)
        if self._ended or (party is not None and party.dead):
            raise Ended

    def end(self) -> None:
        """End the simulation after this step."""
        self._ended = True

    def run(self) -> None:
        """Run until `end`, or until nothing is left to do. Raises what a step has raised."""
        self._spare().baton.release()
        self._over.acquire()
        for carrier in [*self._waiting, *self._idle]:
            carrier.action = None
            carrier.baton.release()
            if carrier.thread is not None:
                carrier.thread.join()
        if self._error is not None:
            raise self._error

    def _put(self, when: float, item: _Item) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(when, self.now), self._count, item))

    def _drive(self, own_carrier: _Carrier, *, waits: bool) -> None:
        """Run what comes next in this thread, until its own wait is over or there is no more for it to do."""
        while not self._ended:
            if not self._queue:
                self._ended = True
                break
            when, _, item = heapq.heappop(self._queue)
            party = item.party
            if party is not None and not party.dead and party.paused_until > when:
                self._put(party.paused_until, item)
                continue
            self.now = when
            if item.carrier is not None:
                del self._waiting[item.carrier]
                if item.carrier is own_carrier:
                    return
                self._switch(own_carrier, item.carrier, waits=waits)
                return
            if party is None:
                self._run(item)
            elif party.dead:
                continue
            elif waits:
                carrier = self._spare()
                carrier.action, carrier.party = item.action, party
                self._switch(own_carrier, carrier, waits=True)
                return
            else:
                own_carrier.party = party
                self._run(item)
        if not self._unwinding:
            self._stop(own_carrier, waits=waits)

    def _run(self, item: _Item) -> None:
        try:
            if item.action is not None:
                item.action()
        except Ended:
            return
        except BaseException as error:  # noqa: BLE001  # it is raised by `run`, in the thread that started all this
            self._fail(error)
            return
        if not self._ended or item.party is None:
            self._step(item.party)

    def _step(self, party: Party | None) -> None:
        self.steps += 1
        try:
            self._after_step(party)
        except BaseException as error:  # noqa: BLE001  # as above
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        self._ended = True

    def _switch(self, own_carrier: _Carrier, to: _Carrier, *, waits: bool) -> None:
        if not waits:
            self._idle.append(own_carrier)
        to.baton.release()
        own_carrier.baton.acquire()

    def _stop(self, own_carrier: _Carrier, *, waits: bool) -> None:
        """Let `run` go on, which unwinds all threads one after another."""
        if not waits:
            self._idle.append(own_carrier)
        self._unwinding = True
        self._over.release()
        own_carrier.baton.acquire()

    def _spare(self) -> _Carrier:
        if self._idle:
            return self._idle.pop()
        carrier = _Carrier()
        carrier.thread = threading.Thread(target=self._carry, args=(carrier,), name="simulated", daemon=True)
        carrier.thread.start()
        return carrier

    def _carry(self, own_carrier: _Carrier) -> None:
        """What each thread does: an activity, then whatever comes next, until the end."""
        self._local.carrier = own_carrier
        own_carrier.baton.acquire()
        while not self._unwinding:
            if own_carrier.action is not None:
                action, own_carrier.action = own_carrier.action, None
                self._run(_Item(action, own_carrier.party))
            if not self._unwinding:
                self._drive(own_carrier, waits=False)
