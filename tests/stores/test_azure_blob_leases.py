"""Leases of Azure Blob Storage's own: the contract on Azurite, in which a short lease is 15 s."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from leasehold.stores.azure.access import BLOB, read_url
from leasehold.stores.azure_blob_leases import BlobLeaseStore
from leasehold.testing.stores import LeaseStoreContract
from tests.stores.azurite import Azurite
from tests.stores.proxy import Proxy

PATIENT = 60.0

Open = Callable[[], BlobLeaseStore]


class TestLeases(LeaseStoreContract):
    @pytest.fixture(scope="class")
    def container(self, azurite: Azurite) -> str:
        name = f"leases-{secrets.token_hex(4)}"
        azurite.make_container(name)
        return name

    @pytest.fixture
    def reopen(self, azurite: Azurite, container: str) -> Iterator[Open]:  # type: ignore[override]
        opened: list[BlobLeaseStore] = []

        def opener() -> BlobLeaseStore:
            opened.append(BlobLeaseStore(read_url(azurite.url("azblob", container), BLOB), timeout=PATIENT))
            return opened[-1]

        yield opener
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, reopen: Open) -> BlobLeaseStore:  # type: ignore[override]
        return reopen()

    @pytest.fixture
    def hung(self, azurite: Azurite, container: str) -> Iterator[AbstractContextManager[BlobLeaseStore]]:  # type: ignore[override]
        proxy = Proxy(azurite.port("blob"))
        url = azurite.url("azblob", container).replace(str(azurite.port("blob")), str(proxy.port))
        store = BlobLeaseStore(read_url(url, BLOB), timeout=0.5)

        @contextmanager
        def hanging() -> Iterator[BlobLeaseStore]:
            proxy.hangs = True
            yield store
            proxy.hangs = False

        yield hanging()
        store.close()
        proxy.close()
