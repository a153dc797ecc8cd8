"""One client of the Event Hubs server.

Owns what its links are attached to: hubs that producers store in, partitions that receivers read from, `$cbs` and
`$management`. The socket, and the order in which requests are served, are those of any client here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from leasehold_testkit.emulators.amqp.conditions import ARGUMENT_ERROR, INVALID_FIELD, NOT_FOUND, AmqpError
from leasehold_testkit.emulators.amqp.faults import Work
from leasehold_testkit.emulators.amqp.links import Delivered, Link, LinkState, filters_of
from leasehold_testkit.emulators.amqp.messages import received, sent_messages
from leasehold_testkit.emulators.amqp.serving import Client, Served, Serving
from leasehold_testkit.emulators.event_hubs import addresses
from leasehold_testkit.emulators.event_hubs.addresses import ConsumerAddress, NodeAddress
from leasehold_testkit.emulators.event_hubs.hosting import HostedHub
from leasehold_testkit.emulators.event_hubs.management import answer
from leasehold_testkit.emulators.event_hubs.receivers import Receivers

_READ_MESSAGES, _READ_BYTES = 300, 256 << 10
_SELECTOR = "apache.org:selector-filter:string"
_OWNER_LEVEL = "com.microsoft:epoch"
_LONGEST_KEY = 128
"""Characters, of 16 bits, that the service takes."""


@dataclass(slots=True, kw_only=True)
class ServingHubs(Serving):
    """What the clients of one server share. Only the server's loop touches it."""

    hubs: dict[str, HostedHub]
    consumer_groups: Collection[str] | None
    receivers: Receivers = field(default_factory=lambda: Receivers(5))

    def hub(self, name: str) -> HostedHub:
        """The hub of a name, in whatever case. Raises `AmqpError`."""
        found = self.hubs.get(name.lower())
        if found is None:
            raise AmqpError(NOT_FOUND, f"there is no hub {name!r:.200} here")
        return found


@dataclass(slots=True, kw_only=True)
class ServedPlace(Served):
    """What stands behind a link: a node, a hub, or a partition as a consumer group reads it."""

    hub: HostedHub | None = None
    partition: str | None = None
    place: tuple[str, str, str] | None = None

    @property
    def entity(self) -> str | None:
        return None if self.hub is None else self.hub.name


class HubClient(Client[ServedPlace]):
    """One connected client of hubs."""

    def __init__(self, serving: ServingHubs, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(serving, reader, writer)
        self._hubs = serving

    async def _attach(self, link: Link) -> None:
        address = addresses.consumer_address if link.sends else addresses.producer_address
        asked = address(link.address)
        if isinstance(asked, NodeAddress):
            self._keep(link, ServedPlace(node=asked.name))
            self._connection.accept(link)
            return
        await self._pause()
        self._hubs.faults.check(Work.ATTACH)
        hub = self._hubs.hub(asked.hub)
        if not isinstance(asked, ConsumerAddress):
            if asked.partition is not None:
                await hub.state(asked.partition)
            self._keep(link, ServedPlace(hub=hub, partition=asked.partition))
            self._connection.accept(link)
            return
        groups = self._hubs.consumer_groups
        if groups is not None and asked.group.lower() not in groups:
            raise AmqpError(NOT_FOUND, f"the hub {hub.name} has no consumer group {asked.group!r:.200}")
        start = await hub.resolve(asked.partition, addresses.start(filters_of(link).get(_SELECTOR)))
        level = (link.asked.properties or {}).get(_OWNER_LEVEL)
        if level is not None and not isinstance(level, int):
            raise AmqpError(INVALID_FIELD, f"{_OWNER_LEVEL} is a number")
        if link.state is not LinkState.ASKED:
            return
        place = (hub.name.lower(), asked.group.lower(), asked.partition)
        for other, reason in self._hubs.receivers.enter(place, link, level):
            self._hubs.owners[other].expel(other, reason)
        served = ServedPlace(hub=hub, partition=asked.partition, place=place)
        self._keep(link, served)
        self._connection.accept(link)
        served.task = self._later(lambda: self._send_on(link, served, start))

    def _left(self, link: Link, served: ServedPlace) -> None:
        if served.place is not None:
            self._hubs.receivers.leave(served.place, link)

    async def _take(self, delivery: Delivered, served: ServedPlace) -> None:
        if served.hub is None:
            reply = await answer(served.node, delivery.payload, self._hubs.hub)
            self._answer_on(delivery.link, served.node, reply)
            return
        await self._pause()
        self._hubs.faults.check(Work.SEND)
        messages = sent_messages(delivery.message_format, delivery.payload)
        self._hubs.faults.check_sent(len(messages))
        for message in messages:
            if message.partition_key and len(message.partition_key.encode("utf-16-le")) // 2 > _LONGEST_KEY:
                raise AmqpError(ARGUMENT_ERROR, f"a partition key of more than {_LONGEST_KEY} characters")
        await served.hub.append(served.partition, messages)

    async def _send_on(self, link: Link, served: ServedPlace, at: int) -> None:
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
