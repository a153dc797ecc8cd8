"""What is between an instance and the stores, the hub and the sink: time, and trouble.

Owns the way of one request. The caller waits; the request is carried out at a moment of its own, whatever has become
of the caller by then; the reply comes later, or a time-out does. A store without batches carries out each record of
a request at a moment of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from leasehold.errors import HubUnavailable, LeaseholdError, SinkUnavailable, StoreUnavailable
from leasehold_testkit.simulation.story import Fault, FaultKind
from leasehold_testkit.simulation.surroundings import Landing, Process, Surroundings

_ERRORS: dict[str, type[LeaseholdError]] = {
    "ownership": StoreUnavailable,
    "checkpoints": StoreUnavailable,
    "hub": HubUnavailable,
    "sink": SinkUnavailable,
}

T = TypeVar("T")


class Network:
    """The ways of all instances to all servers."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._pending: defaultdict[str, list[Fault]] = defaultdict(list)
        self._away: list[tuple[str, str, float]] = []
        self.requests: Counter[str] = Counter()

    def expect(self, fault: Fault) -> None:
        """The next request that fits has this fault."""
        self._pending[fault.who].append(fault)

    def lose(self, server: str, who: str, until: float) -> None:
        """A server is away, for one instance or for all."""
        self._away.append((server, who, until))

    def recover(self) -> None:
        """All trouble ends; what is on its way still lands."""
        self._pending.clear()
        self._away.clear()

    def request(self, who: Process, server: str, method: str, parts: Sequence[Callable[[Landing], T]]) -> list[T]:
        """Make a request of this many parts, and wait for what they return."""
        world, scheduler = self._world, self._world.scheduler
        self.requests[method] += 1
        now, timeout = world.now, who.true_span(world.settings.request_timeout)
        latency = world.story.pace.latency
        there, back = (latency * who.chance.random() for _ in range(2))
        fault = self._fault_of(who.name, server, method)
        kind = fault.kind if fault else None
        if self._is_away(server, who.name):
            kind = FaultKind.FAIL if who.chance.random() < 0.7 else FaultKind.LOSE
        landing = Landing(now)
        if fault and kind is FaultKind.SLOW:
            there = min(fault.seconds, 0.95 * timeout - back) if who.chance.random() < 0.5 else there
            back = max(back, min(fault.seconds, 0.95 * timeout) - there)
        elif fault and kind is FaultKind.DELAY:
            there = min(timeout + fault.seconds, max(timeout, world.story.ends_at - now))
            landing.late = True
        if kind not in (FaultKind.FAIL, FaultKind.LOSE):
            self._send(who, method, server, landing, parts, now + there)
        if fault and kind is FaultKind.DUPLICATE:
            again = min(now + there + fault.seconds, max(now + there, world.story.ends_at))
            self._send(who, method, server, Landing(now, late=True), parts, again)
        if kind in (FaultKind.LOSE, FaultKind.LOSE_REPLY, FaultKind.DELAY):
            scheduler.wait_until(now + timeout)
            raise _ERRORS[server](f"no reply to {method} in time")
        scheduler.wait_until(now + there + back + (len(parts) - 1) * latency / 4)
        if kind is FaultKind.FAIL:
            raise _ERRORS[server](f"{method}: the {server} is away")
        if landing.error is not None:
            raise landing.error
        results: list[T] = landing.results
        return results

    def _send(
        self,
        who: Process,
        method: str,
        server: str,
        landing: Landing,
        parts: Sequence[Callable[[Landing], Any]],
        at: float,
    ) -> None:
        for number, part in enumerate(parts):
            when = at + number * self._world.story.pace.latency / 4
            self._world.scheduler.call_at(when, partial(self._land, who, method, server, landing, part))

    def _land(self, who: Process, method: str, server: str, landing: Landing, part: Callable[[Landing], Any]) -> None:
        if self._is_away(server, who.name):
            landing.error = _ERRORS[server](f"{method}: the {server} is away")
            return
        try:
            result = part(landing)
        except self._world.expected_errors as error:
            landing.error = error
            self._world.note(who, method, error)
            return
        landing.results.append(result)
        self._world.note(who, method, result)

    def _fault_of(self, who: str, server: str, method: str) -> Fault | None:
        pending = self._pending.get(who)
        if not pending:
            return None
        for fault in pending:
            if fault.what in (server, method):
                pending.remove(fault)
                self._world.note(who, "request", fault)
                return fault
        return None

    def _is_away(self, server: str, who: str) -> bool:
        if not self._away:
            return False
        now = self._world.now
        return any(name == server and only in ("", who) and now < until for name, only, until in self._away)
