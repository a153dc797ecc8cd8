"""The entities of one server within its event loop.

Owns the way from the loop to the queues and back: the time, when something is due by itself, who waits for messages,
and that nobody is told of a change before it is kept. All of it runs in one loop; only the file is written in a thread,
several changes at a time where they come faster than the disk takes them, in the order in which they were made.

A change that could not be written is not taken back: the namespace then serves nobody any more, and says why; a server
that is started anew begins with what was kept. A client that goes away in the middle of a change leaves it made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import uuid4

from leasehold.clock import Clock
from leasehold.errors import LeaseholdError
from leasehold_testkit.emulators.amqp.conditions import INTERNAL_ERROR, NOT_FOUND, SESSION_LOCK_LOST, AmqpError
from leasehold_testkit.emulators.service_bus.addresses import DEAD, Address
from leasehold_testkit.emulators.service_bus.kept import EntityChanges, KeptEntity, KeptQueues
from leasehold_testkit.emulators.service_bus.queue import Queue
from leasehold_testkit.emulators.service_bus.sessions import SessionLocks
from leasehold_testkit.emulators.service_bus.settings import QueueSettings

logger = logging.getLogger(__name__)

_ALL = 1 << 30

R = TypeVar("R")


@dataclass(slots=True, eq=False)
class Entity:
    """A queue, subscription or topic, with its dead letters. A topic's `alive` holds what is scheduled."""

    name: str
    kind: str
    alive: Queue
    dead: Queue
    locks: SessionLocks
    subscriptions: list[Entity] = field(default_factory=list)
    waiting: set[asyncio.Event] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None
    due: int = 0
    """When the timer rings."""

    def queue(self, dead: bool) -> Queue:
        return self.dead if dead else self.alive

    def advance(self, now: int) -> list[object]:
        """Do what was due; return the holders of the sessions that were lost."""
        lost = [lock.holder for lock in self.locks.advance(now)]
        self.alive.advance(now)
        self.dead.advance(now)
        return lost

    def next_due(self) -> int | None:
        return min(
            (at for at in (self.alive.next_due(), self.dead.next_due(), self.locks.next_due()) if at), default=None
        )


def entity_of(kept: KeptEntity, queues: KeptQueues | None) -> Entity:
    """An entity as it was kept; a new one where nothing was."""
    dead = Queue(f"{kept.name}/{DEAD}", replace(kept.settings, requires_session=False, duplicate_window=0.0))
    alive = Queue(kept.name, kept.settings, dead)
    if queues is not None:
        seen, states = queues.seen(kept.name), queues.session_states(kept.name)
        alive.restore(queues.messages(kept.name, dead=False), seen, states, kept.last_number)
        dead.restore(queues.messages(kept.name, dead=True), {}, {}, 0)
    return Entity(kept.name, kept.kind, alive, dead, SessionLocks(alive))


class Namespace:
    """All entities of a server. `expel` ends the link of a receiver that has lost its session."""

    def __init__(
        self,
        entities: Mapping[str, Entity],
        queues: KeptQueues | None,
        clock: Clock,
        expel: Callable[[object, AmqpError], None],
        failed: Callable[[], None],
    ) -> None:
        self._entities = {name.lower(): entity for name, entity in entities.items()}
        self._queues = queues
        self._clock, self._base = clock, clock.wall() - clock.monotonic()
        self._expel, self._tell_failed = expel, failed
        self._writing = asyncio.Lock()
        self._pending: list[EntityChanges] = []
        self._asked = self._written = 0
        self._failed: Exception | None = None
        self._tasks: set[asyncio.Task[object]] = set()

    def now(self) -> int:
        """Milliseconds since the epoch, that never go back while the server runs."""
        return round((self._base + self._clock.monotonic()) * 1_000)

    def entity(self, address: Address) -> Entity:
        """The entity that an address names. Raises `AmqpError` where there is none."""
        found = self._entities.get(address.entity)
        if found is None:
            raise AmqpError(NOT_FOUND, f"there is no queue, topic or subscription {address.entity!r:.200} here")
        return found

    async def do(self, entity: Entity, work: Callable[[int], R]) -> R:
        """Do what is due and then this, keep what it changed, and wake whoever waits for it. Raises `AmqpError`."""
        self._check()
        now = self.now()
        try:
            for holder in entity.advance(now):
                what = f"the lock of a session of {entity.name} has expired: its receiver did not renew it"
                self._expel(holder, AmqpError(SESSION_LOCK_LOST, what))
            result = work(now)
        finally:
            changes = self._changes(entity, now)
            self._arm(entity, now)
            await self._keep(changes)
        return result

    def later(self, entity: Entity, work: Callable[[int], object]) -> None:
        """Do something that nobody waits for."""

        async def quietly() -> None:
            with suppress(AmqpError):  # it is done, or cannot be any more; a file that failed has been told of
                await self.do(entity, work)

        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Write what is still to be written, and give the file back. The loop has ended."""
        if self._queues is not None:
            if self._pending:
                self._queues.thread.submit(self._write_out, self._pending)
            self._queues.close()

    # changes

    def _changes(self, entity: Entity, now: int) -> list[EntityChanges]:
        changed = [entity]
        if entity.subscriptions:
            changed += entity.subscriptions
            for message in entity.alive.receive(_ALL, now, uuid4, delete=True):
                for subscription in entity.subscriptions:
                    subscription.advance(now)
                    subscription.alive.forwarded(message.content, message.sequence_number, now)
                    self._arm(subscription, now)
        found = []
        for each in changed:
            alive, dead = each.alive.drain(), each.dead.drain()
            if alive or dead:
                found.append(EntityChanges(each.name, each.alive.last_number, alive, dead))
                for waiting in each.waiting:
                    waiting.set()
        return found

    def _arm(self, entity: Entity, now: int) -> None:
        """Have what is due next done when it is due."""
        due = entity.next_due()
        if due is None or (entity.timer is not None and entity.due <= due):
            return
        if entity.timer is not None:
            entity.timer.cancel()
        entity.due = due
        loop = asyncio.get_running_loop()
        entity.timer = loop.call_later(max(0.0, (due - now) / 1_000), self._ring, entity)

    def _ring(self, entity: Entity) -> None:
        entity.timer = None
        self.later(entity, lambda now: None)

    async def _keep(self, changes: list[EntityChanges]) -> None:
        if not changes or self._queues is None:
            return
        self._pending += changes
        self._asked += 1
        ticket = self._asked
        async with self._writing:
            if self._written < ticket:
                batch, self._pending, upto = self._pending, [], self._asked
                await asyncio.get_running_loop().run_in_executor(self._queues.thread, self._write_out, batch)
                self._written = upto
        self._check()

    def _write_out(self, batch: list[EntityChanges]) -> None:
        """In the file's thread: who asked may be gone by now, so a failure is noted here."""
        assert self._queues is not None
        if self._failed is not None:
            return
        try:
            self._queues.write(batch)
        except Exception as error:  # whatever it is, nobody is told that this, or anything after it, is kept
            self._failed = error
            self._tell_failed()
            if not isinstance(error, LeaseholdError):
                logger.exception("what has changed could not be written down")

    def _check(self) -> None:
        if self._failed is not None:
            what = (
                f"this server has stopped serving, since it cannot keep what it is told: {self._failed}. Start it anew"
            )
            raise AmqpError(INTERNAL_ERROR, what)


def topic_settings(duplicate_window: float) -> QueueSettings:
    """What holds a topic's scheduled messages, and knows its duplicates."""
    return QueueSettings(duplicate_window=duplicate_window)
