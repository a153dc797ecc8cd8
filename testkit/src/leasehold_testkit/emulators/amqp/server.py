"""A server in a thread of its own: what the local servers share.

Owns the event loop, the listening socket and the life of both. Binds to 127.0.0.1 unless told otherwise: it
speaks without encryption and believes every token. What is served, and how one client is, says the subclass.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from leasehold.errors import ConfigError
from leasehold_testkit.emulators.amqp.conditions import AmqpError
from leasehold_testkit.emulators.amqp.faults import AmqpFaults
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.amqp.serving import Client, Serving

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  what is bound to, as one reaches it
_PATIENCE = 10.0

T = TypeVar("T")


class AmqpServer(ABC):
    """Listens at `host` and `port`; port 0 takes a free one. `limits` bound what a client may cost."""

    faults: AmqpFaults

    def __init__(self, host: str, port: int, limits: Limits | None) -> None:
        self._limits = limits or Limits()
        self._host, self._port = host, port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listening: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port it listens at."""
        return self._port

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        serving = self._serving()
        return len(serving.clients) if serving else 0

    @property
    def namespace(self) -> str:
        """Host and port, as a client reaches them."""
        host = _ANYWHERE.get(self._host, self._host)
        return f"{f'[{host}]' if ':' in host else host}:{self._port}"

    def start(self) -> None:
        """Listen. Raises `ConfigError` if that is not possible at this host and port."""
        if self._thread is not None:
            return
        loop = asyncio.new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(target=self._run, args=(loop,), name=type(self).__name__, daemon=True)
        self._thread.start()
        try:
            self._ask(self._listen())
        except OSError as error:
            self.stop()
            remedy = "Choose another, or port 0 for a free one"
            raise ConfigError("port", self._port, f"{self._host} cannot be listened at: {error}", remedy) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all connections and give back port, thread and what is served. Stopping twice is fine."""
        if self._thread is None or self._loop is None:
            return
        self._ask(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        _cancel_rest(self._loop)
        self._loop.close()
        self._loop = self._thread = None
        self._close()

    # what a subclass serves

    @abstractmethod
    def _serving(self) -> Serving | None:
        """What the clients share; `None` while the server does not run."""

    @abstractmethod
    async def _open(self) -> None:
        """Make ready what is served, in the server's loop, before anybody can connect."""

    @abstractmethod
    def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Client[Any]:
        """Who serves one client."""

    @abstractmethod
    def _close(self) -> None:
        """Give back what is served, once nobody is connected and the loop has ended."""

    def _connection_string(self, entity: str) -> str:
        return (
            f"Endpoint=sb://{self.namespace};SharedAccessKeyName=local;SharedAccessKey=bG9jYWw=;"
            f"UseDevelopmentEmulator=true{entity}"
        )

    # in the server's thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    async def _listen(self) -> None:
        await self._open()
        self._listening = await asyncio.start_server(self._connected, self._host, self._port, limit=128 << 10)
        self._port = self._listening.sockets[0].getsockname()[1]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = self._serving()
        if serving is None or self.faults.refusing or len(serving.clients) >= self._limits.connections:
            writer.transport.abort()
            return
        await self._client(reader, writer).run()

    async def _shut(self) -> None:
        if self._listening is not None:
            for listening in self._listening.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            await asyncio.sleep(0)  # who is being accepted would be left open by a close now
            self._listening.close()
        serving = self._serving()
        if serving is None:
            return
        for client in list(serving.clients):
            client.end()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if rest:
            _, late = await asyncio.wait(rest, timeout=2.0)
            for client in list(serving.clients):
                client.drop()
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _drop(self) -> int:
        async def drop() -> int:
            serving = self._serving()
            clients = list(serving.clients) if serving else []
            for client in clients:
                client.drop()
            return len(clients)

        return self._ask(drop())

    def _detach(self, error: AmqpError, entity: str | None) -> int:
        async def detach() -> int:
            serving = self._serving()
            clients = list(serving.clients) if serving else []
            return sum(client.detach_links(error, entity) for client in clients)

        return self._ask(detach())

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("the server is not running: start() it, or use it as a context manager")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)


def _cancel_rest(loop: asyncio.AbstractEventLoop) -> None:
    """End what a timer has begun since `_shut` looked, and connections that were cut: a closed loop ends nothing."""
    while rest := asyncio.all_tasks(loop):
        loop.run_until_complete(asyncio.sleep(0))  # a client that has just come is served by a task, which must begin
        for task in rest:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
    loop.run_until_complete(asyncio.sleep(0))  # what was cut is closed in the loop's next turn
