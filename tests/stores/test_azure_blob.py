"""The store in Azure Blob Storage: the contract on Azurite, and what networks, restarts and strangers do to it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

from leasehold.errors import StoreUnavailable
from leasehold.model import Checkpoint, Ownership
from leasehold.stores.azure.access import BLOB, read_url
from leasehold.stores.azure.blob import BlobRecords, BlobStore
from leasehold.stores.azure.layout import Stored
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


def test_a_level_whose_blob_somebody_has_leased_is_tried_until_the_deadline_and_not_longer(
    azurite: Azurite, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = read_url(azurite.url("azblob", container), BLOB)
    patient = BlobStore(access, timeout=NEVER)
    store = BlobStore(access, timeout=1.0)  # impatient: it writes what another has leased
    group = new_group()
    [first] = patient.claim_ownership([Ownership(group, "0", "me", 1)])
    tries, write = list[Address](), BlobRecords._write

    def counted(records: BlobRecords, address: Address, *rest: Any) -> Stored:
        tries.append(address)
        return write(records, address, *rest)

    monkeypatch.setattr(BlobRecords, "_write", counted)
    with BlobServiceClient.from_connection_string(azurite.connection_string) as service:
        names = [each.name for each in service.get_container_client(container).list_blobs()]
        [blob] = [name for name in names if "/ownership-level/" in name and group.hub.lower() in name]
        lease = service.get_blob_client(container, blob).acquire_lease()
        with pytest.raises(StoreUnavailable, match="is its blob leased"):
            store.claim_ownership([replace(first, owner_level=2)])
        store.close()
        assert 1 <= sum(each.area is Area.OWNERSHIP_LEVEL for each in tries) <= 40
        lease.break_lease(0)
    [second] = patient.claim_ownership([replace(first, owner_level=2)])
    assert second.owner_level == 2
    patient.close()


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
