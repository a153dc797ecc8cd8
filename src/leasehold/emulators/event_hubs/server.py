"""The local Event Hubs server, in a thread of its own.

Owns the event loop, the listening socket and the life of both. Binds to 127.0.0.1 unless told otherwise: it
speaks without encryption and believes every token.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

from leasehold.emulators.amqp.conditions import AmqpError
from leasehold.emulators.amqp.limits import Limits
from leasehold.emulators.event_hubs.faults import Faults
from leasehold.emulators.event_hubs.hosting import HostedHub
from leasehold.emulators.event_hubs.receivers import Receivers
from leasehold.emulators.event_hubs.serving import Client, Shared
from leasehold.emulators.event_hubs.store import ServedHub
from leasehold.errors import ConfigError

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  what is bound to, as one reaches it
_PATIENCE = 10.0

T = TypeVar("T")


class EventHubsServer:
    """Serves hubs by name to the official clients of Azure Event Hubs.

        with EventHubsServer({"orders": MemoryHub(partitions=4)}) as server:
            client = EventHubProducerClient.from_connection_string(server.connection_string("orders"))

    `hubs` are served by these names, at the address `host`.
    `port` 0 takes a free one. `consumer_groups` names those there are; without it every group is there.
    `limits` bound what a client may cost; `faults` makes the server misbehave on demand.
    """

    def __init__(
        self,
        hubs: Mapping[str, ServedHub],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        consumer_groups: Collection[str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        if not hubs or len({name.lower() for name in hubs}) < len(hubs):
            raise ConfigError("hubs", sorted(hubs), "at least one hub, and no name twice (case does not count)")
        for name in hubs:
            if not name or set(name) & set("/;="):
                raise ConfigError("hubs", name, "a hub's name has at least one character and none of / ; =")
        self._hubs = dict(hubs)
        self._groups = None if consumer_groups is None else {group.lower() for group in consumer_groups}
        self._limits = limits or Limits()
        self._host, self._port = host, port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._shared: Shared | None = None
        self._listening: asyncio.Server | None = None
        self.faults = Faults(self._drop, self._detach)

    def __enter__(self) -> EventHubsServer:
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
        return len(self._shared.clients) if self._shared else 0

    @property
    def receivers(self) -> int:
        """How many receivers are attached to partitions now."""
        return len(self._shared.receivers) if self._shared else 0

    def connection_string(self, hub: str | None = None) -> str:
        """What a client needs to reach a hub, or the namespace of all.

        The key is no secret: the server does not look at it.
        """
        if hub is not None and hub not in self._hubs:
            raise ConfigError("hub", hub, f"the hubs here are {', '.join(self._hubs)}", "Name one of them")
        entity = "" if hub is None else f";EntityPath={hub}"
        return (
            f"Endpoint=sb://{self.namespace};SharedAccessKeyName=local;SharedAccessKey=bG9jYWw=;"
            f"UseDevelopmentEmulator=true{entity}"
        )

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
        self._thread = threading.Thread(target=self._run, args=(loop,), name="event-hubs-server", daemon=True)
        self._thread.start()
        try:
            self._ask(self._listen())
        except OSError as error:
            self.stop()
            remedy = "Choose another, or port 0 for a free one"
            raise ConfigError("port", self._port, f"{self._host} cannot be listened at: {error}", remedy) from error

    def stop(self) -> None:
        """End all connections and give back port, thread and the hubs' resources. Stopping twice is fine."""
        if self._thread is None or self._loop is None:
            return
        self._ask(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = self._shared = None

    # in the server's thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    async def _listen(self) -> None:
        hosted = {name.lower(): HostedHub(name, hub) for name, hub in self._hubs.items()}
        self._shared = Shared(hosted, self._groups, self._limits, self.faults, Receivers(self._limits.receivers))
        self._listening = await asyncio.start_server(self._connected, self._host, self._port, limit=128 << 10)
        self._port = self._listening.sockets[0].getsockname()[1]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shared = self._shared
        if shared is None or self.faults.refusing or len(shared.clients) >= self._limits.connections:
            writer.transport.abort()
            return
        await Client(shared, reader, writer).run()

    async def _shut(self) -> None:
        if self._listening is not None:
            self._listening.close()
        if self._shared is None:
            return
        for client in list(self._shared.clients):
            client.end()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if rest:
            _, late = await asyncio.wait(rest, timeout=2.0)
            for client in list(self._shared.clients):
                client.drop()
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for hub in self._shared.hubs.values():
            hub.close()

    def _drop(self) -> int:
        async def drop() -> int:
            clients = list(self._shared.clients) if self._shared else []
            for client in clients:
                client.drop()
            return len(clients)

        return self._ask(drop())

    def _detach(self, error: AmqpError, hub: str | None) -> int:
        async def detach() -> int:
            clients = list(self._shared.clients) if self._shared else []
            return sum(client.detach_links(error, hub) for client in clients)

        return self._ask(detach())

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("the server is not running: start() it, or use it as a context manager")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)
