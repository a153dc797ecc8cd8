"""The local Service Bus server.

Owns the queues, topics and subscriptions that are served, and the file they are kept in. The thread, the socket and the
life of both are those of any server here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from leasehold.clock import Clock, SystemClock
from leasehold.errors import ConfigError
from leasehold_testkit.emulators.amqp.conditions import AmqpError
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.amqp.links import Link
from leasehold_testkit.emulators.amqp.messages import data_message
from leasehold_testkit.emulators.amqp.server import AmqpServer
from leasehold_testkit.emulators.service_bus.content import Content, content_of
from leasehold_testkit.emulators.service_bus.faults import Faults
from leasehold_testkit.emulators.service_bus.kept import KeptEntity, KeptQueues
from leasehold_testkit.emulators.service_bus.namespace import Entity, Namespace, entity_of, topic_settings
from leasehold_testkit.emulators.service_bus.serving import QueueClient, ServingQueues
from leasehold_testkit.emulators.service_bus.settings import QueueSettings, TopicSettings, check_name


class ServiceBusServer(AmqpServer):
    """Serves queues and topics to the official clients of Azure Service Bus.

        with ServiceBusServer({"orders": QueueSettings()}) as server:
            client = ServiceBusClient.from_connection_string(server.connection_string())

    `queues` and `topics` are made under these names, with these settings, beside those that a file at `path` has
    already; without a path everything is gone with the server. `clock` tells enqueued times and when locks end.
    It listens at `host` and `port`; 0 takes a free one. `limits` bound what a client may cost; `faults` makes it
    misbehave on demand.
    Raises `ConfigError`, and `StoreUnavailable` for a file that cannot be used.
    """

    faults: Faults

    def __init__(
        self,
        queues: Mapping[str, QueueSettings] | None = None,
        topics: Mapping[str, TopicSettings] | None = None,
        *,
        path: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(host, port, limits)
        self._asked = _asked(queues or {}, topics or {})
        if not self._asked and path is None:
            raise ConfigError("queues", [], "at least one queue or topic, or a file that has some")
        self._path, self._clock = path, clock or SystemClock()
        self._entities: dict[str, Entity] = {}
        self._shared: ServingQueues | None = None
        self.faults = Faults(self._drop, self._detach, self._lose_locks)

    @property
    def names(self) -> list[str]:
        """What is served: queues, topics, and subscriptions as `TOPIC/SUBSCRIPTION`."""
        return sorted(entity.name for entity in self._entities.values())

    def connection_string(self, entity: str | None = None) -> str:
        """What a client needs to reach all that is here, or one queue or topic.

        The key is no secret: the server does not look at it.
        """
        return self._connection_string("" if entity is None else f";EntityPath={entity}")

    def count(self, entity: str, *, dead: bool = False) -> int:
        """How many messages a queue or subscription (`TOPIC/SUBSCRIPTION`) has now, of any state; or dead letters."""
        return len(self._named(entity).queue(dead))

    def send(
        self, entity: str, *bodies: str | bytes, session_id: str | None = None, message_id: str | None = None
    ) -> None:
        """Put messages into a queue or topic without a client, each with a body and nothing else but these ids."""
        found = self._named(entity)
        contents = [_content(body, session_id, message_id) for body in bodies]
        assert self._shared is not None
        self._ask(self._shared.namespace.do(found, lambda now: found.alive.send(contents, now)))

    # in the server's thread

    def _named(self, name: str) -> Entity:
        found = {each.name.lower(): each for each in self._entities.values()}.get(name.lower())
        if found is None:
            raise ConfigError("entity", name, f"the entities here are {', '.join(self.names)}", "Name one of them")
        return found

    def _serving(self) -> ServingQueues | None:
        return self._shared

    async def _open(self) -> None:
        kept = None if self._path is None else KeptQueues(self._path)
        if kept is None:
            self._entities = _opened(self._asked, None)
        else:
            try:
                self._entities = await asyncio.get_running_loop().run_in_executor(
                    kept.thread, _opened, self._asked, kept
                )
            except BaseException:
                kept.close()
                raise
        namespace = Namespace(self._entities, kept, self._clock, self._expel, self._failed)
        self._shared = ServingQueues(self._limits, self.faults, namespace=namespace, queue_faults=self.faults)
        for entity in self._entities.values():
            await namespace.do(entity, lambda now: None)  # and have what is due later done then

    def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> QueueClient:
        assert self._shared is not None
        return QueueClient(self._shared, reader, writer)

    def _close(self) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.namespace.close()

    def _expel(self, holder: object, error: AmqpError) -> None:
        """End the link that has lost its session."""
        if self._shared is not None and isinstance(holder, Link) and holder in self._shared.owners:
            self._shared.owners[holder].expel(holder, error)

    def _failed(self) -> None:
        """In the file's thread: nobody is served any more, and whoever is connected learns it."""
        shared, loop = self._shared, self._loop

        def drop() -> None:
            for client in list(shared.clients) if shared is not None else ():
                client.drop()

        if loop is not None:
            loop.call_soon_threadsafe(drop)

    def _lose_locks(self, entity: str | None) -> int:
        async def lose() -> int:
            assert self._shared is not None
            namespace, lost = self._shared.namespace, 0
            for each in self._entities.values():
                if entity in (None, each.name):
                    for lose in (each.locks.lose, each.alive.lose_locks, each.dead.lose_locks):
                        lost += await namespace.do(each, lose)
            return lost

        return self._ask(lose())


def _content(body: str | bytes, session_id: str | None, message_id: str | None) -> Content:
    stated = [message_id, *[None] * 9, session_id, None, None]
    return content_of(data_message(body.encode() if isinstance(body, str) else body, {}, stated))


def _asked(queues: Mapping[str, QueueSettings], topics: Mapping[str, TopicSettings]) -> list[KeptEntity]:
    found = []
    for name, settings in queues.items():
        check_name("queue", name)
        found.append(KeptEntity(name, "queue", settings))
    for name, topic in topics.items():
        check_name("topic", name)
        found.append(KeptEntity(name, "topic", topic_settings(topic.duplicate_window)))
        for subscription, settings in topic.subscriptions.items():
            check_name("subscription", subscription)
            found.append(KeptEntity(f"{name}/{subscription}", "subscription", settings))
    paths = [_path_of(each) for each in found]
    if len(set(paths)) < len(paths):
        raise ConfigError("queues", sorted(paths), "no name twice (case does not count)")
    return found


def _opened(kept_entities: list[KeptEntity], kept: KeptQueues | None) -> dict[str, Entity]:
    """All entities, those of the file with what is in it, by their paths."""
    listed = {_path_of(each): each for each in (kept.open() if kept is not None else [])}
    for each in kept_entities:
        before = listed.get(_path_of(each))
        if before is not None and before.kind != each.kind:
            raise ConfigError("queues", each.name, f"it is a {before.kind} in the file", "Choose another name")
        listed[_path_of(each)] = (
            each if before is None else KeptEntity(before.name, each.kind, each.settings, before.last_number)
        )
    if kept is not None:
        kept.define(listed.values())
    entities = {path: entity_of(each, kept) for path, each in listed.items()}
    for entity in entities.values():
        if entity.kind == "subscription":
            topic = entity.name.rpartition("/")[0].lower()
            entities[topic].subscriptions.append(entity)
    return entities


def _path_of(entity: KeptEntity) -> str:
    if entity.kind != "subscription":
        return entity.name.lower()
    topic, _, name = entity.name.rpartition("/")
    return f"{topic}/subscriptions/{name}".lower()
