"""One client of the Service Bus server.

Owns what its links are attached to: entities that senders send to, queues, subscriptions and dead letters that
receivers take from, `$cbs`, and the `$management` of each. The socket, and the order in which requests are served, are
those of any client here; a receiver that waits for a free session waits beside them.

A message is locked before it is sent. Where it cannot be sent then, because the link has gone or takes no more, it is
released. A receiver that goes away keeps its locks until they run out, as the service documents; a session is free at
once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from leasehold_testkit.emulators.amqp.conditions import INVALID_FIELD, NOT_ALLOWED, TIMEOUT, AmqpError
from leasehold_testkit.emulators.amqp.faults import Work
from leasehold_testkit.emulators.amqp.links import Delivered, Disposed, Link, LinkState, filters_of, rejected
from leasehold_testkit.emulators.amqp.serving import Client, Served, Serving
from leasehold_testkit.emulators.amqp.types import Described, Symbol
from leasehold_testkit.emulators.service_bus.addresses import CBS, Address, address_of
from leasehold_testkit.emulators.service_bus.content import sent_contents
from leasehold_testkit.emulators.service_bus.deliveries import held_until, payload_of, settle, tag_of
from leasehold_testkit.emulators.service_bus.faults import Faults
from leasehold_testkit.emulators.service_bus.management import accepted_token, answer
from leasehold_testkit.emulators.service_bus.namespace import Entity, Namespace
from leasehold_testkit.emulators.service_bus.sessions import SessionLock
from leasehold_testkit.emulators.service_bus.stored import QueuedMessage

_MOST_AT_ONCE = 300
_SESSION_FILTER, _LOCKED_UNTIL, _TIMEOUT = (
    *("com.microsoft:session-filter", "com.microsoft:locked-until-utc"),
    "com.microsoft:timeout",
)
_PATIENCE, _LONGEST_PATIENCE = 60.0, 3_600.0
_TICKS_OF_1970, _TICKS_PER_MILLI = 621_355_968_000_000_000, 10_000
_SETTLED = 1


@dataclass(slots=True, kw_only=True)
class ServingQueues(Serving):
    """What the clients of one server share. Only the server's loop touches it."""

    namespace: Namespace
    queue_faults: Faults


@dataclass(slots=True, kw_only=True)
class ServedQueue(Served):
    """What stands behind a link: a node, or an entity, its dead letters, or one of its sessions."""

    behind: Entity | None = None
    dead: bool = False
    session: str | None = None

    @property
    def entity(self) -> str | None:
        return None if self.behind is None or self.node else self.behind.name


class QueueClient(Client[ServedQueue]):
    """One connected client of queues."""

    def __init__(self, serving: ServingQueues, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(serving, reader, writer)
        self._namespace, self._faults = serving.namespace, serving.queue_faults

    # links

    async def _attach(self, link: Link) -> None:
        address = address_of(link.address)
        if address.entity == CBS:
            self._keep(link, ServedQueue(node=CBS))
            self._connection.accept(link)
            return
        await self._pause()
        if not address.management:
            self._faults.check(Work.ATTACH)
        entity = self._namespace.entity(address)
        if address.management:
            self._keep(link, ServedQueue(node=address.node, behind=entity, dead=address.dead))
            self._connection.accept(link)
        elif link.sends:
            self._attach_receiver(link, entity, address)
        else:
            if address.dead or entity.kind == "subscription":
                raise AmqpError(NOT_ALLOWED, f"nobody sends to {address.entity!r:.200} itself, or to dead letters")
            self._keep(link, ServedQueue(behind=entity))
            self._connection.accept(link)

    def _attach_receiver(self, link: Link, entity: Entity, address: Address) -> None:
        if entity.kind == "topic":
            raise AmqpError(NOT_ALLOWED, f"{entity.name} is a topic: receive from TOPIC/Subscriptions/NAME")
        filters = filters_of(link)
        sessions = entity.queue(address.dead).settings.requires_session
        if sessions != (_SESSION_FILTER in filters):
            what = "requires sessions: name one, or ask for the next" if sessions else "has no sessions"
            raise AmqpError(NOT_ALLOWED, f"{entity.name} {what}")
        served = ServedQueue(behind=entity, dead=address.dead)
        self._keep(link, served)
        if sessions:
            served.task = self._later(lambda: self._send_session(link, served, entity, filters[_SESSION_FILTER]))
            return
        self._connection.accept(link, unsettled=_peek_lock(link))
        served.task = self._later(lambda: self._send_on(link, served, entity))

    async def _send_session(self, link: Link, served: ServedQueue, entity: Entity, session_id: object) -> None:
        """Wait for the session, attach the link to it, and send what is in it."""
        try:
            lock = await self._session(link, served, entity, session_id)
        except AmqpError as error:
            self._connection.refuse(link, error, echo=session_id is not None)
            self._lose(link)
            await self._flush()
            return
        until = _TICKS_OF_1970 + lock.until * _TICKS_PER_MILLI
        source = _with_filter(link.asked.source, lock.session)
        self._connection.accept(link, unsettled=_peek_lock(link), source=source, properties={_LOCKED_UNTIL: until})
        await self._flush()
        await self._send_on(link, served, entity)

    async def _session(self, link: Link, served: ServedQueue, entity: Entity, session_id: object) -> SessionLock:
        if not isinstance(session_id, str | None):
            raise AmqpError(INVALID_FIELD, f"{_SESSION_FILTER} is a text, or null for the next free session")
        asked = (link.asked.properties or {}).get(_TIMEOUT)
        patience = asked / 1_000 if isinstance(asked, int) and asked > 0 else _PATIENCE
        entity.waiting.add(served.wake)
        try:
            async with asyncio.timeout(min(patience, _LONGEST_PATIENCE)):
                while True:
                    served.wake.clear()
                    lock = await self._namespace.do(
                        entity, lambda now: self._accept(link, served, entity, session_id, now)
                    )
                    if lock is not None:
                        return lock
                    await served.wake.wait()
        except TimeoutError:
            raise AmqpError(TIMEOUT, f"no session of {entity.name} has become free for {patience:g} s") from None
        finally:
            entity.waiting.discard(served.wake)

    def _accept(
        self, link: Link, served: ServedQueue, entity: Entity, session_id: str | None, now: int
    ) -> SessionLock | None:
        """Take a session for a link that is still there: whoever loses the link finds the session in `served`."""
        if link.state is not LinkState.ASKED:
            return None
        lock = entity.locks.accept(session_id, link, now)
        if lock is not None:
            served.session = lock.session
        return lock

    def _left(self, link: Link, served: ServedQueue) -> None:
        session, entity = served.session, served.behind
        if entity is None:
            return
        entity.waiting.discard(served.wake)
        if session is not None:
            self._namespace.later(entity, lambda now: entity.locks.close(session, link, now))

    # messages

    async def _take(self, delivery: Delivered, served: ServedQueue) -> None:
        entity = served.behind
        if served.node == CBS:
            self._answer_on(delivery.link, CBS, accepted_token(delivery.payload))
            return
        assert entity is not None
        if served.node:
            reply = await answer(
                delivery.payload, self._namespace, entity, served.dead, lambda name: self._receiver(entity, name)
            )
            self._answer_on(delivery.link, served.node, reply)
            return
        await self._pause()
        self._faults.check(Work.SEND)
        contents = sent_contents(delivery.message_format, delivery.payload)
        self._faults.check_sent(len(contents))
        await self._namespace.do(entity, lambda now: entity.alive.send(contents, now))

    def _receiver(self, entity: Entity, name: str | None) -> object:
        """The receiver of an entity by the name of its link; an object that holds nothing where there is none."""
        links = (link for link, served in self._served.items() if served.behind is entity and not served.node)
        return next((link for link in links if link.asked.name == name), None)

    async def _settle(self, disposed: Disposed) -> None:
        for number, link, tag in disposed.deliveries:
            served = self._served.get(link)
            if served is None or served.behind is None:
                continue
            outcome = await self._settled(served, served.behind, link, tag, disposed.state)
            if self._faults.swallows():
                self.drop()
                return
            self._connection.settled(disposed, number, outcome)
            served.wake.set()

    async def _settled(self, served: ServedQueue, entity: Entity, link: Link, tag: bytes, state: Any) -> Any:
        if state is None:
            return None  # settled without an outcome: the lock is left to run out

        def work(now: int) -> Any:
            if served.session is not None:
                entity.locks.held(served.session, link)
            return settle(entity.queue(served.dead), tag, state, now)

        try:
            return await self._namespace.do(entity, work)
        except AmqpError as error:
            return rejected(error)

    async def _send_on(self, link: Link, served: ServedQueue, entity: Entity) -> None:
        """Send a receiver what there is for it, as long as it is attached."""
        wake, queue = served.wake, entity.queue(served.dead)
        delete = not _peek_lock(link)
        entity.waiting.add(wake)
        while link.state is LinkState.ATTACHED:
            wake.clear()
            if not link.ready:
                await self._flush()
                await wake.wait()
                continue
            await self._pause()
            found: list[QueuedMessage] = []

            def receive(now: int, messages: list[QueuedMessage] = found) -> None:
                if link.ready:
                    most = 1 if delete else min(link.credit, _MOST_AT_ONCE)  # what is deleted must not be taken back
                    messages += queue.receive(most, now, uuid4, delete=delete, session=served.session)

            try:
                await self._namespace.do(entity, receive)
                self._send_found(link, served, entity, found)
            except AmqpError as error:
                self.expel(link, error)
                return
            finally:
                self._release(served, entity, found)
            if not found and not wake.is_set():
                self._connection.drained(link)
                await self._flush()
                await wake.wait()
            await self._flush()

    def _send_found(self, link: Link, served: ServedQueue, entity: Entity, messages: list[QueuedMessage]) -> None:
        """Send messages, and take those that were sent from the list."""
        until = held_until(entity, served.session)
        while messages and self._connection.send(link, payload_of(messages[0], until), tag_of(messages[0])):
            del messages[0]

    def _release(self, served: ServedQueue, entity: Entity, messages: list[QueuedMessage]) -> None:
        """Give back what was locked and could not be sent."""
        queue = entity.queue(served.dead)
        for message in messages:
            if message.lock is not None:
                token = message.lock.token
                self._namespace.later(entity, lambda now, token=token: queue.release(token, now))  # type: ignore[misc]


def _peek_lock(link: Link) -> bool:
    return link.asked.snd_settle_mode != _SETTLED


def _with_filter(source: object, session: str) -> Described:
    """The source that was asked for, with the session that was given in its filter."""
    assert isinstance(source, Described)
    values = list(source.value)
    filters = dict(values[7])
    name = next(key for key in filters if isinstance(key, Symbol) and key == _SESSION_FILTER)
    before = filters[name]
    filters[name] = Described(before.descriptor, session) if isinstance(before, Described) else session
    values[7] = filters
    return Described(source.descriptor, values)
