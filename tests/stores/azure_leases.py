"""Leases on Azurite, in Blob Storage or in a table: where they are, and the contracts as they are run there.

A test module gives `where`, a container or a table that nobody else uses.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from leasehold.clock import Clock
from leasehold.stores.azure.access import BLOB, TABLE, read_url
from leasehold.stores.azure.blob_leases import BlobLeaseStore
from leasehold.stores.azure.table_leases import TableLeaseStore
from leasehold_testkit.contracts.stores import LinearizableLeases
from leasehold_testkit.contracts.stores.lease_fixtures import LeaseFixtures, Names
from tests.stores.azurite import Azurite
from tests.stores.opened import closing_all
from tests.stores.proxy import Proxy
from tests.waiting import NEVER

_FEWER = {"azblob": 250, "aztable": 40}


@dataclass(frozen=True)
class LeasePlace:
    """A container or a table of an Azurite."""

    azurite: Azurite
    scheme: str
    name: str

    @property
    def url(self) -> str:
        return self.azurite.url(self.scheme, self.name)

    @property
    def port(self) -> int:
        return self.azurite.port("blob" if self.scheme == "azblob" else "table")

    def open(self, proxy: Proxy | None = None, *, timeout: float = NEVER, clock: Clock | None = None) -> Any:
        """A store of leases there, as another process would open it, through a proxy if there is one."""
        url = self.url.replace(str(self.port), str(proxy.port)) if proxy else self.url
        if self.scheme == "azblob":
            return BlobLeaseStore(read_url(url, BLOB), timeout=timeout, clock=clock)
        return TableLeaseStore(read_url(url, TABLE), timeout=timeout, clock=clock)


def place_for_leases(azurite: Azurite, scheme: str) -> LeasePlace:
    """A new container (`azblob`) or table (`aztable`)."""
    name = f"leases{secrets.token_hex(8)}"
    (azurite.make_container if scheme == "azblob" else azurite.make_table)(name)
    return LeasePlace(azurite, scheme, name)


class OnAzurite(LeaseFixtures):
    """Fixtures that all contracts ask for."""

    @pytest.fixture
    def reopen(self, where: LeasePlace) -> Iterator[Callable[[], Any]]:
        with closing_all(where.open) as opener:
            yield opener

    @pytest.fixture
    def store(self, reopen: Callable[[], Any]) -> Any:
        return reopen()

    @pytest.fixture
    def names(self, where: LeasePlace) -> Names:
        """Fewer keys than the contract's: each is some requests, and no lease of a blob lasts longer than 60 s."""
        return lambda many: [f"key {n}" for n in range(max(2, many // _FEWER[where.scheme]))]

    @pytest.fixture
    def hung(self, where: LeasePlace) -> AbstractContextManager[Any]:
        @contextmanager
        def hanging() -> Iterator[Any]:
            proxy = Proxy(where.port)
            proxy.hangs = True
            with closing(where.open(proxy, timeout=0.5)) as store:  # impatient: nobody answers it
                yield store
            proxy.close()

        return hanging()


class AzureLeaseHistories(OnAzurite, LinearizableLeases):
    rounds, steps = 2, 15

    @pytest.fixture
    def url(self, where: LeasePlace) -> str:
        return where.url
