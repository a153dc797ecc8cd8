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


@pytest.mark.more_of(
    "test_a_store_without_presence_does_nothing_and_lists_none",
    "test_asks_are_listed_and_withdrawn_for_their_group_only",
    "test_asks_for_names_that_differ_never_meet",
    "test_hubs_and_groups_that_differ_never_meet",
    "test_lists_no_records_of_another_group",
    "test_lists_thousands_of_partitions",
    "test_many_claims_of_many_partitions_have_one_winner_each",
    "test_names_that_differ_never_meet",
    "test_of_many_claims_of_a_free_partition_exactly_one_wins",
    "test_of_many_claims_with_the_same_etag_exactly_one_wins",
    "test_presences_are_listed_for_their_group_only",
    "test_presences_of_names_that_differ_never_meet",
)
class TestOwnership(AzureOwnership):
    pass


@pytest.mark.more_of(
    "test_bindings_of_groups_that_differ_never_meet",
    "test_data_comes_back_as_written_and_belongs_to_its_checkpoint",
    "test_lists_every_partition_that_has_one",
    "test_lists_no_checkpoints_of_another_group",
    "test_names_that_differ_never_meet",
    "test_thousands_of_partitions",
)
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


@pytest.mark.more
class TestHistories(AzureHistories):
    @pytest.fixture
    def url(self, azurite: Azurite, container: str) -> str:
        return azurite.url("azblob", container)
