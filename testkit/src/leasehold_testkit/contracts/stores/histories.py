"""Histories of real stores under concurrent use, and the models they are checked against.

Owns what one worker does at random to a few keys, the record of it with the time of each call and return on the
machine's monotonic clock, and the sequential behaviour of an ownership record and of a lease. A call that
raised `StoreUnavailable` is recorded as one without an answer. A seed tells each worker what to do; how the
workers meet is up to the machine.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from leasehold.errors import StoreUnavailable
from leasehold.model import ConsumerGroup, Lease, LeaseSession, Ownership
from leasehold.stores.base import OwnershipStore
from leasehold.stores.lease_base import LeaseStore
from leasehold_testkit.contracts.stores.linearizability import Operation

UNKNOWN = "?"
"""An ETag that nobody was told, since the reply to the write was lost."""

UNTOLD = -1
"""A fence that nobody was told."""

A = TypeVar("A")
T = TypeVar("T")


# Ownership records


@dataclass(frozen=True, slots=True)
class Record:
    """An ownership record as a state; an `etag` of None is one that does not exist."""

    etag: str | None = None
    owner: str = ""
    level: int = 0


@dataclass(frozen=True, slots=True)
class Write:
    """A claim, renewal or relinquishment by the ETag `expected`; `etag` is the new one, None if it was lost."""

    expected: str | None
    owner: str
    level: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A listing, as far as one record goes."""

    found: Record = Record()


RecordAction = Write | Read


class RecordModel:
    """Compare and set, by ETag."""

    initial = Record()

    def step(self, state: Record, action: RecordAction, answered: bool) -> Record | None:
        if isinstance(action, Read):
            untold = Record(UNKNOWN, action.found.owner, action.found.level)
            return action.found if answered and state in (action.found, untold) else None
        if answered and action.etag is None:
            return state if state.etag != action.expected else None
        if state.etag in (action.expected, UNKNOWN):
            return Record(action.etag or UNKNOWN, action.owner, action.level)
        return None


# Leases


@dataclass(frozen=True, slots=True)
class Held:
    """A lease as a state: the session that holds it (`""`: nobody), its fence, and the highest fence given so far."""

    session: str = ""
    fence: int = 0
    highest: int = 0

    def by(self, session: str, fence: int) -> Held | None:
        """This state if that session holds it with that fence, which may have been untold so far."""
        if self.session != session or not session:
            return None
        if self.fence == UNTOLD and fence > self.highest:
            return Held(session, fence, fence)
        return self if self.fence == fence else None

    def given(self, session: str, fence: int) -> Held | None:
        """The state in which that session has been given a fence, if it is higher than all before."""
        if fence == UNTOLD:
            return Held(session, UNTOLD, self.highest)
        return Held(session, fence, fence) if fence > self.highest else None

    def free(self) -> Held:
        return Held(highest=self.highest)


@dataclass(frozen=True, slots=True)
class Acquire:
    """`fence` is None if it was lost, and `UNTOLD` without an answer."""

    session: str
    fence: int | None = UNTOLD


@dataclass(frozen=True, slots=True)
class Release:
    session: str
    fence: int
    done: bool = True


@dataclass(frozen=True, slots=True)
class Renew:
    session: str
    fence: int
    held: bool = True


@dataclass(frozen=True, slots=True)
class Change:
    """`new` is None if it was lost, and `UNTOLD` without an answer."""

    session: str
    fence: int
    to: str
    new: int | None = UNTOLD


@dataclass(frozen=True, slots=True)
class Look:
    """`holders`, and with `broken` `break_leases`; a session of `""` is nobody."""

    session: str = ""
    fence: int = 0
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    session: str


LeaseAction = Acquire | Release | Renew | Change | Look | Close


class LeaseModel:
    """One key: held by one session at most, with a fence that only rises."""

    initial = Held()

    def step(self, state: Held, action: LeaseAction, answered: bool) -> Held | None:
        match action:
            case Acquire(session, fence):
                if fence is None:
                    return state if state.session else None
                return None if state.session else state.given(session, fence)
            case Release(session, fence, done):
                held = state.by(session, fence)
                if done:
                    return held.free() if held else None
                return None if held and state.fence != UNTOLD else state
            case Renew(session, fence, is_held):
                held = state.by(session, fence)
                if not answered or is_held:
                    return held
                return None if held and state.fence != UNTOLD else state
            case Change(session, fence, to, new):
                held = state.by(session, fence)
                if new is None:
                    return None if held and state.fence != UNTOLD else state
                return held.given(to, new) if held else None
            case Look(session, fence, broken):
                if not answered:
                    return state.free() if broken else None
                found = state.by(session, fence) if session else (None if state.session else state)
                return found.free() if found and broken else found
            case Close(session):
                return state.free() if state.session == session else state


# Workers


class Recorder(Generic[A]):
    """What one worker did, by key."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.operations: defaultdict[str, list[Operation[A]]] = defaultdict(list)

    def call(
        self,
        use: Callable[[], T],
        sent: Iterable[tuple[str, A]],
        answers: Callable[[T], Iterable[tuple[str, A]]],
    ) -> T | None:
        """Make a call and note it for each key: as `answers` says, or as it was `sent` if no answer came."""
        called = time.monotonic_ns()
        try:
            result = use()
        except StoreUnavailable:
            for key, action in sent:
                self.operations[key].append(Operation(self.process, called, None, action))
            return None
        returned = time.monotonic_ns()
        for key, action in answers(result):
            self.operations[key].append(Operation(self.process, called, returned, action))
        return result


def use_ownership(
    store: OwnershipStore, group: ConsumerGroup, partitions: Sequence[str], steps: int, seed: int, name: str
) -> Recorder[RecordAction]:
    """List, claim, renew and relinquish at random, several partitions at a time, also by ETags that are stale."""
    rng, recorder, known = Random(f"{seed} {name}"), Recorder[RecordAction](name), dict[str, Ownership]()
    writes = (store.claim_ownership, store.claim_ownership, store.renew_ownership, store.relinquish_ownership)

    def write() -> None:
        use = rng.choice(writes)
        some = rng.sample(partitions, rng.randint(1, len(partitions)))
        records = [known.get(p, Ownership(group, p, "", 0)) for p in some]
        if use == store.claim_ownership:
            records = [dataclasses.replace(one, owner_id=name, owner_level=one.owner_level + 1) for one in records]
        else:
            records = [one for one in records if one.owner_id == name]
        owner = "" if use == store.relinquish_ownership else name
        asked = {one.partition: Write(one.etag, owner, one.owner_level) for one in records}

        def answers(won: list[Ownership]) -> Iterable[tuple[str, RecordAction]]:
            etags = {one.partition: one.etag for one in won}
            return [(p, dataclasses.replace(write, etag=etags.get(p))) for p, write in asked.items()]

        won = recorder.call(lambda: use(records), asked.items(), answers)
        known.update({one.partition: one for one in won or ()})

    def look() -> None:
        def answers(records_found: dict[str, Ownership]) -> Iterable[tuple[str, RecordAction]]:
            records = {p: Record(one.etag, one.owner_id, one.owner_level) for p, one in records_found.items()}
            return [(p, Read(records.get(p, Record()))) for p in partitions]

        found = recorder.call(
            lambda: {one.partition: one for one in store.list_ownership(group).records},
            [(p, Read()) for p in partitions],
            answers,
        )
        known.update(found or {})

    for _ in range(steps):
        rng.choice((write, write, look))()
    return recorder


def use_leases(
    store: LeaseStore, scope: str, keys: Sequence[str], steps: int, seed: int, name: str, duration: float = 3600.0
) -> Recorder[LeaseAction]:
    """Acquire, renew, release, change, break, look and close sessions at random, several keys at a time.

    Nobody sends heartbeats: where no session lives for `duration` seconds, they have no end.
    """
    rng, recorder = Random(f"{seed} {name}"), Recorder[LeaseAction](name)
    lasting = duration if duration <= store.features.longest_lease else None
    sessions = [store.open_session(name, lasting) for _ in range(2)]
    held: dict[str, Lease] = {}  # also what has been lost: stale leases are tried too

    def some_keys() -> list[str]:
        return rng.sample(keys, rng.randint(1, len(keys)))

    def some_leases() -> list[Lease]:
        return [held[key] for key in some_keys() if key in held]

    def acquire() -> None:
        some, session = some_keys(), rng.choice(sessions)

        def answers(won: list[Lease]) -> Iterable[tuple[str, LeaseAction]]:
            fences = {one.key: one.fence for one in won}
            return [(key, Acquire(session.id, fences.get(key))) for key in some]

        won = recorder.call(
            lambda: store.acquire(session, scope, some), [(key, Acquire(session.id)) for key in some], answers
        )
        held.update({one.key: one for one in won or ()})

    def release() -> None:
        some = some_leases()
        recorder.call(
            lambda: store.release(some),
            [(one.key, Release(one.session.id, one.fence)) for one in some],
            lambda done: [(one.key, Release(one.session.id, one.fence, one in done)) for one in some],
        )

    def renew() -> None:
        some = some_leases()
        recorder.call(
            lambda: store.renew(some),
            [(one.key, Renew(one.session.id, one.fence)) for one in some],
            lambda kept: [(one.key, Renew(one.session.id, one.fence, one in kept)) for one in some],
        )

    def change() -> None:
        some, to = some_leases(), rng.choice(sessions)

        def answers(changed: list[Lease]) -> Iterable[tuple[str, LeaseAction]]:
            fences = {one.key: one.fence for one in changed}
            return [(one.key, Change(one.session.id, one.fence, to.id, fences.get(one.key))) for one in some]

        changed = recorder.call(
            lambda: store.change(some, to),
            [(one.key, Change(one.session.id, one.fence, to.id)) for one in some],
            answers,
        )
        held.update({one.key: one for one in changed or ()})

    def look(broken: bool = False) -> None:
        some, use = some_keys(), store.break_leases if broken else store.holders

        def answers(leases: list[Lease]) -> Iterable[tuple[str, LeaseAction]]:
            there = {one.key: Look(one.session.id, one.fence, broken) for one in leases}
            return [(key, there.get(key, Look(broken=broken))) for key in some]

        found = recorder.call(lambda: use(scope, some), [(key, Look(broken=broken)) for key in some], answers)
        mine = {session.id for session in sessions}
        held.update({one.key: one for one in found or () if one.session.id in mine and not broken})

    def close() -> None:
        place = rng.randrange(len(sessions))
        session: LeaseSession = sessions[place]
        closing = [(key, Close(session.id)) for key in keys]
        recorder.call(lambda: store.close_session(session), closing, lambda _: closing)
        sessions[place] = store.open_session(name, lasting)

    uses = [acquire] * 6 + [release] * 4 + [renew, change, change, look, look, lambda: look(True)]
    for step in range(steps):
        rng.choice(uses)()
        if step % 50 == 49:
            close()
    return recorder


def joined(recorders: Iterable[Recorder[A]]) -> dict[str, list[Operation[A]]]:
    """The histories of all workers by key, in the order of their calls."""
    histories: defaultdict[str, list[Operation[A]]] = defaultdict(list)
    for recorder in recorders:
        for key, operations in recorder.operations.items():
            histories[key] += operations
    return {key: sorted(some, key=lambda one: one.called) for key, some in histories.items()}
