"""The local Event Hubs server.

Owns the hubs that are served, by name. The thread, the socket and the life of both are those of any server here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from leasehold.errors import ConfigError
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.amqp.server import AmqpServer
from leasehold_testkit.emulators.event_hubs.faults import Faults
from leasehold_testkit.emulators.event_hubs.hosting import HostedHub
from leasehold_testkit.emulators.event_hubs.receivers import Receivers
from leasehold_testkit.emulators.event_hubs.serving import HubClient, ServingHubs
from leasehold_testkit.emulators.event_hubs.store import ServedHub


class EventHubsServer(AmqpServer):
    """Serves hubs by name to the official clients of Azure Event Hubs.

        with EventHubsServer({"orders": MemoryHub(partitions=4)}) as server:
            client = EventHubProducerClient.from_connection_string(server.connection_string("orders"))

    `hubs` are served by these names, at the address `host`.
    `port` 0 takes a free one. `consumer_groups` names those there are; without it every group is there.
    `limits` bound what a client may cost; `faults` makes the server misbehave on demand.
    """

    faults: Faults

    def __init__(
        self,
        hubs: Mapping[str, ServedHub],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        consumer_groups: Collection[str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(host, port, limits)
        if not hubs or len({name.lower() for name in hubs}) < len(hubs):
            raise ConfigError("hubs", sorted(hubs), "at least one hub, and no name twice (case does not count)")
        for name in hubs:
            if not name or set(name) & set("/;="):
                raise ConfigError("hubs", name, "a hub's name has at least one character and none of / ; =")
        self._hubs = dict(hubs)
        self._groups = None if consumer_groups is None else {group.lower() for group in consumer_groups}
        self._shared: ServingHubs | None = None
        self.faults = Faults(self._drop, self._detach)

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
        return self._connection_string("" if hub is None else f";EntityPath={hub}")

    # in the server's thread

    def _serving(self) -> ServingHubs | None:
        return self._shared

    async def _open(self) -> None:
        hosted = {name.lower(): HostedHub(name, hub) for name, hub in self._hubs.items()}
        receivers = Receivers(self._limits.receivers)
        self._shared = ServingHubs(
            self._limits, self.faults, hubs=hosted, consumer_groups=self._groups, receivers=receivers
        )

    def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HubClient:
        assert self._shared is not None
        return HubClient(self._shared, reader, writer)

    def _close(self) -> None:
        shared, self._shared = self._shared, None
        for hub in shared.hubs.values() if shared else ():
            hub.close()
