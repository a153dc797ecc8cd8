"""The contracts of stores as they are run on Postgres and on Redis alike.

A test module gives `server`, which has a `url`, and `stuck`, within which a store of that server waits for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest

from leasehold.stores import open_lease_store, open_store
from leasehold.testing.stores import (
    CheckpointStoreContract,
    LeaseHoldsContract,
    LeaseTimesAtOnce,
    LinearizableLeases,
    LinearizableOwnership,
    OwnershipStoreContract,
)
from tests.stores.opened import PATIENT, closing_all

Stuck = Callable[[Any], AbstractContextManager[Any]]


class Server(Protocol):
    @property
    def url(self) -> str: ...


class _OnServer:
    """What opens the stores is the class's: `open_store` or `open_lease_store`."""

    opens: Callable[..., Any]

    @pytest.fixture
    def url(self, server: Server) -> str:
        return server.url

    @pytest.fixture
    def reopen(self, server: Server) -> Iterator[Callable[[], Any]]:
        with closing_all(lambda: type(self).opens(server.url, timeout=PATIENT)) as opener:
            yield opener

    @pytest.fixture
    def store(self, reopen: Callable[[], Any]) -> Any:
        return reopen()

    @pytest.fixture
    def hung(self, server: Server, stuck: Stuck) -> AbstractContextManager[Any]:
        return stuck(type(self).opens(server.url, timeout=0.3))


class ServerOwnership(_OnServer, OwnershipStoreContract):
    opens = open_store


class ServerCheckpoints(_OnServer, CheckpointStoreContract):
    opens = open_store


class ServerLeases(_OnServer, LeaseHoldsContract):
    opens = open_lease_store


class ServerLeaseTimes(_OnServer, LeaseTimesAtOnce):
    """In real seconds, all at once: so a busy machine may take two of them between a renewal and a look."""

    opens = open_lease_store

    @pytest.fixture
    def short(self) -> float:
        return 5.0


class ServerOwnershipHistories(_OnServer, LinearizableOwnership):
    opens = open_store


class ServerLeaseHistories(_OnServer, LinearizableLeases):
    opens = open_lease_store
