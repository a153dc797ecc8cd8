"""The store in Azure tables: the contract on Azurite, and what networks, restarts and strangers do to it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from leasehold.stores.azure.access import TABLE, read_url
from leasehold.stores.azure.table import TableStore
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
def table(azurite: Azurite) -> str:
    name = f"tests{secrets.token_hex(4)}"
    azurite.make_table(name)
    return name


@pytest.fixture
def reopen(azurite: Azurite, table: str) -> Iterator[Open]:
    with closing_all(
        lambda: TableStore(read_url(azurite.url("aztable", table), TABLE), timeout=NEVER, page=PAGE)
    ) as opener:
        yield opener


@pytest.mark.more_of(
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
    def store(self, azurite: Azurite, table: str) -> Iterator[TableStore]:
        store = TableStore(read_url(azurite.url("aztable", table), TABLE), timeout=600.0)
        yield store
        store.close()

    @pytest.fixture
    def many(self) -> int:
        """Five pages of a listing: one holds 1,000 entities."""
        return 5_000


@pytest.mark.more
class TestHistories(AzureHistories):
    @pytest.fixture
    def url(self, azurite: Azurite, table: str) -> str:
        return azurite.url("aztable", table)
