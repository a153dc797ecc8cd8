"""The store in Azure Blob Storage: the contract on Azurite, and what networks, restarts and strangers do to it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from leasehold.stores.azure.access import BLOB, read_url
from leasehold.stores.azure.blob import BlobStore
from tests.stores.azure_contracts import (
    PAGE,
    AzureCheckpoints,
    AzureHistories,
    AzureOwnership,
    AzureThousands,
    Open,
)
from tests.stores.azurite import Azurite
from tests.stores.opened import closing_all
from tests.waiting import NEVER


@pytest.fixture(scope="session")
def container(azurite: Azurite) -> str:
    name = f"tests-{secrets.token_hex(4)}"
    azurite.make_container(name)
    return name


@pytest.fixture
def reopen(azurite: Azurite, container: str) -> Iterator[Open]:
    with closing_all(
        lambda: BlobStore(read_url(azurite.url("azblob", container), BLOB), timeout=NEVER, page=PAGE)
    ) as opener:
        yield opener


class TestOwnership(AzureOwnership):
    pass


class TestCheckpoints(AzureCheckpoints):
    pass


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestThousands(AzureThousands):
    @pytest.fixture
    def store(self, azurite: Azurite, container: str) -> Iterator[BlobStore]:
        store = BlobStore(read_url(azurite.url("azblob", container), BLOB), timeout=600.0)
        yield store
        store.close()

    @pytest.fixture
    def many(self) -> int:
        """Two pages of a listing: one holds 5,000 blobs."""
        return 5_500


class TestHistories(AzureHistories):
    @pytest.fixture
    def url(self, azurite: Azurite, container: str) -> str:
        return azurite.url("azblob", container)
