"""One client's socket, served.

Owns the thin shell around `Connection`: it reads, lets the state machine say what is asked, asks the hubs and
writes the answers. Requests of one client are served in their order, one after another, so that a client
cannot have more under way than the bytes of one read; each of its receivers has a task that sends on. A client
that does not come to its Open frame, shows no complete frame, or does not read what is written to it is
disconnected in time. Nothing that one client does ends another's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from leasehold.emulators.amqp.conditions import (
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    INVALID_FIELD,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
)
from leasehold.emulators.amqp.connection import Connection, Stage
from leasehold.emulators.amqp.limits import Limits
from leasehold.emulators.amqp.links import (
    ACCEPTED,
    AttachAsked,
    Delivered,
    Detached,
    Link,
    LinkState,
    Request,
    filters_of,
    rejected,
)
from leasehold.emulators.amqp.messages import received, sent_messages
from leasehold.emulators.event_hubs import addresses
from leasehold.emulators.event_hubs.addresses import ConsumerAddress, NodeAddress
from leasehold.emulators.event_hubs.faults import Faults, Work
from leasehold.emulators.event_hubs.hosting import HostedHub
from leasehold.emulators.event_hubs.management import answer
from leasehold.emulators.event_hubs.receivers import Receivers

_LOG = logging.getLogger(__name__)
_CHUNK = 64 << 10
_READ_MESSAGES, _READ_BYTES = 300, 256 << 10
_FAREWELL = 1.0
_SELECTOR = "apache.org:selector-filter:string"
_OWNER_LEVEL = "com.microsoft:epoch"
_PENDING_ANSWERS = 64


@dataclass(slots=True)
class Shared:
    """What the clients of one server share. Only the server's loop touches it."""

    hubs: dict[str, HostedHub]
    consumer_groups: Collection[str] | None
    limits: Limits
    faults: Faults
    receivers: Receivers
    clients: set[Client] = field(default_factory=set)
    owners: dict[Link, Client] = field(default_factory=dict)

    def hub(self, name: str) -> HostedHub:
        """The hub of a name, in whatever case. Raises `AmqpError`."""
        found = self.hubs.get(name.lower())
        if found is None:
            raise AmqpError(NOT_FOUND, f"there is no hub {name!r:.200} here")
        return found


@dataclass(slots=True)
class _Served:
    """What stands behind an attached link."""

    hub: HostedHub | None = None
    partition: str | None = None
    node: str = ""
    place: tuple[str, str, str] | None = None
    task: asyncio.Task[None] | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    answers: list[bytes] = field(default_factory=list)


class Client:
    """One connected client."""

    def __init__(self, shared: Shared, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._shared = shared
        self._reader, self._writer = reader, writer
        self._connection = Connection(shared.limits)
        self._served: dict[Link, _Served] = {}
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wrote = asyncio.get_running_loop().time()
        self._answer_bytes = 0
        """Of the answers that wait for credit."""

    async def run(self) -> None:
        """Serve the client until one side ends the connection."""
        self._shared.clients.add(self)
        try:
            await self._converse()
        except (ConnectionError, TimeoutError):
            pass  # the client is gone, or does not read
        except AmqpError as error:
            self._connection.close(error)
        except Exception:  # noqa: BLE001  a mistake of ours ends one connection, not the server
            _LOG.exception("a client made the server fail")
            self._connection.close(AmqpError(INTERNAL_ERROR, "the server has failed"))
        finally:
            await self._end()

    def drop(self) -> None:
        """Cut the connection without a word."""
        self._writer.transport.abort()

    def end(self) -> None:
        """End the connection politely: the server stops."""
        self._connection.close(AmqpError(CONNECTION_FORCED, "the server is stopping"))
        self._writer.write(self._connection.output())
        self._writer.close()

    def detach_links(self, error: AmqpError, hub: str | None) -> int:
        """Detach the links to a hub, or to all."""
        chosen = [
            link for link, served in self._served.items() if served.hub is not None and hub in (None, served.hub.name)
        ]
        for link in chosen:
            self.expel(link, error)
        return len(chosen)

    def expel(self, link: Link, error: AmqpError) -> None:
        """Detach a link for what happened elsewhere."""
        self._connection.detach(link, error)
        self._lose(link)
        self._later(self._flush)

    # reading

    async def _converse(self) -> None:
        loop = asyncio.get_running_loop()
        began = heard = loop.time()
        frames = 0
        while not self._connection.closed:
            opening = self._connection.stage is not Stage.OPEN
            limits = self._shared.limits
            gives_up = began + limits.handshake_timeout if opening else heard + limits.idle_timeout
            shows = self._wrote + (self._connection.peer_idle_timeout or 2 * limits.idle_timeout) / 2
            try:
                async with asyncio.timeout_at(min(gives_up, shows)):
                    data = await self._reader.read(_CHUNK)
            except TimeoutError:
                if loop.time() >= gives_up:
                    raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "nothing has come from you for too long") from None
                await self._show_alive()
                continue
            if not data:
                return
            requests = self._connection.receive(data)
            if self._connection.frames > frames:
                frames, heard = self._connection.frames, loop.time()
            for request in requests:
                await self._serve(request)
            await self._flush()

    async def _show_alive(self) -> None:
        self._connection.keep_alive()
        await self._flush()
        self._wrote = asyncio.get_running_loop().time()

    async def _serve(self, request: Request) -> None:
        link = request.link
        if isinstance(request, AttachAsked):
            try:
                await self._attach(link)
            except AmqpError as error:
                self._connection.refuse(link, error)
                self._lose(link)
        elif isinstance(request, Delivered):
            await self._store(request)
        elif isinstance(request, Detached):
            self._lose(link)
        elif served := self._served.get(link):
            served.wake.set()
            self._answer(link, served)

    # links

    async def _attach(self, link: Link) -> None:
        address = addresses.consumer_address if link.sends else addresses.producer_address
        asked = address(link.address)
        if isinstance(asked, NodeAddress):
            self._keep(link, _Served(node=asked.name))
            self._connection.accept(link)
            return
        await self._pause()
        self._shared.faults.check(Work.ATTACH)
        hub = self._shared.hub(asked.hub)
        if not isinstance(asked, ConsumerAddress):
            if asked.partition is not None:
                await hub.state(asked.partition)
            self._keep(link, _Served(hub, asked.partition))
            self._connection.accept(link)
            return
        groups = self._shared.consumer_groups
        if groups is not None and asked.group.lower() not in groups:
            raise AmqpError(NOT_FOUND, f"the hub {hub.name} has no consumer group {asked.group!r:.200}")
        start = await hub.resolve(asked.partition, addresses.start(filters_of(link).get(_SELECTOR)))
        level = (link.asked.properties or {}).get(_OWNER_LEVEL)
        if level is not None and not isinstance(level, int):
            raise AmqpError(INVALID_FIELD, f"{_OWNER_LEVEL} is a number")
        if link.state is not LinkState.ASKED:
            return
        place = (hub.name.lower(), asked.group.lower(), asked.partition)
        for other, reason in self._shared.receivers.enter(place, link, level):
            self._shared.owners[other].expel(other, reason)
        served = _Served(hub, asked.partition, place=place)
        self._keep(link, served)
        self._connection.accept(link)
        served.task = self._later(lambda: self._send_on(link, served, start))

    def _keep(self, link: Link, served: _Served) -> None:
        if link.state is LinkState.ASKED:
            self._served[link] = served
            self._shared.owners[link] = self

    def _lose(self, link: Link) -> None:
        self._shared.owners.pop(link, None)
        served = self._served.pop(link, None)
        if served is None:
            return
        self._answer_bytes -= sum(map(len, served.answers))
        served.answers.clear()
        if served.place is not None:
            self._shared.receivers.leave(served.place, link)
        if served.task is not None and served.task is not asyncio.current_task():
            served.task.cancel()

    # messages

    async def _store(self, delivery: Delivered) -> None:
        served = self._served.get(delivery.link)
        if served is None:
            return
        try:
            if served.hub is None:
                reply = await answer(served.node, delivery.payload, self._shared.hub)
                self._answer_on(delivery.link, served.node, reply)
            else:
                await self._pause()
                self._shared.faults.check(Work.SEND)
                messages = sent_messages(delivery.message_format, delivery.payload)
                await served.hub.append(served.partition, messages)
        except AmqpError as error:
            if delivery.settled:
                self.expel(delivery.link, error)  # the producer waits for no outcome: this is how it learns
            else:
                self._connection.settle(delivery, rejected(error))
        else:
            self._connection.settle(delivery, ACCEPTED)

    def _answer_on(self, request: Link, node: str, reply: bytes) -> None:
        """Queue an answer for the receiver of the same session and address."""
        for link, served in self._served.items():
            if link.sends and served.node == node and link.session is request.session:
                most = self._shared.limits.waiting_bytes
                if len(served.answers) >= _PENDING_ANSWERS or self._answer_bytes + len(reply) > most:
                    raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "too many answers wait for credit")
                served.answers.append(reply)
                self._answer_bytes += len(reply)
                self._answer(link, served)
                return
        raise AmqpError(NOT_FOUND, f"nobody in this session receives from {node}")

    def _answer(self, link: Link, served: _Served) -> None:
        while served.answers and self._connection.send(link, served.answers[0]):
            self._answer_bytes -= len(served.answers.pop(0))

    async def _send_on(self, link: Link, served: _Served, at: int) -> None:
        """Send a receiver what its partition has from `at` on, as long as it is attached."""
        hub, partition, wake = served.hub, served.partition, served.wake
        assert hub is not None
        assert partition is not None
        with hub.woken(partition, wake):
            while link.state is LinkState.ATTACHED:
                wake.clear()
                if not link.ready:
                    await self._flush()
                    await wake.wait()
                    continue
                await self._pause()
                try:
                    found = await hub.read(partition, at, min(link.credit, _READ_MESSAGES), _READ_BYTES)
                except AmqpError as error:
                    self.expel(link, error)
                    return
                for stored in found:
                    if not self._connection.send(link, received(stored)):
                        break
                    at = stored.sequence_number + 1
                if not found:
                    self._connection.drained(link)
                await self._flush()
                if not found:
                    await hub.wait(wake)

    # writing

    async def _flush(self) -> None:
        data = self._connection.output()
        if not data:
            return
        self._writer.write(data)
        self._wrote = asyncio.get_running_loop().time()
        async with self._writing, asyncio.timeout(self._shared.limits.idle_timeout):
            await self._writer.drain()

    async def _pause(self) -> None:
        if self._shared.faults.delay:
            await self._flush()
            await asyncio.sleep(self._shared.faults.delay)

    def _later(self, work: Callable[[], object]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work()  # type: ignore[misc]
            except (ConnectionError, TimeoutError):
                self.drop()
            except Exception:  # noqa: BLE001  as above
                _LOG.exception("serving a client has failed")
                self.drop()

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _end(self) -> None:
        for link in list(self._served):
            self._lose(link)
        for task in list(self._tasks):
            task.cancel()
        self._shared.clients.discard(self)
        try:
            self._writer.write(self._connection.output())
            self._writer.close()
            async with asyncio.timeout(_FAREWELL):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()
