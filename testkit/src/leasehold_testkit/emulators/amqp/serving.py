"""One client's socket, served: what the local servers share.

Owns the thin shell around `Connection`: it reads, lets the state machine say what is asked, has the subclass answer and
writes the answers. Requests of one client are served in their order, one after another, so that a client
cannot have more under way than the bytes of one read; each of its receivers has a task that sends on. A client
that does not come to its Open frame, shows no complete frame, or does not read what is written to it is
disconnected in time. Nothing that one client does ends another's.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from leasehold_testkit.emulators.amqp.conditions import (
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
)
from leasehold_testkit.emulators.amqp.connection import Connection, Stage
from leasehold_testkit.emulators.amqp.faults import AmqpFaults
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.amqp.links import (
    ACCEPTED,
    AttachAsked,
    Delivered,
    Detached,
    Disposed,
    Link,
    LinkState,
    Request,
    rejected,
)

_LOG = logging.getLogger(__name__)
_CHUNK = 64 << 10
_FAREWELL = 1.0
_PENDING_ANSWERS = 64


@dataclass(slots=True)
class Serving:
    """What the clients of one server share. Only the server's loop touches it."""

    limits: Limits
    faults: AmqpFaults
    clients: set[Client[Any]] = field(default_factory=set)
    owners: dict[Link, Client[Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Served:
    """What stands behind an attached link: a `node` that answers requests, or what a subclass adds."""

    node: str = ""
    task: asyncio.Task[None] | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    answers: list[bytes] = field(default_factory=list)

    @property
    def entity(self) -> str | None:
        """The name of the hub or queue that the link is attached to; `None` for a node."""
        return None


S = TypeVar("S", bound=Served)


class Client(ABC, Generic[S]):
    """One connected client."""

    def __init__(self, serving: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving = serving
        self._reader, self._writer = reader, writer
        self._connection = Connection(serving.limits)
        self._served: dict[Link, S] = {}
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wrote = asyncio.get_running_loop().time()
        self._answer_bytes = 0
        """Of the answers that wait for credit."""

    async def run(self) -> None:
        """Serve the client until one side ends the connection."""
        self._serving.clients.add(self)
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

    def detach_links(self, error: AmqpError, entity: str | None) -> int:
        """Detach the links to a hub or queue, or to all."""
        chosen = [
            link
            for link, served in self._served.items()
            if served.entity is not None and entity in (None, served.entity)
        ]
        for link in chosen:
            self.expel(link, error)
        return len(chosen)

    def expel(self, link: Link, error: AmqpError) -> None:
        """Detach a link for what happened elsewhere."""
        self._connection.detach(link, error)
        self._lose(link)
        self._later(self._flush)

    # what a subclass serves

    @abstractmethod
    async def _attach(self, link: Link) -> None:
        """Accept a link that was asked for, after `_keep`, or raise `AmqpError`."""

    @abstractmethod
    async def _take(self, delivery: Delivered, served: S) -> None:
        """Store or answer a message that arrived. Raises `AmqpError` for one that is refused."""

    async def _settle(self, disposed: Disposed) -> None:
        """What a receiver says of deliveries. A server that sends settled messages only learns nothing from it."""

    def _left(self, link: Link, served: S) -> None:
        """A link is gone: give up what it held."""

    # reading

    async def _converse(self) -> None:
        loop = asyncio.get_running_loop()
        began = heard = loop.time()
        frames = 0
        while not self._connection.closed:
            opening = self._connection.stage is not Stage.OPEN
            limits = self._serving.limits
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
        if isinstance(request, Disposed):
            await self._settle(request)
            return
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

    def _keep(self, link: Link, served: S) -> None:
        if link.state is LinkState.ASKED:
            self._served[link] = served
            self._serving.owners[link] = self

    def _lose(self, link: Link) -> None:
        self._serving.owners.pop(link, None)
        served = self._served.pop(link, None)
        if served is None:
            return
        self._answer_bytes -= sum(map(len, served.answers))
        served.answers.clear()
        self._left(link, served)
        if served.task is not None and served.task is not asyncio.current_task():
            served.task.cancel()

    # messages

    async def _store(self, delivery: Delivered) -> None:
        served = self._served.get(delivery.link)
        if served is None:
            return
        try:
            await self._take(delivery, served)
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
                most = self._serving.limits.waiting_bytes
                if len(served.answers) >= _PENDING_ANSWERS or self._answer_bytes + len(reply) > most:
                    raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "too many answers wait for credit")
                served.answers.append(reply)
                self._answer_bytes += len(reply)
                self._answer(link, served)
                return
        raise AmqpError(NOT_FOUND, f"nobody in this session receives from {node}")

    def _answer(self, link: Link, served: S) -> None:
        while served.answers and self._connection.send(link, served.answers[0]):
            self._answer_bytes -= len(served.answers.pop(0))

    # writing

    async def _flush(self) -> None:
        data = self._connection.output()
        if not data:
            return
        self._writer.write(data)
        self._wrote = asyncio.get_running_loop().time()
        async with self._writing, asyncio.timeout(self._serving.limits.idle_timeout):
            await self._writer.drain()

    async def _pause(self) -> None:
        if self._serving.faults.delay:
            await self._flush()
            await asyncio.sleep(self._serving.faults.delay)

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
        self._serving.clients.discard(self)
        try:
            self._writer.write(self._connection.output())
            self._writer.close()
            async with asyncio.timeout(_FAREWELL):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()
        except asyncio.CancelledError:  # the server stops, and waits no longer
            self._writer.transport.abort()
            raise
