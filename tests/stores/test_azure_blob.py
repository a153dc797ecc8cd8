"""The store in Azure Blob Storage: the contract on Azurite, and what networks, restarts and strangers do to it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from azure.storage.blob import BlobServiceClient

from leasehold.errors import StoreUnavailable
from leasehold.model import Checkpoint
from leasehold.stores.azure.access import BLOB, read_url
from leasehold.stores.azure.blob import BlobRecords, BlobStore
from leasehold.stores.azure.calls import Calls, Deadline
from leasehold.stores.azure.layout import read_level
from leasehold.stores.azure.records import Address, Area
from leasehold.testing.stores.groups import new_group
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


class AFewTries(Deadline):
    """One that ends with the fifth try, however long that takes."""

    def __init__(self) -> None:
        super().__init__(NEVER)
        self._tries = 0

    @property
    def allows_another(self) -> bool:
        self._tries += 1
        return self._tries < 5


def test_a_level_whose_blob_somebody_has_leased_is_tried_until_the_deadline(azurite: Azurite, container: str) -> None:
    records = BlobRecords(read_url(azurite.url("azblob", container), BLOB), Calls("there", NEVER), 5_000)
    address = Address(new_group(), Area.OWNERSHIP_LEVEL, "0")
    first = records.raise_level(address, 1, None, Deadline(NEVER))
    with BlobServiceClient.from_connection_string(azurite.connection_string) as service:
        names = [each.name for each in service.get_container_client(container).list_blobs()]
        [blob] = [name for name in names if "/ownership-level/" in name and address.group.hub.lower() in name]
        lease = service.get_blob_client(container, blob).acquire_lease()
        with pytest.raises(StoreUnavailable, match="partition 0 cannot be written: is its blob leased"):
            records.raise_level(address, 2, first, AFewTries())
        lease.break_lease(0)
    assert read_level(records.raise_level(address, 2, first, Deadline(NEVER))) == 2
    records.close()


def test_a_blob_that_somebody_has_leased_is_named_once(
    azurite: Azurite, container: str, caplog: pytest.LogCaptureFixture
) -> None:
    access = read_url(azurite.url("azblob", container), BLOB)
    patient = BlobStore(access, timeout=NEVER)
    store = BlobStore(access, timeout=1.0)  # impatient: it writes what another has leased
    group = new_group()
    patient.raise_owner_level([Checkpoint(group, partition, 5, 1) for partition in ("0", "1")])
    name = f"{group.namespace}/{group.hub}/{group.name}/checkpoint/0".lower()
    with BlobServiceClient.from_connection_string(azurite.connection_string) as service:
        lease = service.get_blob_client(container, name).acquire_lease()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                store.update_checkpoints([Checkpoint(group, "0", 6, 1)])
        [said] = [record.getMessage() for record in caplog.records if "leased" in record.getMessage()]
        assert name in said
        assert patient.update_checkpoints([Checkpoint(group, "1", 6, 1)]) == []
        lease.break_lease(0)
    assert patient.update_checkpoints([Checkpoint(group, "0", 7, 1)]) == []
    store.close()
    patient.close()
