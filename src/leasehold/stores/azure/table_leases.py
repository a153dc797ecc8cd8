"""Leases in an Azure table, all of them and their sessions in one partition of it (`azure/lease_entities.py`).

Owns who may write what at the same time. Any number of threads and processes make any call at once, and it looks as if
one came after another, since every step takes effect in one transaction of the service:

    a key       changes hands in a transaction that names the ETag which was read, and is made only while the sessions
                that it is about are alive: who acquires, who releases, both sides of a change, whose lease is broken
    a session   dies in a transaction that deletes its two entities: by whoever closes it, or by whoever finds that its
                last heartbeat is older than its duration, if that still is its last heartbeat. He says that it is dead
                only once that is done. So a late heartbeat either comes first, and nobody has said so, or fails
    a lease     of a session that is gone is free: sessions do not come back, so that whoever takes the key needs only
                its ETag, and nothing is swept

A heartbeat that the service received too late, and that found the session still there, ends it: it compares the time
of its write with that of the one before, both the service's own. An entity stays when its key is free, with its fence.
An opening that had no answer is made again under another id, and may leave two entities that nobody looks at.

The age of a heartbeat is the Date of an answer, in whole seconds cut down, less the entity's Timestamp: a session dies
up to a second late, and never early. What a session's own process has seen less than its duration ago, on its monotonic
clock, needs no look at the session first, since the transaction looks: acquiring what was released here is one request
for 99 keys. A partition of a table takes some 2,000 writes a second from all who use it; that is the limit here.

Refuses nothing that the contract allows, but a call that names thousands of keys needs a time-out that fits.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from azure.data.tables import TableClient

from leasehold.clock import Clock, SystemClock
from leasehold.errors import StoreUnavailable
from leasehold.model import Lease, LeaseSession
from leasehold.stores.azure.access import TABLE, StoreAccess, read_url
from leasehold.stores.azure.calls import Calls, Deadline, transport
from leasehold.stores.azure.lease_entities import Beat, EntityWrite, KeyEntity, LeaseEntities, Name, packed
from leasehold.stores.base import StoreFeatures
from leasehold.stores.lease_base import LeaseStatus
from leasehold.stores.lease_rules import check_duration, check_keys, check_leases, check_listing, check_owner

_REMEMBERED = 100_000  # rows that are kept in memory: what each saves is a request

Plan = Callable[[Name, KeyEntity, frozenset[str]], EntityWrite | None]
"""What to write to a key, given its row and which sessions are dead. None: there is nothing to win."""


class TableLeaseStore:
    """Leases in a table that exists. `timeout` is the longest that a call may take."""

    features = StoreFeatures(shared=True, batches=False)

    def __init__(self, access: StoreAccess, *, timeout: float = 3.0, clock: Clock | None = None) -> None:
        self._calls = Calls(access.where, timeout)
        self._clock = clock or SystemClock()
        self._table = TableClient(
            access.endpoint, access.place, credential=access.credential, transport=transport(), retry_total=0
        )
        self._entities = LeaseEntities(self._table, self._calls)
        self._lock = threading.Lock()
        self._rows: dict[Name, KeyEntity] = {}  # as last written here
        self._beats: dict[str, Beat] = {}  # as last made here
        self._trusted: dict[str, float] = {}  # sessions that are alive until then, on the local clock

    def __repr__(self) -> str:
        return f"TableLeaseStore({self._calls.where})"

    # Sessions

    def open_session(self, owner: str, duration: float | None) -> LeaseSession:
        check_owner(owner)
        check_duration(duration, self.features)

        def opened(deadline: Deadline) -> LeaseSession:
            while True:
                session = LeaseSession(str(uuid.uuid4()), owner, duration)  # another one for each attempt
                since = self._clock.monotonic()
                try:
                    self._trust(session, self._entities.open(session, deadline), since)
                    return session
                except StoreUnavailable:
                    if not deadline.allows_another:
                        raise
                    deadline.pause()

        deadline = self._calls.deadline()
        [session] = self._calls.each(opened, [deadline], deadline)
        return session

    def heartbeat(self, session: LeaseSession) -> bool:
        return session in self._heartbeats([session], self._calls.deadline())

    def _heartbeats(self, sessions: Iterable[LeaseSession], deadline: Deadline) -> set[LeaseSession]:
        """Those of the sessions that are alive, for their whole duration from now."""
        asked = list(sessions)
        alive = self._calls.each(lambda session: self._heartbeat(session, deadline), asked, deadline)
        return {session for session, is_alive in zip(asked, alive, strict=True) if is_alive}

    def _heartbeat(self, session: LeaseSession, deadline: Deadline) -> bool:
        with self._lock:
            last = self._beats.get(session.id)
        while True:
            since = self._clock.monotonic()
            if last is None and (last := self._live_beat(session, deadline)) is None:
                return False
            beat = self._entities.renew(session, last, deadline)
            if beat is not None and not (_late(session, beat.time - last.time) and self._bury(session, beat, deadline)):
                self._trust(session, beat, since)
                return True
            last = None
            self._check_time(deadline)

    def _live_beat(self, session: LeaseSession, deadline: Deadline) -> Beat | None:
        """The last heartbeat of a session that is alive. One that has had its time is dead when this returns."""
        while True:
            beat = self._entities.beat(session.id, deadline)
            if beat is None:
                self._distrust([session.id])
                return None
            if not _late(session, beat.age):
                return beat
            self._bury(session, beat, deadline)

    def _bury(self, session: LeaseSession, last: Beat | None, deadline: Deadline) -> bool:
        self._distrust([session.id])
        return self._entities.bury(session.id, last, deadline)

    def close_session(self, session: LeaseSession) -> None:
        deadline = self._calls.deadline()
        self._calls.each(lambda one: self._bury(one, None, deadline), [session], deadline)

    # Leases

    def acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)

        def acquired(name: Name, row: KeyEntity, dead: frozenset[str]) -> EntityWrite | None:
            if session.id in dead or (row.session is not None and row.session.id not in dead):
                return None
            return EntityWrite(name, row, KeyEntity(row.fence + 1, session), frozenset([session.id]))

        names = [(scope, key) for key in dict.fromkeys(keys)]
        made = self._settle(names, acquired, {session}, holders_count=True)
        return [_lease(step.name, step.after) for step in made]

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        asked, deadline = list(dict.fromkeys(leases)), self._calls.deadline()
        alive = self._heartbeats({lease.session for lease in asked}, deadline)
        mine = [lease for lease in asked if lease.session in alive]
        rows = self._read([_name(lease) for lease in mine], deadline)
        return [lease for lease in mine if _holds(rows[_name(lease)], lease)]

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        return [_lease(step.name, step.before) for step in self._rewrite(leases, lambda row: KeyEntity(row.fence))]

    def change(self, leases: Sequence[Lease], to: LeaseSession) -> list[Lease]:
        made = self._rewrite(leases, lambda row: KeyEntity(row.fence + 1, to), to)
        return [_lease(step.name, step.after) for step in made]

    def _rewrite(
        self, leases: Sequence[Lease], after: Callable[[KeyEntity], KeyEntity], *alive: LeaseSession
    ) -> list[EntityWrite]:
        """Write what comes `after` to those leases that are held as they say, while these sessions live too."""
        check_leases(leases)
        asked: dict[Name, list[Lease]] = {}
        for lease in dict.fromkeys(leases):
            asked.setdefault(_name(lease), []).append(lease)

        def rewritten(name: Name, row: KeyEntity, dead: frozenset[str]) -> EntityWrite | None:
            for lease in asked[name]:
                living = frozenset(session.id for session in (lease.session, *alive))
                if _holds(row, lease) and not dead & living:
                    return EntityWrite(name, row, after(row), living)
            return None

        return self._settle(list(asked), rewritten, {*alive, *(lease.session for lease in leases)})

    def break_leases(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)

        def broken(name: Name, row: KeyEntity, dead: frozenset[str]) -> EntityWrite | None:
            if row.session is None or row.session.id in dead:
                return None
            return EntityWrite(name, row, KeyEntity(row.fence), frozenset([row.session.id]))

        made = self._settle([(scope, key) for key in dict.fromkeys(keys)], broken, set(), holders_count=True)
        return [_lease(step.name, step.before) for step in made]

    def holders(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        names, deadline = [(scope, key) for key in dict.fromkeys(keys)], self._calls.deadline()
        rows = self._read(names, deadline)
        dead = self._dead((row.session for row in rows.values() if row.session), deadline)
        return [_lease(name, rows[name]) for name in names if (held := rows[name].session) and held.id not in dead]

    def list_leases(
        self, scope: str | None = None, keys: Sequence[str] | None = None, *, most: int = 1000
    ) -> list[LeaseStatus]:
        check_listing(scope, keys)
        deadline = self._calls.deadline()
        [found] = self._calls.each(lambda one: self._entities.listed(one, deadline), [scope], deadline)
        held = {lease.key for lease in self.holders(scope, keys)} if scope is not None and keys is not None else None
        found.sort(key=lambda status: (status.lease.scope, status.lease.key))
        return [status for status in found if held is None or status.lease.key in held][:most]

    # Deciding and writing

    def _settle(
        self, names: Sequence[Name], plan: Plan, needed: Iterable[LeaseSession], *, holders_count: bool = False
    ) -> list[EntityWrite]:
        """Plan for each key until its step is made or there is none; return the steps made, in the order of the names.

        What is remembered of a key is good enough to try a step, which compares, as is a session that is trusted.
        `needed` sessions that are not are looked at first, and with `holders_count` those that hold the keys.
        """
        deadline, made = self._calls.deadline(), dict[Name, EntityWrite]()
        todo, trusting = list(names), True
        while todo:
            with self._lock:
                remembered = {name: self._rows[name] for name in todo if trusting and name in self._rows}
            rows = remembered | self._read([name for name in todo if name not in remembered], deadline)
            looked_at = {session for session in needed if not (trusting and self._trusts(session))}
            if holders_count:
                looked_at |= {row.session for row in rows.values() if row.session is not None}
            dead = self._dead(looked_at, deadline)
            steps = {name: plan(name, rows[name], dead) for name in todo}
            groups = packed(step for step in steps.values() if step)
            outcomes = self._calls.each(lambda group: self._write(group, deadline), groups, deadline)
            for group, done in zip(groups, outcomes, strict=True):
                made.update({step.name: step for step in group if done})
            # Nothing to win by what was remembered, or by a session that was trusted, is no answer yet.
            todo = [name for name in todo if name not in made and (steps[name] or name in remembered or trusting)]
            trusting = False
            if todo and not deadline.allows_another:
                raise StoreUnavailable(
                    f"{self._calls.where}: no time was left; others write the same keys all the time"
                )
        return [made[name] for name in names if name in made]

    def _write(self, steps: Sequence[EntityWrite], deadline: Deadline) -> bool:
        rows = self._entities.write(steps, deadline)
        with self._lock:
            if len(self._rows) > _REMEMBERED:
                self._rows.clear()
            for step, row in zip(steps, rows or [None] * len(steps), strict=True):
                if row is None:
                    self._rows.pop(step.name, None)
                else:
                    self._rows[step.name] = row
        return rows is not None

    def _read(self, names: Sequence[Name], deadline: Deadline) -> dict[Name, KeyEntity]:
        rows = self._calls.each(lambda name: self._entities.row(name, deadline), names, deadline)
        return dict(zip(names, rows, strict=True))

    def _dead(self, sessions: Iterable[LeaseSession], deadline: Deadline) -> frozenset[str]:
        asked = list({session.id: session for session in sessions}.values())
        beats = self._calls.each(lambda session: self._live_beat(session, deadline), asked, deadline)
        return frozenset(session.id for session, beat in zip(asked, beats, strict=True) if beat is None)

    def _check_time(self, deadline: Deadline) -> None:
        if not deadline.allows_another:
            raise StoreUnavailable(f"{self._calls.where}: no time was left; others write the same all the time")

    # What this process knows

    def _trust(self, session: LeaseSession, beat: Beat, since: float) -> None:
        with self._lock:
            self._beats[session.id] = beat
            self._trusted[session.id] = math.inf if session.duration is None else since + session.duration

    def _trusts(self, session: LeaseSession) -> bool:
        with self._lock:
            return self._clock.monotonic() < self._trusted.get(session.id, -math.inf)

    def _distrust(self, session_ids: Iterable[str]) -> None:
        with self._lock:
            for session_id in session_ids:
                self._beats.pop(session_id, None)
                self._trusted.pop(session_id, None)

    def create_schema(self) -> None:
        """Make the table, unless it is there."""
        self._calls.make(self._table.create_table)

    def close(self) -> None:
        """Close all connections and end the threads. Leases stay as long as their sessions live."""
        self._calls.close()
        self._table.close()


def _late(session: LeaseSession, age: float) -> bool:
    return session.duration is not None and age >= session.duration


def _name(lease: Lease) -> Name:
    return lease.scope, lease.key


def _holds(row: KeyEntity, lease: Lease) -> bool:
    return row.session == lease.session and row.fence == lease.fence


def _lease(name: Name, row: KeyEntity) -> Lease:
    assert row.session is not None, "it was acquired, or is what was held"
    return Lease(*name, row.session, row.fence)


def open_table_leases(url: str, base: Path, timeout: float) -> TableLeaseStore:
    """The leases in the table that an `aztable://` URL names; `base` has no meaning here."""
    return TableLeaseStore(read_url(url, TABLE), timeout=timeout)
