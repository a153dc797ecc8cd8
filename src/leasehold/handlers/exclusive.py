"""Spread entities one at a time: a batch calls a handler for those alone whose leases it holds.

Owns these rules. What takes effect is decided by the versions of the commit all the same (`spread`); leases keep calls
with effects of their own apart, as far as leases can.

1. A batch asks for all its entities in one call of the store, but not for those that wait for parked events: their next
   event is another partition's, and nothing of theirs is called for here. What is known of an entity is read once its
   lease is held.
2. It waits for none. Events of an entity that is busy are parked uncalled. Behind its commit a batch asks for the
   leases of those entities that it has parked events of, and applies what is parked of all entities that it holds then,
   whichever partitions the events come from, in their order (`parking.guests`). So an entity that all instances meet in
   every batch goes on with each commit. Who has parked and got no lease looks again after `BUSY` seconds, at first and
   at most, doubled with each look in vain.
   Other batches of this process are another matter: whoever begins to call with no lease in hand waits for what they
   hold, in the order of coming, as long as they go on (`handlers.in_hand`), and asks the store for what is free here.
3. Before each call the lease is looked at; where it is lost, the event waits. `EntityEvent.fence` is the lease's: it
   rises with each holder of the entity, whatever partition its events come from.
4. All leases are given up behind the commit, or its failure, in one call. Who stops for a minute in between has lost
   them by the clock of the store, and calls no more; a call that is under way then may meet the next holder's: its
   fence is lower.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Protocol

from leasehold.backoff import Backoff
from leasehold.clock import Clock
from leasehold.errors import ConfigError
from leasehold.handlers.calling.raised import NotCalled
from leasehold.handlers.contract import EntityEvent, EntityHandler, Key, fenced, key_of
from leasehold.handlers.in_hand import InHand
from leasehold.leases.blocking import EntityLeases
from leasehold.leases.key_turns import check_no_place
from leasehold.leases.lease import EntityLease
from leasehold.stores import LeaseStore
from leasehold.stores.lease_rules import check_keys

BUSY = Backoff(0.05, 2.0)


class Busy:
    """Which entities of a partition were busy, and when each is looked at again: rule 2. For one thread."""

    def __init__(self) -> None:
        self._refusals: dict[Key, int] = {}
        self._until: dict[Key, float] = {}

    def note(self, keys: Collection[Key], won_keys: Collection[Key], now: float, draw: float) -> None:
        """Of the entities that were asked for at `now`, those that were not won are busy. `draw` is in 0 to 1."""
        for key in keys:
            if key in won_keys:
                self._refusals.pop(key, None)
                self._until.pop(key, None)
            else:
                self._refusals[key] = self._refusals.get(key, 0) + 1
                self._until[key] = now + BUSY.pause(self._refusals[key], draw)

    def not_before(self, key: Key, at: float) -> float:
        """When an event that is due at `at` is tried."""
        return max(at, self._until.get(key, 0.0))


class TakesLeases(Protocol):
    """What is needed of `EntityLeases`."""

    @property
    def takes_many(self) -> bool: ...

    def acquire_many(self, keys: Sequence[str]) -> list[EntityLease]: ...

    def release_many(self, leases: Sequence[EntityLease]) -> None: ...

    def close(self) -> None: ...


class ExclusiveEntities:
    """The leases of a table's entities. Used from any thread, each with the leases of its batch."""

    def __init__(self, leases: TakesLeases, scope: str) -> None:
        self._leases, self._scope = leases, scope
        self._in_hand = InHand()

    @property
    def takes_many(self) -> bool:
        """Whether the store takes many leases in one call, for a session that several processes may share."""
        return self._leases.takes_many

    def take(self, held: dict[Key, EntityLease], keys: Collection[Key], *, waits: bool = False) -> None:
        """Ask for those that are not `held`, and add what is won: rules 1 and 2. Raises what the store raises."""
        lost = [key for key, lease in held.items() if lease.lost.is_set()]
        for key in lost:
            del held[key]
        self._in_hand.free(lost)
        mine = self._in_hand.take([key for key in keys if key not in held], waits=waits and not held)
        names = {lease_key(self._scope, key): key for key in mine}
        won: dict[Key, EntityLease] = {}
        try:
            if names:
                won = {names[lease.key]: lease for lease in self._leases.acquire_many(list(names))}
        finally:
            held.update(won)
            self._in_hand.free([key for key in mine if key not in won])

    def taking(
        self, held: dict[Key, EntityLease], busy: Busy, clock: Clock, rng: Random, *, waits: bool = False
    ) -> Callable[[Sequence[Key]], None]:
        """What takes leases of one batch, and notes what is busy. It `waits` for other batches of this process."""

        def take(keys: Sequence[Key]) -> None:
            self.take(held, keys, waits=waits)
            busy.note(keys, held, clock.wall(), rng.random())

        return take

    def within(self, handler: EntityHandler, held: dict[Key, EntityLease]) -> EntityHandler:
        """The handler, called where the entity's lease is held: rule 3."""

        @functools.wraps(handler.function)
        def called(state: Any, event: EntityEvent) -> Any:
            lease = held.get(key_of(event))
            if lease is None or lease.lost.is_set():
                raise NotCalled
            return handler(state, fenced(event, lease.fence))

        return EntityHandler(called, handler.keys, handler.state)

    def give_up(self, held: dict[Key, EntityLease]) -> None:
        """Rule 4. A store that is away is told later."""
        keys, leases = [*held], [*held.values()]
        held.clear()
        try:
            if leases:
                self._leases.release_many(leases)
        finally:
            self._in_hand.free(keys)

    def close(self) -> None:
        """Give up all, and close the store."""
        self._leases.close()


def lease_key(scope: str, key: Key) -> str:
    """The name of an entity's lease: its key, if that is one text that may be a name, else as JSON, or its hash."""
    if len(key) == 1 and isinstance(key[0], str):
        with suppress(ConfigError):
            check_no_place(key[0])
            check_keys(scope, [key[0]])
            return key[0]
    name = json.dumps(key)
    return name if len(name) <= 1_000 else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def exclusive_entities(
    store: str | LeaseStore | ExclusiveEntities | None, scope: str, *, spread: bool, on_failure: str
) -> ExclusiveEntities | None:
    """The leases of a table that is exclusive. Raises `ConfigError`."""
    check_exclusive(store, spread=spread, on_failure=on_failure)
    if store is None or isinstance(store, ExclusiveEntities):
        return store
    return ExclusiveEntities(EntityLeases(store, scope=scope), scope)


def check_exclusive(store: object, *, spread: bool, on_failure: str) -> None:
    """Refuse settings that do not go together. Raises `ConfigError`."""
    if store is not None and not spread:
        raise ConfigError(
            "exclusive",
            True,
            "within one partition its owner alone calls the handler, and needs no lease",
            "Leave it out, or let the table be spread if an entity's events are in several partitions",
        )
    if store is not None and on_failure == "wait":
        raise ConfigError("exclusive", True, "a batch never waits for a lease: what is busy is parked", "Give park")
