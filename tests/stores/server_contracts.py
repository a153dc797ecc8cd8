"""The contracts of stores as they are run on Postgres and on Redis alike.

A test module gives `server`, which has a `url`, and `stuck`, which gives a URL at which nobody answers meanwhile; for
the times of leases also `wait`, which sets back the times that the server has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Protocol

import pytest

from leasehold.stores import open_lease_store, open_store
from leasehold_testkit.contracts.stores import (
    CheckpointStoreContract,
    LeaseHoldsContract,
    LeaseTimesContract,
    LinearizableLeases,
    LinearizableOwnership,
    OwnershipStoreContract,
)
from tests.stores.opened import closing_all
from tests.waiting import NEVER

Stuck = Callable[[], AbstractContextManager[str]]


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
    def reopen(self, url: str) -> Iterator[Callable[[], Any]]:
        with closing_all(lambda: type(self).opens(url, timeout=NEVER)) as opener:
            yield opener

    @pytest.fixture
    def store(self, reopen: Callable[[], Any]) -> Any:
        return reopen()

    @pytest.fixture
    def hung(self, stuck: Stuck) -> AbstractContextManager[Any]:
        @contextmanager
        def hanging() -> Iterator[Any]:
            with stuck() as url, closing(type(self).opens(url, timeout=0.3)) as store:  # impatient: nobody answers it
                yield store

        return hanging()


class ServerOwnership(_OnServer, OwnershipStoreContract):
    opens = open_store


class ServerCheckpoints(_OnServer, CheckpointStoreContract):
    opens = open_store


class ServerLeases(_OnServer, LeaseHoldsContract):
    opens = open_lease_store


class ServerLeaseTimes(_OnServer, LeaseTimesContract):
    opens = open_lease_store

    @pytest.fixture
    def short(self) -> float:
        """A machine may pause for a quarter of a minute between any two lines."""
        return 36.0


class ServerOwnershipHistories(_OnServer, LinearizableOwnership):
    opens = open_store


class ServerLeaseHistories(_OnServer, LinearizableLeases):
    opens = open_lease_store
