"""A served hub within the server's event loop.

Owns the way from the loop to a `ServedHub` and back: a hub that does I/O is called in one thread of its own, so
that a slow disk delays its own clients only; errors become conditions that a client understands; and whoever
waits for new messages of a partition is woken when this server has stored some, and looks again after a while
for what others have.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from leasehold.errors import LeaseholdError, Verdict
from leasehold_testkit.emulators.amqp.conditions import INTERNAL_ERROR, NOT_FOUND, SERVER_BUSY, AmqpError
from leasehold_testkit.emulators.amqp.messages import Message, StoredMessage
from leasehold_testkit.emulators.event_hubs.addresses import Start
from leasehold_testkit.emulators.event_hubs.store import PartitionState, ServedHub

_LOOK_AGAIN = 0.05
"""Seconds between two looks at a partition without news: others than this server may store in it too."""

P = ParamSpec("P")
R = TypeVar("R")


class HostedHub:
    """One hub by the name under which it is served."""

    def __init__(self, name: str, hub: ServedHub) -> None:
        self.name = name
        self._hub = hub
        self._thread = ThreadPoolExecutor(1, f"served-{name}") if hub.blocking else None
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._turn = 0

    async def description(self) -> tuple[int, Sequence[str]]:
        """When it was made, and its partitions."""
        return await self._call(lambda: (self._hub.created_at, self._hub.partition_ids()))

    async def state(self, partition: str) -> PartitionState:
        return await self._call(self._hub.state, partition)

    async def resolve(self, partition: str, start: Start) -> int:
        await self._call(self._hub.state, partition)
        return await self._call(self._hub.resolve, partition, start)

    async def read(self, partition: str, start: int, most: int, most_bytes: int) -> list[StoredMessage]:
        return await self._call(self._hub.read, partition, start, most, most_bytes)

    async def append(self, partition: str | None, messages: Sequence[Message]) -> None:
        """Store messages: in the partition given, else in that of their key, else in the next in turn."""
        if not messages:
            return
        if partition is None:
            partition = await self._partition(messages[0].partition_key)
        await self._call(self._hub.append, partition, messages)
        for waiting in self._waiting[partition]:
            waiting.set()

    @contextmanager
    def woken(self, partition: str, event: asyncio.Event) -> Iterator[None]:
        """Within the block, the event is set whenever the partition has new messages."""
        self._waiting[partition].add(event)
        try:
            yield
        finally:
            self._waiting[partition].discard(event)

    async def wait(self, event: asyncio.Event) -> None:
        """Wait for the event, but not longer than until it is worth another look."""
        try:
            async with asyncio.timeout(_LOOK_AGAIN):
                await event.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        if self._thread is not None:
            self._thread.submit(self._hub.close)
            self._thread.shutdown()

    async def _partition(self, key: str | None) -> str:
        if key is not None:
            return await self._call(self._hub.partition_for, key)
        ids = await self._call(self._hub.partition_ids)
        self._turn += 1
        return ids[(self._turn - 1) % len(ids)]

    async def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if self._thread is None:
                return function(*args, **kwargs)
            return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*args, **kwargs))
        except KeyError as error:
            raise AmqpError(NOT_FOUND, f"the hub {self.name} has no partition {error.args[0]!r:.60}") from error
        except LeaseholdError as error:
            raise AmqpError(SERVER_BUSY if error.verdict is Verdict.PASSES else INTERNAL_ERROR, str(error)) from error
