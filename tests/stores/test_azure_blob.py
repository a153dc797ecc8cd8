"""The store in Azure Blob Storage: the contract on Azurite, and what networks, restarts and strangers do to it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator

import pytest

from leasehold.model import ConsumerGroup
from leasehold.stores.azure.access import BLOB, read_url
from leasehold.stores.azure_blob import BlobStore
from leasehold.testing.groups import FEWER_WORDS, groups_alike, new_group
from leasehold.testing.stores import CheckpointStoreContract, LinearizableOwnership, OwnershipStoreContract
from tests.stores.azurite import Azurite

PATIENT = 60.0
"""Seconds: a time-out that no test of correctness runs into, on however slow a machine."""

PAGE = 80
"""Records: a page of a listing, of which 300 partitions are four."""

Open = Callable[[], BlobStore]


@pytest.fixture(scope="session")
def container(azurite: Azurite) -> str:
    name = f"tests-{secrets.token_hex(4)}"
    azurite.make_container(name)
    return name


@pytest.fixture
def reopen(azurite: Azurite, container: str) -> Iterator[Open]:
    opened: list[BlobStore] = []

    def opener() -> BlobStore:
        opened.append(BlobStore(read_url(azurite.url("azblob", container), BLOB), timeout=PATIENT, page=PAGE))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(reopen: Open) -> BlobStore:
    return reopen()


@pytest.fixture
def wait() -> Callable[[float], None]:
    """A clock of whole seconds shows that time has passed once the second has changed."""
    return lambda seconds: time.sleep(1.0 + seconds)


class TestOwnership(OwnershipStoreContract):
    @pytest.fixture
    def store(self, reopen: Open) -> BlobStore:
        return reopen()

    @pytest.fixture
    def reopen(self, reopen: Open) -> Open:
        return reopen

    @pytest.fixture
    def many(self) -> int:
        """Each record is some requests of its own; a page is shortened, so that a listing still has several."""
        return 300

    @pytest.fixture
    def wait(self, wait: Callable[[float], None]) -> Callable[[float], None]:
        return wait


class TestCheckpoints(CheckpointStoreContract):
    @pytest.fixture
    def store(self, reopen: Open) -> BlobStore:
        return reopen()

    @pytest.fixture
    def reopen(self, reopen: Open) -> Open:
        return reopen

    @pytest.fixture
    def many(self) -> int:
        """Each record is some requests of its own; a page is shortened, so that a listing still has several."""
        return 300

    @pytest.fixture
    def alike(self) -> list[ConsumerGroup]:
        return groups_alike(FEWER_WORDS)


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestThousands:
    """As many partitions as the contract wants, and pages as long as the service's."""

    @pytest.fixture
    def store(self, azurite: Azurite, container: str) -> Iterator[BlobStore]:
        store = BlobStore(read_url(azurite.url("azblob", container), BLOB), timeout=600.0)
        yield store
        store.close()

    @pytest.fixture
    def group(self) -> ConsumerGroup:
        return new_group()

    @pytest.fixture
    def many(self) -> int:
        """Two pages of a listing: one holds 5,000 blobs."""
        return 5_500

    test_lists_thousands_of_partitions = OwnershipStoreContract.test_lists_thousands_of_partitions
    test_thousands_of_partitions = CheckpointStoreContract.test_thousands_of_partitions


class TestHistories(LinearizableOwnership):
    rounds, steps = 2, 15

    @pytest.fixture
    def reopen(self, reopen: Open) -> Open:
        return reopen

    @pytest.fixture
    def url(self, azurite: Azurite, container: str) -> str:
        return azurite.url("azblob", container)
