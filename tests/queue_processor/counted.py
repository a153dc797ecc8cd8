"""Calls, counted where they arrive: at the local Service Bus server, at the store of leases and at the sink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from leasehold.stores import open_lease_store
from leasehold_testkit.emulators.service_bus.addresses import CBS
from leasehold_testkit.emulators.service_bus.serving import QueueClient


class CountedLeases:
    """A store of leases that counts what is asked of it for a key; sessions are a few for a process and not counted."""

    def __init__(self, url: str, calls: Counter[str]) -> None:
        self._store, self._calls = open_lease_store(url), calls

    def acquire(self, session: Any, scope: str, keys: Sequence[str]) -> Any:
        self._calls["lease"] += 1
        return self._store.acquire(session, scope, keys)

    def release(self, leases: Any) -> Any:
        self._calls["lease"] += 1
        return self._store.release(leases)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def count_service(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count, under `service`, messages handed out, outcomes, sessions taken and given up, and management requests."""
    calls: Counter[str] = Counter()
    send, settled, take = QueueClient._send_found, QueueClient._settled, QueueClient._take
    accept, left = QueueClient._accept, QueueClient._left

    def _send_found(self: Any, link: Any, served: Any, entity: Any, found: list[Any]) -> None:
        before = len(found)
        send(self, link, served, entity, found)
        calls["service"] += before - len(found)
        calls["handed out"] += before - len(found)

    async def _settled(self: Any, *arguments: Any) -> Any:
        calls["service"] += 1
        calls["outcomes"] += 1
        return await settled(self, *arguments)

    async def _take(self: Any, delivery: Any, served: Any) -> None:
        calls["service"] += bool(served.node) and served.node != CBS
        calls["requests"] += bool(served.node) and served.node != CBS
        await take(self, delivery, served)

    def _accept(self: Any, *arguments: Any) -> Any:
        lock = accept(self, *arguments)
        calls["service"] += lock is not None
        calls["sessions"] += lock is not None
        return lock

    def _left(self: Any, link: Any, served: Any) -> None:
        calls["service"] += served.session is not None
        calls["closed"] += served.session is not None
        left(self, link, served)

    for call in (_send_found, _settled, _take, _accept, _left):
        monkeypatch.setattr(QueueClient, call.__name__, call)
    return calls
